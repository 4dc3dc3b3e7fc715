"""Runs records through a task's processor, one at a time, and handles records that fail."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import (
    DeserializationError,
    InvalidRecordError,
    MetadataTimeoutError,
    ProcessingError,
    StateStoreError,
    StreamsError,
)
from kafkaclient.streams.runtime.outputs import OutgoingRecord
from kafkaclient.streams.runtime.task_states import event_for, is_being_cancelled
from kafkaclient.streams.topology import FAIL, DeadLetter

if TYPE_CHECKING:
    from kafkaclient.streams.runtime.outputs import Output
    from kafkaclient.streams.state.key_value_store import KeyValueStore
    from kafkaclient.streams.topology import ErrorHandler, Processor
    from kafkaclient.types import HeadersLike, TopicPartition

_log = logging.getLogger(__name__)

_DECODING = ("decoded", "deserializer", DeserializationError)
_PROCESSING = ("processed", "processor", ProcessingError)


class _Emitted:
    """What one record emits, until its processor returns. A record that fails leaves no output, and
    a commit never contains a part of a record's output."""

    def __init__(self, output: Output, store: KeyValueStore) -> None:
        self.records: list[OutgoingRecord] = []
        self.is_closed = False
        self._output = output
        self._store = store

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
        """Send a record, as :meth:`kafkaclient.Producer.send`, when the processor has returned."""
        self._store.check_open()
        if self.is_closed:
            raise StreamsError(
                f"nothing was emitted to {topic!r}: the processor has returned already. Await "
                "everything that emits before the processor returns"
            )
        outgoing = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        # Invalid records are rejected here, inside the processor. Mutable buffers are copied, as
        # in send(), in case the processor changes them later.
        self.records.append(self._output.checked(outgoing))


class RecordWork:
    """The processing of one running task. :meth:`close` it when the task stops running."""

    def __init__(
        self, source: TopicPartition, processor: Processor, store: KeyValueStore, output: Output
    ) -> None:
        self._source = source
        self._processor = processor
        self._store = store
        self._output = output
        self._on_undecodable = processor.deserialization_exception_handler
        self._on_unprocessable = processor.processing_exception_handler

    def close(self) -> None:
        """A processor that is still running can neither emit nor use the store any more."""
        self._store.close()

    async def process(self, record: Any) -> list[OutgoingRecord]:
        """Process one record. Returns what is to be sent; all topics are known then.

        Raises DeserializationError or ProcessingError if the record fails and its handler is FAIL.
        Errors of the store and retriable errors are raised unchanged.
        """
        try:
            decoded = self._decode(record)
        except Exception as error:  # noqa: BLE001 - a deserializer is user code
            return await self._handle(record, error, self._on_undecodable, decoding=True)
        emitted = _Emitted(self._output, self._store)
        try:
            await self._processor.process(decoded, self._store, emitted.emit)
            emitted.is_closed = True
            if emitted.records:
                await self._output.prepare(emitted.records)
        except (Exception, asyncio.CancelledError) as error:
            emitted.is_closed = True
            cancelled = isinstance(error, asyncio.CancelledError) and is_being_cancelled()
            if cancelled or self._store.is_closed or not _is_record_error(error):
                raise
            self._store.roll_back()
            # Skipping all records whose output topic is missing would lose them in silence.
            handler = FAIL if isinstance(error, MetadataTimeoutError) else self._on_unprocessable
            return await self._handle(record, error, handler, decoding=False)
        return emitted.records

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
    ) -> list[OutgoingRecord]:
        """The record's dead letter, if it gets one."""
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
                dead_letter = self._output.checked(OutgoingRecord(handler.topic, *rest))
                await self._output.prepare([dead_letter])
            except InvalidRecordError as refused:
                raise StreamsError(
                    f"{what}. With the added error headers it cannot be written to {handler.topic} "
                    f"either: {refused}. Raise max.request.size in producer_options, and "
                    "max.message.bytes of that topic"
                ) from refused
            _log.warning("%s; it is written to %s", what, handler.topic)
            return [dead_letter]
        _log.warning("%s; it was skipped", what)
        return []


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
