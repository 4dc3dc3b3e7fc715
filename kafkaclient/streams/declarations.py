"""What an application declares: topics, stores, what a processor gets, and what happens to
records that fail.

Kafka Streams: ``deserialization.exception.handler``, ``processing.exception.handler`` and
``errors.dead.letter.queue.topic.name`` (KIP-161, KIP-1033, KIP-1034).
"""

from __future__ import annotations

import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

import msgspec

from kafkaclient.errors import ConfigError, InvalidTopicError
from kafkaclient.streams.serdes import BYTES_OR_NONE, TypeCodec, TypeLike, codec_of
from kafkaclient.topic_names import check_topic_name
from kafkaclient.types import Headers, TopicPartition

if TYPE_CHECKING:
    from kafkaclient.types import HeadersLike


K = TypeVar("K")
V = TypeVar("V")

FAIL: Final = "fail"  # end the application with an error that names the record
NOT_GIVEN: Any = object()
_FORMS = {0: "(record, emit)", 1: "(record, store, emit)"}
_MAX_PARTITIONS = 10_000
_SKIP: Final = "skip"  # log the record and continue; CONTINUE in Kafka Streams


class Topic(Generic[K, V]):
    """A topic and the types of its keys and values, for processors and for ``emit``.

    ``key`` and ``value`` are types or :class:`~kafkaclient.streams.Serde` objects; the manual has
    the table. The default is ``bytes | None``: None is a null.

    Raises :class:`~kafkaclient.errors.ConfigError` for an invalid name or type.
    """

    __slots__ = ("key", "name", "value")

    @overload
    def __init__(self: Topic[bytes | None, bytes | None], name: str) -> None: ...
    @overload
    def __init__(self: Topic[K, bytes | None], name: str, *, key: TypeLike[K]) -> None: ...
    @overload
    def __init__(self: Topic[bytes | None, V], name: str, *, value: TypeLike[V]) -> None: ...
    @overload
    def __init__(self, name: str, *, key: TypeLike[K], value: TypeLike[V]) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        key: Any = BYTES_OR_NONE,
        value: Any = BYTES_OR_NONE,
    ) -> None:
        self.name: str = checked_name(name, "topic")
        self.key: TypeCodec = codec_of(key, f"the key type of topic {name!r}")
        self.value: TypeCodec = codec_of(value, f"the value type of topic {name!r}")

    def __repr__(self) -> str:
        types = f"key={self.key.declared}, value={self.value.declared}"
        return f"{type(self).__name__}({self.name!r}, {types})"


class RepartitionTopic(Topic[K, V]):
    """A topic between two processors of the application, which the application itself makes, as
    ``{application.id}-{name}-repartition``, and purges: records are deleted once they are
    processed and committed.

    ``partitions`` is the number of partitions, at most 10,000. By default it is the largest number
    of the inputs of the processors before it.
    """

    __slots__ = ("partitions",)

    @overload
    def __init__(
        self: RepartitionTopic[bytes | None, bytes | None],
        name: str,
        *,
        partitions: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: RepartitionTopic[K, bytes | None],
        name: str,
        *,
        key: TypeLike[K],
        partitions: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: RepartitionTopic[bytes | None, V],
        name: str,
        *,
        value: TypeLike[V],
        partitions: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, *, key: TypeLike[K], value: TypeLike[V], partitions: int | None = None
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        key: Any = BYTES_OR_NONE,
        value: Any = BYTES_OR_NONE,
        partitions: int | None = None,
    ) -> None:
        super().__init__(name, key=key, value=value)
        if partitions is not None and (
            partitions.__class__ is not int or not 1 <= partitions <= _MAX_PARTITIONS
        ):
            raise ConfigError(
                f"RepartitionTopic({name!r}) has partitions={partitions!r}: at least 1 and at most "
                f"{_MAX_PARTITIONS:,}, or None"
            )
        self.partitions: int | None = partitions


class Store(Generic[K, V]):
    """A store of a processor: its name and the types of its keys and values, as for
    :class:`Topic`. Each task has its own :class:`~kafkaclient.streams.KeyValueStore`.

    Raises :class:`~kafkaclient.errors.ConfigError` for an invalid name, a type with None, or a
    serde that cannot read.
    """

    __slots__ = ("key", "name", "value")

    @overload
    def __init__(self: Store[bytes, bytes], name: str) -> None: ...
    @overload
    def __init__(self: Store[K, bytes], name: str, *, key: TypeLike[K]) -> None: ...
    @overload
    def __init__(self: Store[bytes, V], name: str, *, value: TypeLike[V]) -> None: ...
    @overload
    def __init__(self, name: str, *, key: TypeLike[K], value: TypeLike[V]) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        key: Any = bytes,
        value: Any = bytes,
    ) -> None:
        self.name: str = checked_name(name, "store")
        self.key: TypeCodec = _store_codec(key, f"the key type of store {name!r}")
        self.value: TypeCodec = _store_codec(value, f"the value type of store {name!r}")

    def __repr__(self) -> str:
        return f"Store({self.name!r}, key={self.key.declared}, value={self.value.declared})"


def _store_codec(declared: Any, what: str) -> TypeCodec:
    codec = codec_of(declared, what)
    if codec.declared.endswith("| None"):
        raise ConfigError(f"{what} allows None: a store has no None; delete the key instead")
    if codec.with_context or not codec.readable:
        raise ConfigError(
            f"{what} is {codec.declared}: a store needs a Serde with two functions, and a "
            "serializer with a context is only for topics"
        )
    return codec._replace(nullable=False)


