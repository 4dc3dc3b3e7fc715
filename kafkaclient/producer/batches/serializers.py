"""Applies a producer's serializers to the key and the value of a record.

``serializers.pxd`` has the C types.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kafkaclient.errors import InvalidRecordError, SerializationError
from kafkaclient.producer.user_code import text_of_user_error
from kafkaclient.types import Value_contra

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.types import Buffer, HeadersLike

__all__ = ["AwaitedFields", "SerializationContext", "Serializers", "function_of"]

_BUFFERS = (bytes, bytearray, memoryview, NoneType)


class SerializationContext:
    """The record that a serializer or deserializer works for (confluent-kafka:
    ``SerializationContext``).

    ``topic`` is the record's topic; it is empty for ``create_batch``, whose records have no topic
    yet. ``field`` says which part of the record is serialized. ``headers`` has the record's headers
    in pairs. The serializer can add to the list, and change it: the record is sent with the headers
    that are in it when the last serializer has finished. The key is serialized first.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(
        self,
        topic: str,
        field: Literal["key", "value"],
        headers: list[tuple[str, Buffer | None]],
    ) -> None:
        self.topic: str = topic
        self.field = field
        self.headers: list[tuple[str, Buffer | None]] = headers

    def __repr__(self) -> str:
        return f"SerializationContext(topic={self.topic!r}, field={self.field!r})"


class Serializer(Protocol[Value_contra]):
    """A serializer that gets the record's topic and headers (Java: ``Serializer``).

    It is given as ``key_serializer`` or ``value_serializer``. An object that can be called is used
    as a function of the key or value alone, also if it has a method ``serialize``.
    """

    def serialize(
        self, value: Value_contra, context: SerializationContext, /
    ) -> Buffer | Awaitable[Buffer | None] | None:
        """The key or value, which is not None, in bytes, or an awaitable of the bytes.

        An awaitable makes the record wait, and later records of the topic behind it. So return one
        only while there is something to wait for, such as the first use of a schema.
        """
        ...


class Serializers:
    """The serializers for keys and values."""

    __slots__ = ("_key", "_key_gets_context", "_value", "_value_gets_context")

    def __init__(self, config: ProducerConfig) -> None:
        self._key, self._key_gets_context = function_of(config.key_serializer, "serialize")
        self._value, self._value_gets_context = function_of(config.value_serializer, "serialize")

    @classmethod
    def of(cls, config: ProducerConfig) -> Serializers | None:
        """None: the producer has no serializers; keys and values are in bytes."""
        plain = config.key_serializer is None and config.value_serializer is None
        return None if plain else cls(config)

    @property
    def get_context(self) -> bool:
        """Whether one of them gets the headers, and may change them."""
        return self._key_gets_context or self._value_gets_context

    def apply(self, topic: str, value: Any, key: Any, headers: HeadersLike) -> tuple[Any, Any, Any]:
        """(value, key, headers) after the serializers, which do not get None. The value is an
        :class:`AwaitedFields` if a serializer has returned an awaitable.

        Raises:
            SerializationError: a serializer raised, or its result is not a buffer, nor None.
            InvalidRecordError: the headers are neither pairs nor a mapping.
        """
        listed: Any = headers
        if self._key_gets_context or self._value_gets_context:
            listed = _headers_list(topic, headers) if headers else []
        if key is not None and self._key is not None:
            try:
                if self._key_gets_context:
                    key = self._key(key, SerializationContext(topic, "key", listed))
                else:
                    key = self._key(key)
            except (Exception, CancelledError) as error:
                raise failed(topic, "key", error) from error
            if key.__class__ is not bytes and not _in_bytes(topic, "key", key):
                return self._awaited(topic, value, key, listed, "key"), None, ()
        if value is not None and self._value is not None:
            try:
                if self._value_gets_context:
                    value = self._value(value, SerializationContext(topic, "value", listed))
                else:
                    value = self._value(value)
            except (Exception, CancelledError) as error:
                raise failed(topic, "value", error) from error
            if value.__class__ is not bytes and not _in_bytes(topic, "value", value):
                return self._awaited(topic, value, key, listed, "value"), None, ()
        return value, key, listed

    def _awaited(
        self, topic: str, value: Any, key: Any, headers: Any, field: Literal["key", "value"]
    ) -> AwaitedFields:
        if not (self._key_gets_context or self._value_gets_context):
            headers = _headers_list(topic, headers or ())  # an iterator can be read only once
        return AwaitedFields(self, topic, value, key, headers, field)


