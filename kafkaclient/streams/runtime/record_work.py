"""Runs the records of one input partition through its processor, one at a time, and handles records
that fail."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.dead_letters import dead_letter_headers, error_text
from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    DeserializationError,
    InvalidRecordError,
    KafkaError,
    MetadataTimeoutError,
    ProcessingError,
    StreamsError,
    UnknownTopicError,
)
from kafkaclient.producer.batches.record import header_pairs
from kafkaclient.streams.declarations import FAIL, DeadLetter, Record, RepartitionTopic, Topic
from kafkaclient.streams.runtime.outputs import OutgoingRecord
from kafkaclient.streams.serdes import BYTES_OR_NONE
from kafkaclient.streams.tasks import is_recoverable
from kafkaclient.topic_names import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.streams.declarations import ErrorHandler
    from kafkaclient.streams.key_value_store import KeyValueStore
    from kafkaclient.streams.runtime.outputs import Output
    from kafkaclient.streams.serdes import TypeCodec, Write
    from kafkaclient.streams.topology import Processor, Topology
    from kafkaclient.types import HeadersLike, TopicPartition

_log = logging.getLogger(__name__)

_DECODING = ("decoded", "types of its topic or the serde", DeserializationError)
_PROCESSING = ("processed", "processor", ProcessingError)
_NO_OUTPUT = (MetadataTimeoutError, UnknownTopicError)


class _Output(NamedTuple):
    topic: str
    """The checked name on brokers."""
    key: TypeCodec
    value: TypeCodec
    write_key: Write
    write_value: Write
    with_context: bool
    """Whether a codec has to be called by ``write_for``."""


class Outputs:
    """The names and types of the topics that processors emit to."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[Any, _Output] = {}

    def __getitem__(self, topic: str | Topic[Any, Any]) -> _Output:
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = self._output(topic)
        return found

    def _output(self, topic: str | Topic[Any, Any]) -> _Output:
        declared = topic if isinstance(topic, Topic) else self._topology.inputs.get(topic)
        if declared is None:
            check_topic_name(topic)
            name, key, value = str(topic), BYTES_OR_NONE, BYTES_OR_NONE
        else:
            internal = self._topology.repartition_topics
            if isinstance(declared, RepartitionTopic) and declared.name not in internal:
                raise ConfigError(
                    f"emit({declared!r}): no processor reads this repartition topic; those that "
                    f"are read are {', '.join(sorted(internal)) or 'none'}. Declare it as the "
                    "input of a processor, or emit to a Topic"
                )
            name = self._topology.topic_name(declared.name)
            key, value = declared.key, declared.value
        with_context = key.with_context or value.with_context
        return _Output(name, key, value, key.writer, value.writer, with_context)


class _Emit:
    """:class:`~kafkaclient.streams.Emit` for one record."""

    failure: KafkaError | None = None
    """A retriable error of a serde, such as one that waits for its registry."""
    no_output: ConfigError | None = None
    """The error of a topic that cannot be emitted to."""

    def __init__(self, work: RecordWork, record: Record[Any, Any]) -> None:
        self.emitted: list[OutgoingRecord] = []
        self._work: RecordWork | None = work
        self._record = record

    def close(self) -> None:
        """The processor has returned."""
        self._work = None

    async def __call__(
        self,
        topic: str | Topic[Any, Any],
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = None,
    ) -> None:
        work, record = self._work, self._record
        if work is None:
            raise StreamsError(
                f"emit({topic!r}) is called after the processor has returned: nothing is written. "
                "A processor must wait for all its emits"
            )
        try:
            output = work.outputs[topic]
        except ConfigError as error:
            self.no_output = error
            raise
        if headers is None:
            headers = record.headers
        is_usual = partition is None and timestamp_ms is None and not headers
        if timestamp_ms is None and record.timestamp_ms >= 0:
            timestamp_ms = record.timestamp_ms
        try:
            if output.with_context:
                is_usual = False
                headers = list(header_pairs(headers))
                key = await output.key.write_for(key, output.topic, "key", headers)
                value = await output.value.write_for(value, output.topic, "value", headers)
            else:
                key, value = output.write_key(key), output.write_value(value)
        except KafkaError as error:
            if is_recoverable(error):
                self.failure = error
            raise
        except TypeError as error:
            raise TypeError(
                f"a record for topic {output.topic!r} is not of the types (key="
                f"{output.key.declared}, value={output.value.declared}): {error}"
            ) from error
        work.check_open()
        size = 0 if key is None else len(key)
        if value is not None:
            size += len(value)
        is_usual = is_usual and size <= work.small_bytes
        outgoing = OutgoingRecord(output.topic, value, key, partition, timestamp_ms, headers)
        self.emitted.append(outgoing if is_usual else work.checked(outgoing))


def cancelled_error(partition: int, record: Any) -> StreamsError:
    """The application cancelled the asyncio task that processes its records. ``record``: the last
    one of the partition that was started, if any."""
    which = f"{record.topic}-{partition}, offset {record.offset}" if record else "none yet"
    return StreamsError(
        "the application cancelled the asyncio task that processes its records; the last one that "
        f"was started: {which}. A processor must not cancel its asyncio task, nor have it "
        "cancelled later: use asyncio.timeout"
    )


