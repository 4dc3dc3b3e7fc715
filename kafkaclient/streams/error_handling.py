"""What a processor does with a record that cannot be decoded, or at which it fails.

Kafka Streams: ``deserialization.exception.handler``, ``processing.exception.handler`` and
``errors.dead.letter.queue.topic.name`` (KIP-161, KIP-1033, KIP-1034).
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.types import TopicPartition

__all__ = [
    "FAIL",
    "SKIP",
    "DeadLetter",
    "ErrorHandler",
    "validate_handler",
    "dead_letter_headers",
    "message",
]

FAIL: Final = "fail"
"""End the application with an error that names the record."""
SKIP: Final = "skip"
"""Log the record and go on with the next one. Kafka Streams calls this ``CONTINUE``."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Write the record to ``topic`` and go on with the next one.

    The record keeps its key, value, timestamp and headers, as bytes. The headers of KIP-1034 are
    added: ``__streams.errors.exception``, ``.stacktrace``, ``.message``, ``.topic``, ``.partition``
    and ``.offset``. With ``exactly_once_v2`` the record is written in the task's transaction. The
    topic must exist when the application starts.
    """

    topic: str


ErrorHandler: TypeAlias = Literal["fail", "skip"] | DeadLetter


def validate_handler(handler: Any, option: str) -> ErrorHandler:
    """Raises :class:`~kafkaclient.errors.ConfigError`, which names ``option``."""
    if isinstance(handler, DeadLetter) and handler.topic:
        return handler
    if handler in (FAIL, SKIP):
        return handler  # type: ignore[no-any-return]
    raise ConfigError(
        f"{option} is {handler!r}; it must be {FAIL!r}, {SKIP!r} or DeadLetter('a topic')"
    )


def dead_letter_headers(
    record: Any, source: TopicPartition, error: BaseException
) -> Sequence[tuple[str, bytes]]:
    """The record's own headers, and those of KIP-1034 (``ExceptionHandlerUtils.java``)."""
    about = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "stacktrace": "".join(traceback.format_exception(error)),
        "message": message(error),
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(record.offset),
    }
    added = [
        (f"__streams.errors.{name}", text.encode(errors="backslashreplace"))
        for name, text in about.items()
    ]
    return [*record.headers, *added]


def message(error: BaseException) -> str:
    """What the error says, as text that any log can hold: it may quote what UTF-8 cannot encode,
    such as half of a surrogate pair. Its ``__str__`` is the application's, and may fail itself."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception as failed:  # noqa: BLE001 - the record's error is what has to be told
        return f"<its __str__ raised {type(failed).__name__}>"