class AwaitedFields:
    """A record's key and value. The one named by ``field`` is still an awaitable."""

    __slots__ = ("_key", "_serializers", "_started", "_topic", "_value", "field", "headers")

    def __init__(
        self,
        serializers: Serializers,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        field: Literal["key", "value"],
    ) -> None:
        self.field = field
        self._serializers, self._topic, self._started = serializers, topic, False
        self._value, self._key, self.headers = value, key, headers

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close an awaitable that is not needed: a coroutine that is never awaited warns."""
        close = None if self._started else getattr(self._awaitable, "close", None)
        if close is not None:
            close()

    @property
    def _awaitable(self) -> Any:
        return self._key if self.field == "key" else self._value

    def not_finished(self, why: str) -> SerializationError:
        """The error for a serializer that has not finished."""
        return SerializationError(
            f"the {self.field} of {record_text(self._topic)} was not serialized: {why}; the record "
            "was not sent"
        )

    async def finish(self) -> tuple[Any, Any, Any]:
        """(value, key, headers) in bytes; raises what :meth:`Serializers.apply` raises. Call it
        once."""
        self._started = True
        try:
            item = await self._awaitable
        except Exception as error:
            raise failed(self._topic, self.field, error) from error
        if not _in_bytes(self._topic, self.field, item):
            raise _refused(self._topic, self.field, item)
        if self.field == "value":
            return item, self._key, self.headers
        value, _, headers = self._serializers.apply(self._topic, self._value, None, self.headers)
        if isinstance(value, AwaitedFields):
            self.field = "value"
            value, _, headers = await value.finish()
        return value, item, headers


def record_text(topic: str) -> str:
    """How error messages name a record; ``topic`` is empty for a record of ``create_batch``."""
    return f"a record for topic {topic!r}" if topic else "a record of a batch"


def failed(topic: str, field: str, error: object) -> SerializationError:
    """The error for a key or value whose serializer has failed with ``error``."""
    return SerializationError(
        f"the {field} of {record_text(topic)} could not be serialized: "
        f"{text_of_user_error(error) if isinstance(error, BaseException) else error}"
    )


def _refused(topic: str, field: str, item: object) -> SerializationError:
    return SerializationError(
        f"the {field} of {record_text(topic)}: the serializer gave {type(item).__name__}, not "
        "bytes or None"
    )


def function_of(serializer: Any, method: str) -> tuple[Callable[..., Any] | None, bool]:
    """The function of a serializer or deserializer, and whether it is ``method`` and gets a
    context."""
    if serializer is None or callable(serializer):
        return serializer, False
    return getattr(serializer, method), True


def _in_bytes(topic: str, field: str, item: object) -> bool:
    """Whether a serializer's result is a buffer or None; False: it is an awaitable. Raises
    SerializationError if it is anything else."""
    if isinstance(item, _BUFFERS):
        return True
    if isinstance(item, Awaitable):
        return False
    raise _refused(topic, field, item)


def _headers_list(topic: str, headers: Any) -> list[Any]:
    """The headers as a list of its own, which serializers may change."""
    try:
        return list(headers.items() if isinstance(headers, Mapping) else headers)
    except TypeError as error:
        raise InvalidRecordError(f"{record_text(topic)}: {error}") from error