class RecordWork:
    """The processing of one input partition of a running task. :meth:`close` it when the task stops
    running. ``on_dropped`` is called with the offset of a record that is skipped or becomes a dead
    letter."""

    def __init__(
        self,
        source: TopicPartition,
        topic: Topic[Any, Any],
        processor: Processor,
        stores: Mapping[str, KeyValueStore[Any, Any]],
        output: Output,
        outputs: Outputs,
        on_dropped: Callable[[int], None],
    ) -> None:
        self._on_dropped = on_dropped
        self.outputs = outputs
        self._source = source
        self._topic_name = topic.name
        self._topic = topic
        self._read_key = topic.key.reader
        self._read_value = topic.value.reader
        self._process = processor.process
        self._stores = tuple(stores[store.name] for store in processor.stores)
        self._output = output
        self.small_bytes = output.small_bytes
        self._is_closed = False
        self._on_undecodable = processor.deserialization_exception_handler
        self._on_unprocessable = processor.processing_exception_handler

    def close(self) -> None:
        """A processor that is still running cannot emit any more."""
        self._is_closed = True

    async def process(self, record: Any) -> list[OutgoingRecord]:
        """Process one record, as it was fetched. Returns what is to be sent: all topics are known
        then. A failed record leaves no output, and a commit never has a part of a record's.

        Raises DeserializationError or ProcessingError if the record fails and its handler is FAIL.
        Disk errors, retriable errors and denied rights of the output, and what is no Exception are
        raised unchanged; CancelledError if the current asyncio task itself is cancelled.
        """
        try:
            key, value = record.key, record.value
            if self._read_key is not None:
                key = self._read_key(key)
            if self._read_value is not None:
                value = self._read_value(value)
        except Exception as error:  # noqa: BLE001 - a deserializer is user code
            explained = self._explain(record, error)
            return await self._handle(record, explained, self._on_undecodable, decoding=True)
        decoded: Record[Any, Any] = Record(
            self._topic_name,
            self._source.partition,
            record.offset,
            record.timestamp,
            record.headers,
            key,
            value,
        )
        emit = _Emit(self, decoded)
        has_returned = False
        try:
            await self._process(decoded, *self._stores, emit)
            emit.close()
            has_returned = True
            if emit.emitted:
                await self._output.prepare(emit.emitted)
        except BaseException as error:
            emit.close()
            if self._is_closed:
                raise
            for store in self._stores:
                store.roll_back()
            if not self._is_record_error(error, emit, has_returned):
                raise
            runner = asyncio.current_task()
            if runner is not None and runner.cancelling():
                raise asyncio.CancelledError from error
            # Every record would be skipped, not this one only.
            has_no_output = error is emit.no_output or (
                has_returned and isinstance(error, _NO_OUTPUT)
            )
            handler = FAIL if has_no_output else self._on_unprocessable
            return await self._handle(record, error, handler, decoding=False)
        return emit.emitted

    async def refused(self, record: Any, error: Exception) -> list[OutgoingRecord]:
        """Handle a record instead of processing it again: the broker refused what was written for
        it. Otherwise as :meth:`process`."""
        return await self._handle(record, error, self._on_unprocessable, decoding=False)

    def _is_record_error(self, error: BaseException, emit: _Emit, has_returned: bool) -> bool:
        """Whether the error is the record's: not the disk's, nor one of the output that other
        records will have too. All that the processor itself raises is the record's error."""
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            return False
        if has_returned:
            return not (isinstance(error, AuthorizationError) or is_recoverable(error))
        return error is not emit.failure and all(error is not each.failure for each in self._stores)

    def _explain(self, record: Any, error: Exception) -> Exception:
        """The error of the slower, more helpful way to decode the record."""
        try:
            self._topic.key.read(record.key)
            self._topic.value.read(record.value)
        except Exception as explained:  # noqa: BLE001 - a deserializer is user code
            return explained
        return error

    def check_open(self) -> None:
        """Raise StreamsError after :meth:`close`."""
        if self._is_closed:
            raise StreamsError(
                "the task was taken away from this instance while it processed this record"
            )

    def checked(self, outgoing: OutgoingRecord) -> OutgoingRecord:
        """A record that the processor emits, to be sent when it has returned. Invalid records are
        rejected here, inside the processor."""
        return self._output.checked(outgoing)

    async def _handle(
        self, record: Any, error: BaseException, handler: ErrorHandler, *, decoding: bool
    ) -> list[OutgoingRecord]:
        """The record's dead letter, if it gets one."""
        topic, partition = self._source
        step, code, failure_type = _DECODING if decoding else _PROCESSING
        what = (
            f"the record at {topic}-{partition}, offset {record.offset}, cannot be {step}: "
            f"{type(error).__name__}: {error_text(error)}"
        )
        if handler == FAIL:
            failure = failure_type(
                f"{what}. Its offset is not committed. Correct the {code} and restart, or skip "
                "such records with on_error='skip' or on_error=DeadLetter(topic)"
            )
            failure.topic_partition, failure.offset = self._source, record.offset
            raise failure from error
        self._on_dropped(record.offset)
        if isinstance(handler, DeadLetter):
            timestamp_ms = None if record.timestamp < 0 else record.timestamp  # -1: there is none
            if isinstance(error, BrokerError) and error.code == ErrorCode.INVALID_TIMESTAMP:
                timestamp_ms = None  # now: the dead letter topic may refuse it, too
            added = dead_letter_headers(topic, partition, record.offset, error)
            headers = [*record.headers, *added]
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
