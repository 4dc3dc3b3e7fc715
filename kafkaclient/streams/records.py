"""What a processor gets: the record, and the function that emits records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import msgspec

from kafkaclient.types import Headers, TopicPartition

if TYPE_CHECKING:
    from kafkaclient.streams.declarations import Topic
    from kafkaclient.types import HeadersLike

K = TypeVar("K")
V = TypeVar("V")
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
