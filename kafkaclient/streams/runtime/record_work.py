"""Runs records through a task's processor, one at a time, and handles records that fail."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import (
    DeserializationError,
    InvalidRecordError,
    ProcessingError,
    StateStoreError,
    StreamsError,
)
from kafkaclient.streams.runtime.task_states import event_for, is_being_cancelled
from kafkaclient.streams.runtime.writers import OutgoingRecord
from kafkaclient.streams.topology import FAIL, DeadLetter

if TYPE_CHECKING:
    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.state.key_value_store import KeyValueStore
    from kafkaclient.streams.topology import ErrorHandler, Processor
    from kafkaclient.types import HeadersLike, TopicPartition

_log = logging.getLogger(__name__)

_DECODING = ("decoded", "deserializer", DeserializationError)
_PROCESSING = ("processed", "processor", ProcessingError)


class RecordWork:
    """The processing of one running task. :meth:`close` it when the task stops running."""

    def __init__(
        self, source: TopicPartition, processor: Processor, store: KeyValueStore, writer: Writer
    ) -> None:
        self._source = source
        self._processor = processor
        self._store = store
        self._writer = writer
        self._on_undecodable = processor.deserialization_exception_handler
        self._on_unprocessable = processor.processing_exception_handler
        # A skipped record must leave no output, so its output is buffered until it succeeds.
        self._buffers_output = self._on_unprocessable != FAIL
        self._buffered: list[OutgoingRecord] = []

    def close(self) -> None:
        """A processor that is still running can neither emit nor use the store any more."""
        self._buffered = []
        self._store.close()

    async def process(self, record: Any) -> None:
        """Process one record.

        Raises DeserializationError or ProcessingError if the record fails and its handler is FAIL.
        Errors of the store and retriable errors are raised unchanged. With another handler, emitted
        records are sent after the processor has returned, and their errors are raised here.
        """
        try:
            decoded = self._decode(record)
        except Exception as error:  # noqa: BLE001 - a deserializer is user code
            await self._handle(record, error, self._on_undecodable, decoding=True)
            return
        if self._buffers_output:
            self._store.mark()
        try:
            await self._processor.process(decoded, self._store, self.emit)
        except (Exception, asyncio.CancelledError) as error:
            cancelled = isinstance(error, asyncio.CancelledError) and is_being_cancelled()
            if cancelled or self._store.is_closed or not _is_record_error(error):
                raise
            if self._buffers_output:
                self._store.roll_back()
                self._buffered = []
            await self._handle(record, error, self._on_unprocessable, decoding=False)
            return
        await self._send_buffered(record)

    async def _send_buffered(self, record: Any) -> None:
        buffered, self._buffered = self._buffered, []
        for number, outgoing in enumerate(buffered):
            try:
                await self._writer.send(outgoing)
            except InvalidRecordError as error:  # such as a partition that does not exist
                self._store.roll_back()
                # Skipping the record would not undo the records that were already sent.
                handler = FAIL if number else self._on_unprocessable
                await self._handle(record, error, handler, decoding=False)
                return

    async def emit(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> None:
        """Send a record, as :meth:`kafkaclient.Producer.send`; part of the transaction, if any."""
        self._store.check_open()
        outgoing = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        if self._buffers_output:
            # Invalid records are rejected here, inside the processor. Mutable buffers are copied,
            # as in send(), in case the processor changes them later.
            self._buffered.append(self._writer.checked(outgoing))
        else:
            await self._writer.send(outgoing)

    def _decode(self, record: Any) -> Any:
        read_key, read_value = self._processor.key_deserializer, self._processor.value_deserializer
        changes = {}
        if read_key is not None and record.key is not None:
            changes["key"] = read_key(record.key)
        if read_value is not None and record.value is not None:
            changes["value"] = read_value(record.value)
        return record._replace(**changes) if changes else record

    async def _handle(
        self, record: Any, error: BaseException, handler: ErrorHandler, *, decoding: bool
    ) -> None:
        topic, partition = self._source
        step, code, failure_type = _DECODING if decoding else _PROCESSING
        what = (
            f"the record at {topic}-{partition}, offset {record.offset}, cannot be {step}: "
            f"{type(error).__name__}: {_error_text(error)}"
        )
        if handler == FAIL:
            failure = failure_type(
                f"{what}. Its offset is not committed. Correct the {code} and restart, or skip "
                "such records with on_error='skip' or on_error=DeadLetter(topic)"
            )
            failure.topic_partition, failure.offset = self._source, record.offset
            raise failure from error
        if isinstance(handler, DeadLetter):
            timestamp_ms = None if record.timestamp < 0 else record.timestamp  # -1: there is none
            headers = _dead_letter_headers(record, self._source, error)
            rest = (record.value, record.key, None, timestamp_ms, headers)
            try:
                await self._writer.send(OutgoingRecord(handler.topic, *rest))
            except InvalidRecordError as refused:
                raise StreamsError(
                    f"{what}. With the added error headers it cannot be written to {handler.topic} "
                    f"either: {refused}. Raise max.request.size in producer_options, and "
                    "max.message.bytes of that topic"
                ) from refused
            _log.warning("%s; it was written to %s", what, handler.topic)
        else:
            _log.warning("%s; it was skipped", what)


def _is_record_error(error: BaseException) -> bool:
    """Whether the record caused the error: not the disk, and not a retriable error."""
    return not isinstance(error, StateStoreError) and event_for(error) is None


def _dead_letter_headers(
    record: Any, source: TopicPartition, error: BaseException
) -> list[tuple[str, bytes]]:
    """The record's own headers plus KIP-1034's headers (``ExceptionHandlerUtils.java``)."""
    about = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "stacktrace": "".join(traceback.format_exception(error)),
        "message": _error_text(error),
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(record.offset),
    }
    added = [
        (f"__streams.errors.{name}", text.encode(errors="backslashreplace"))
        for name, text in about.items()
    ]
    return [*record.headers, *added]


def _error_text(error: BaseException) -> str:
    """The error's text, safe to log: characters that UTF-8 cannot encode are escaped, and a failing
    ``__str__`` of the application's error is caught."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception as failed:  # noqa: BLE001 - report the record's error, not this one
        return f"<its __str__ raised {type(failed).__name__}>"
