"""Dead letters: records that failed, written to a topic with the headers of KIP-1034."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.errors import ConfigError, DeserializationError
from kafkaclient.topic_names import check_topic_name

if TYPE_CHECKING:
    from kafkaclient.types import Headers


class BytesProducer(Protocol):
    """What :class:`DeadLetters` needs of a :class:`~kafkaclient.Producer`."""

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> object: ...


class DeadLetters:
    """Writes records that failed to ``topic``: a consumer's ``on_error``, or called by a handler::

        dead_letters = DeadLetters(producer, "orders-dead")
        async with Consumer(..., on_error=dead_letters) as consumer:
            async for record in consumer:
                try:
                    await handle(record)
                except ValueError as error:
                    await dead_letters(record, error)

    A dead letter has the record's key and value in bytes, its timestamp, its headers, and the
    headers of KIP-1034: ``__streams.errors.exception``, ``.stacktrace``, ``.message``, ``.topic``,
    ``.partition`` and ``.offset``. ``producer``: a started :class:`~kafkaclient.Producer` without
    serializers. In a transaction of it, a dead letter is a part of the transaction.

    Raises:
        ConfigError: the producer has serializers.
        InvalidTopicError: ``topic`` cannot be a topic's name.
    """

    def __init__(self, producer: BytesProducer, topic: str) -> None:
        check_topic_name(topic)
        config = getattr(producer, "config", None)
        for name in ("key_serializer", "value_serializer"):
            if getattr(config, name, None) is not None:
                raise ConfigError(
                    f"DeadLetters writes records in bytes: give it a producer without {name}"
                )
        self._producer = producer
        self.topic: str = topic

    def __repr__(self) -> str:
        return f"DeadLetters(topic={self.topic!r})"

    async def __call__(self, record: Any, error: BaseException) -> None:
        """Write ``record``, which failed with ``error``; returns when the brokers have it. Raises
        as :meth:`.Producer.send_and_wait`: the record is then no dead letter, or may be one."""
        raw = record.raw
        if isinstance(error, DeserializationError) and error.__cause__ is not None:
            error = error.__cause__
        added = dead_letter_headers(raw.topic, raw.partition, raw.offset, error)
        await self._producer.send_and_wait(
            self.topic,
            raw.value,
            raw.key,
            timestamp_ms=None if raw.timestamp < 0 else raw.timestamp,  # -1: there is none
            headers=(*raw.headers, *added),
        )


def dead_letter_headers(topic: str, partition: int, offset: int, error: BaseException) -> Headers:
    """The headers of KIP-1034 for a record that failed (Java: ``ExceptionHandlerUtils``)."""
    about = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "stacktrace": "".join(traceback.format_exception(error)),
        "message": error_text(error),
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
    }
    return tuple(
        (f"__streams.errors.{name}", text.encode(errors="backslashreplace"))
        for name, text in about.items()
    )


def error_text(error: BaseException) -> str:
    """The error's text, safe to log: characters that UTF-8 cannot encode are escaped, and a failing
    ``__str__`` of the application's error is caught."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception as failed:  # noqa: BLE001 - report the record's error, not this one
        return f"<its __str__ raised {type(failed).__name__}>"
