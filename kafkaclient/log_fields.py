"""The fields of log messages, for programs that read logs."""

from __future__ import annotations

from kafkaclient.errors import KafkaError

NAMES = ("topic", "partition", "broker", "code", "maybe_written", "client_id")
"""All fields. None of these names is a standard attribute of ``logging.LogRecord``."""


def log_fields(
    error: BaseException | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker: int | None = None,
    maybe_written: bool | None = None,
    client_id: str | None = None,
) -> dict[str, object]:
    """``extra=`` for a log call: what the message is about. A field that does not apply is left
    out.

    ``broker`` is a node id; negative: a bootstrap server. ``partition`` -1: not chosen yet (then
    left out). ``maybe_written``: of failed records, whether they may be in the log all the same.
    ``code`` is the broker's error code in ``error``. ``client_id``: of the client that the message
    is from, where nothing else in the message tells.
    """
    code = error.code if isinstance(error, KafkaError) else None
    if partition is not None and partition < 0:
        partition = None
    values = (topic or None, partition, broker, code, maybe_written, client_id)
    return {name: value for name, value in zip(NAMES, values, strict=True) if value is not None}
