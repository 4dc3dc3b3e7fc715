"""One record after the other through a task's processor, and what happens to one that fails."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import (
    DeserializationError,
    InvalidRecordError,
    ProcessingError,
    StateStoreError,
    StreamsError,
)
from kafkaclient.streams.error_handling import (
    FAIL,
    DeadLetter,
    dead_letter_headers,
    message,
)
from kafkaclient.streams.runtime.failures import event_for
from kafkaclient.streams.runtime.writers import OutgoingRecord

if TYPE_CHECKING:
    from kafkaclient.streams.error_handling import ErrorHandler
    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.state.key_value_store import KeyValueStore
    from kafkaclient.streams.topology import Processor
    from kafkaclient.types import HeadersLike, TopicPartition

__all__ = ["RecordWork"]

_log = logging.getLogger(__name__)


class RecordWork:
    """Of a task that runs, until it does not run any more: then :meth:`close` it."""

    def __init__(
        self, source: TopicPartition, processor: Processor, store: KeyValueStore, writer: Writer
    ) -> None:
        self._source = source
        self._processor = processor
        self._store = store
        self._writer = writer
        self._is_closed = False
        # A record that is skipped leaves no trace, so what it emits has to be buffered back.
        self._buffers_output = processor.processing_exception_handler != FAIL
        self._buffered: list[OutgoingRecord] = []

    def close(self) -> None:
        """A processor that is still at a record can neither emit nor touch the store any more."""
        self._is_closed = True
        self._buffered = []
        self._store.close()

    async def process(self, record: Any) -> None:
        """Process one record.

        Raises DeserializationError or ProcessingError if the record fails and its handler is FAIL.
        Errors of the store, and errors that pass when the task tries again, are raised unchanged.
        With another handler, errors of emitted records are, too: those are sent after the
        processor has returned.
        """
        try:
            decoded = self._decode(record)
        except Exception as error:  # noqa: BLE001 - a deserializer is the application's
            await self._handle(
                record, error, self._processor.deserialization_exception_handler, decoding=True
            )
            return
        if self._buffers_output:
            self._store.mark()
        try:
            await self._processor.process(decoded, self._store, self.emit)
        except (Exception, asyncio.CancelledError) as error:
            if _is_being_cancelled(error) or self._is_closed or not _is_record_error(error):
                raise
            if self._buffers_output:
                self._store.roll_back()
                self._buffered = []
            await self._handle(
                record, error, self._processor.processing_exception_handler, decoding=False
            )
            return
        await self._send_buffered(record)

    async def _send_buffered(self, record: Any) -> None:
        buffered, self._buffered = self._buffered, []
        for number, outgoing in enumerate(buffered):
            try:
                await self._writer.send(outgoing)
            except InvalidRecordError as error:  # a partition that the topic does not have, say
                self._store.roll_back()
                # What was sent before cannot be taken back by skipping the record.
                handler = FAIL if number else self._processor.processing_exception_handler
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
        """Send a record, as :meth:`kafkaclient.Producer.send` does. Exactly once, it becomes
        visible with the commit."""
        if self._is_closed:
            raise StreamsError("the task was taken away while this record was processed")
        outgoing = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        if self._buffers_output:
            # Refused here, the processor learns of it, and its handler is asked. A buffer that the
            # processor changes afterwards is copied, as it is when it is sent at once.
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
        return replace(record, **changes) if changes else record

    async def _handle(
        self, record: Any, error: BaseException, handler: ErrorHandler, *, decoding: bool
    ) -> None:
        topic, partition = self._source
        what = (
            f"the record at {topic}-{partition}, offset {record.offset}, cannot be "
            f"{'decoded' if decoding else 'processed'}: {type(error).__name__}: {message(error)}"
        )
        if handler == FAIL:
            failure = (DeserializationError if decoding else ProcessingError)(
                f"{what}. Its offset is not committed. Correct the "
                f"{'deserializer' if decoding else 'processor'} and start again, or leave such "
                "records out: on_error='skip', or on_error=DeadLetter(topic)"
            )
            failure.topic_partition, failure.offset = self._source, record.offset
            raise failure from error
        if isinstance(handler, DeadLetter):
            timestamp_ms = None if record.timestamp < 0 else record.timestamp  # -1: it has none
            headers = dead_letter_headers(record, self._source, error)
            try:
                await self._writer.send(
                    OutgoingRecord(
                        handler.topic, record.value, record.key, None, timestamp_ms, headers
                    )
                )
            except InvalidRecordError as refused:
                raise StreamsError(
                    f"{what}. It cannot be written to {handler.topic} either, with the headers "
                    f"that say why: {refused}. A larger max.request.size goes into "
                    "producer_options, and max.message.bytes of the topic has to allow it"
                ) from refused
            _log.warning("%s; it was written to %s", what, handler.topic)
        else:
            _log.warning("%s; it was skipped", what)


def _is_being_cancelled(error: BaseException) -> bool:
    """Whether this task is being cancelled, and not only something that the processor awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _is_record_error(error: BaseException) -> bool:
    """Whether the record is to blame: not the disk, and nothing that passes."""
    return not isinstance(error, StateStoreError) and event_for(error) is None
