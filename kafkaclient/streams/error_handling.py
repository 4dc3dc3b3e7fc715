"""What happens to a record that cannot be decoded or processed.

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
    "dead_letter_headers",
    "error_text",
    "validate_handler",
]

FAIL: Final = "fail"  # end the application with an error that names the record
SKIP: Final = "skip"  # log the record and continue; CONTINUE in Kafka Streams


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Write the record to ``topic`` and continue with the next one.

    The record keeps its key, value, timestamp and headers, as bytes. The headers of KIP-1034 are
    added: ``__streams.errors.exception``, ``.stacktrace``, ``.message``, ``.topic``, ``.partition``
    and ``.offset``. With ``exactly_once_v2`` the record is written in the task's transaction. The
    topic must exist when the application starts.
    """

    topic: str


ErrorHandler: TypeAlias = Literal["fail", "skip"] | DeadLetter


def validate_handler(handler: Any, option: str) -> ErrorHandler:
    """The checked handler. Raises :class:`~kafkaclient.errors.ConfigError` with ``option``."""
    if isinstance(handler, DeadLetter) and handler.topic:
        return handler
    if handler in (FAIL, SKIP):
        return handler  # type: ignore[no-any-return]
    raise ConfigError(
        f"{option} is {handler!r}; it must be {FAIL!r}, {SKIP!r} or DeadLetter('topic')"
    )


def dead_letter_headers(
    record: Any, source: TopicPartition, error: BaseException
) -> Sequence[tuple[str, bytes]]:
    """The record's own headers plus those of KIP-1034 (``ExceptionHandlerUtils.java``)."""
    about = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "stacktrace": "".join(traceback.format_exception(error)),
        "message": error_text(error),
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(record.offset),
    }
    added = [
        (f"__streams.errors.{name}", text.encode(errors="backslashreplace"))
        for name, text in about.items()
    ]
    return [*record.headers, *added]


def error_text(error: BaseException) -> str:
    """The error's text, safe to log: characters that UTF-8 cannot encode are escaped, and a failing
    ``__str__`` of the application's error is caught."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception as failed:  # noqa: BLE001 - report the record's error, not this one
        return f"<its __str__ raised {type(failed).__name__}>"