class DeadLetter:
    """Write the record to ``topic`` and continue with the next one.

    The record keeps its key, value, timestamp and headers, as bytes. The headers of KIP-1034 are
    added: ``__streams.errors.exception``, ``.stacktrace``, ``.message``, ``.topic``, ``.partition``
    and ``.offset``. With ``exactly_once_v2`` the record is written in the task's transaction. The
    topic must exist when the application starts.

    Raises :class:`~kafkaclient.errors.ConfigError` for an invalid name.
    """

    __slots__ = ("topic",)

    def __init__(self, topic: str) -> None:
        self.topic: str = checked_name(topic, "dead letter topic")

    def __repr__(self) -> str:
        return f"DeadLetter({self.topic!r})"


ErrorHandler: TypeAlias = Literal["fail", "skip"] | DeadLetter


def validate_handler(handler: Any, option: str) -> ErrorHandler:
    """The checked handler. Raises :class:`~kafkaclient.errors.ConfigError` with ``option``."""
    if isinstance(handler, DeadLetter):
        return handler
    if isinstance(handler, str) and handler in (FAIL, _SKIP):
        return handler  # type: ignore[return-value]
    raise ConfigError(
        f"{option} is {handler!r}; it must be {FAIL!r}, {_SKIP!r} or DeadLetter('topic')"
    )


def checked_name(name: Any, what: str) -> str:
    """The name, which is a topic's, or becomes part of one. Raises ConfigError."""
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        text = str(error).removesuffix("; nothing was sent")
        raise ConfigError(f"{what} {name!r}: {text}") from None
    return str(name)


def declared_topic(topic: Any, key: Any, value: Any) -> Topic[Any, Any]:
    """An input topic of a processor, given as an object or by name. Raises ConfigError."""
    types = {"key": key, "value": value}
    given = {name: each for name, each in types.items() if each is not NOT_GIVEN}
    if given and isinstance(topic, Topic):
        raise ConfigError(f"{topic!r} has its own types: leave out key= and value=")
    declared = topic if isinstance(topic, Topic) else Topic[Any, Any](topic, **given)
    for field, codec in (("key", declared.key), ("value", declared.value)):
        if not codec.readable:
            raise ConfigError(
                f"the {field}s of topic {declared.name!r} cannot be read: {codec.declared} has no "
                "deserialize function"
            )
    return declared


def declared_stores(store: Any, stores: Any) -> tuple[Store[Any, Any], ...]:
    """The stores of a processor. Raises ConfigError."""
    if store is not None and stores:
        raise ConfigError("a processor has either store= or stores=")
    if isinstance(stores, str) or not isinstance(stores, (list, tuple)):
        raise ConfigError(f"stores={stores!r}: give a list of stores, or one with store=")
    found = []
    for each in stores if store is None else [store]:
        if not isinstance(each, (str, Store)):
            raise ConfigError(f"{each!r} is no store: give Store(name, key=..., value=...)")
        found.append(Store[Any, Any](each) if isinstance(each, str) else each)
    if len({each.name for each in found}) < len(found):
        raise ConfigError(f"stores={stores!r} has a store twice")
    return tuple(found)


def check_function(process: Any, stores: int) -> None:
    """Raise ConfigError unless the function can be called as a processor with so many stores."""
    name = getattr(process, "__name__", repr(process))
    form = _FORMS.get(stores, f"(record, {stores} stores, emit)")
    if not (
        inspect.iscoroutinefunction(process)
        or inspect.iscoroutinefunction(getattr(process, "__call__", None))  # noqa: B004
    ):
        raise ConfigError(f"processor {name} is not a coroutine function: async def {name}{form}")
    try:
        inspect.signature(process).bind(*range(stores + 2))
    except TypeError as error:
        raise ConfigError(
            f"processor {name} cannot be called as {name}{form}: {error}. The stores come from "
            f"store= or stores=: {stores} declared"
        ) from None


K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class Record(msgspec.Struct, Generic[K_co, V_co], frozen=True, gc=False):
    """A record of an input topic, with its key and value as the topic's types."""

    topic: str
    """The topic's name as the processor declares it, also of a repartition topic."""
    partition: int
    offset: int
    timestamp_ms: int
    """The event time, in milliseconds since 1970. -1: the record has none."""
    headers: Headers
    key: K_co
    value: V_co

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Emit(Protocol):
    """Sends a record to a topic, as part of the task's next commit.

    ``topic`` is a :class:`~kafkaclient.streams.Topic` or a name. The types of a name are the types
    that a processor of this application, or another ``Topic`` of it, declares for it; a topic that
    is not declared takes bytes. ``timestamp_ms=None`` forwards the event time of the record that is
    being processed, and ``headers=None`` its headers; ``headers=()`` sends none.

    Raises:
        TypeError: the key or value is not of the topic's type, or its serde does not return bytes.
        InvalidRecordError: the record is invalid or too large.
        StreamsError: the processor has already returned, or the task was taken away. Nothing is
            written.
    """

    @overload
    async def __call__(
        self,
        topic: Topic[K, V],
        value: V,
        key: K,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = None,
    ) -> None: ...

    @overload
    async def __call__(
        self,
        topic: Topic[K | None, V],
        value: V,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = None,
    ) -> None: ...

    @overload
    async def __call__(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = None,
    ) -> None: ...
