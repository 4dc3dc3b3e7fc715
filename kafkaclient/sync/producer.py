"""``SyncProducer``: the producer for threads that run no event loop."""

from __future__ import annotations

import threading
import time
import warnings
from concurrent.futures import CancelledError
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, overload

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import (
    ConfigError,
    FlushTimeoutError,
    ProducerClosedError,
    counted,
)
from kafkaclient.metrics_push.points import ApplicationMetrics
from kafkaclient.net.off_loop import guard
from kafkaclient.producer.batches.record import RawRecord
from kafkaclient.producer.producer import Producer
from kafkaclient.sync.futures import SendFuture, check_may_wait, within
from kafkaclient.sync.handover import GivenColumns, Many, Serializing
from kafkaclient.sync.observation_api import SyncObservationMixin
from kafkaclient.sync.thread import ProducerThread, open_threads
from kafkaclient.time_limit import monotonic
from kafkaclient.types import Key_contra, Value_contra

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from random import Random
    from typing import Unpack

    from kafkaclient.config.keywords import ProducerKeywords, SerializingKeywords
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.sync.handover import One
    from kafkaclient.types import Buffer, BulkMetadata, HeadersLike, RecordMetadata

T = TypeVar("T")

_ENTRY_BYTES = 512  # what a record takes in the handover besides its key and value
_OVERHEAD = 128  # bytes: a batch with one record takes less besides key, value and headers
_KNOWN_TOPICS = 10_000  # names that were checked are kept, up to this number
_HANDOVER_S = 0.1  # the producer's thread has at least this long to take records


class SyncProducer(SyncObservationMixin, Generic[Key_contra, Value_contra]):
    """Publishes records to Kafka from any thread of a program without an event loop: Django,
    Celery, scripts.

    ::

        with SyncProducer("localhost:9092") as producer:
            future = producer.send("flights", b"value", key=b"UA")
            print(future.result().offset)

    A :class:`~kafkaclient.Producer` runs in an event loop on one thread of its own. Parameters are
    those of :class:`~kafkaclient.Producer`, except ``transactional_id``. ``exit_timeout_s``: how
    long the end of the interpreter waits for records without an outcome, in seconds; a warning is
    logged if that is too short.

    Type checkers know the types of keys and values from the serializers. Without serializers they
    are bytes. ``SyncProducer`` alone, as in an annotation, takes any.

    Creating a SyncProducer starts neither thread nor connection; the first call does. All methods
    may be called by many threads at once. Records of one thread to one partition keep their order.
    Serializers run in the calling thread; it waits for an async one up to ``max.block.ms``.
    ``on_delivery``, ``on_error``, a custom partitioner and the futures' callbacks run in the
    producer's thread, which sends nothing meanwhile. Records that wait for a topic's metadata hold
    up the later records of this topic, but no other topic. A record that waits for buffer space
    holds up its thread, but no other thread.

    In a forked child (gunicorn, Celery, multiprocessing) the next call starts a producer of the
    child's own. Records that the parent has sent stay the parent's. A SyncProducer cannot be
    copied or pickled. One that is dropped without :meth:`close` warns (ResourceWarning), and is
    closed in the background.

    Raises:
        ConfigError: as :class:`~kafkaclient.Producer`, or ``transactional_id`` was given.
    """

    # Class-level defaults: __del__ also runs when __init__ raised.
    _thread: ProducerThread | None = None
    _closed = False

    @overload
    def __init__(
        self: SyncProducer[Buffer, Buffer],
        bootstrap: str | list[str] | tuple[str, ...] | None = None,
        /,
        *,
        exit_timeout_s: float = 30.0,
        dialer: Dialer | None = None,
        rng: Random | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *,
        exit_timeout_s: float = 30.0,
        dialer: Dialer | None = None,
        rng: Random | None = None,
        **options: Unpack[SerializingKeywords[Key_contra, Value_contra]],
    ) -> None: ...

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *,
        exit_timeout_s: float = 30.0,
        dialer: Dialer | None = None,
        rng: Random | None = None,
        **options: Unpack[SerializingKeywords[Key_contra, Value_contra]],
    ) -> None:
        config = ProducerConfig.build(bootstrap_or_mapping, options)
        self.config: ProducerConfig = config
        if config.transactional_id is not None:
            raise ConfigError(
                "a SyncProducer has no transactions: leave out transactional.id, or use "
                "kafkaclient.Producer"
            )
        plain = config.replace(key_serializer=None, value_serializer=None)
        self._application_metrics = ApplicationMetrics()
        self._new_producer = partial(_new_producer, self._application_metrics, plain, dialer, rng)
        self._exit_timeout_s = exit_timeout_s
        self._max_block_s = config.max_block_ms / 1000
        self._serializing = Serializing(config, time.time)
        self._wait_s = max(self._max_block_s, _HANDOVER_S)
        self._usual_size = min(config.max_request_size, config.buffer_memory) - _OVERHEAD
        self._usual_topics: set[str] = set()
        self._lock = threading.Lock()
        guard(self)

    def __repr__(self) -> str:
        state = "is closed" if self._closed else "is running"
        if self._thread is None and not self._closed:
            state = "has not been started"
        return f"<SyncProducer {self.config.client_id!r} {state}>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(
            "a SyncProducer cannot be copied or pickled: it owns its thread and records; have each "
            "process create its own, for example at module level"
        )

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        thread = self._thread
        if thread is not None and not self._closed and not thread.ended.done():
            _warn(f"unclosed {self!r}", ResourceWarning, source=self)
            thread.close(None)

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.off_loop.Forkable`; not for applications."""
        self._lock = threading.Lock()
        self._thread = None

    # --- life cycle -----------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the cluster now, instead of with the first record, and wait for it.

        Raises:
            KafkaError: what :meth:`kafkaclient.Producer.start` raises (BootstrapError,
                AuthenticationError, ...). The call may be repeated.
            ProducerStateError: this thread runs an event loop, which must not wait.
            ProducerClosedError: the SyncProducer is closed.
        """
        check_may_wait("start")
        if self._closed:
            raise ProducerClosedError("start: the SyncProducer is closed")
        self._running().started.result()

    def close(self, timeout: float | None = None) -> int:
        """Send all records, wait for their outcome, and disconnect.

        Records without an outcome after ``timeout`` seconds (None: no limit but ``max.block.ms``
        and ``delivery.timeout.ms``) fail with :class:`ProducerClosedError`. Returns the number of
        these records; 0 means that every record had its outcome. A second call waits for the first.
        If Ctrl-C ends the wait, the closing goes on in the background.

        Raises:
            ProducerStateError: this thread runs an event loop, which must not wait.
        """
        check_may_wait("close", timeout)
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is None:
            return 0
        thread.close(timeout)
        return thread.wait_closed(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> ProducerThread:
        """The thread, which is started if there is none."""
        thread = self._thread
        if thread is None or thread.start_error is not None:
            with self._lock:
                thread = self._thread
                if self._closed:
                    raise ProducerClosedError("the record was not sent: the SyncProducer is closed")
                if thread is None or thread.start_error is not None:
                    thread = ProducerThread(
                        self._new_producer, f"kafkaclient-{self.config.client_id}"
                    )
                    open_threads.add(thread, self._exit_timeout_s)
                    self._thread = thread
        return thread

    # --- sending --------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> SendFuture[RecordMetadata]:
        """Hand over a record. The result is a ``concurrent.futures.Future`` of its
        :class:`RecordMetadata`.

        The call does not wait, except while ``buffer.memory`` is full, as Java's producer, and for
        an async serializer: up to ``max.block.ms`` in all. The future has the errors that the
        cluster causes, among them MetadataTimeoutError and PartitionOutOfRangeError. Parameters as
        in :meth:`kafkaclient.Producer.send`; a record without ``timestamp_ms`` has the time of the
        call.

        Raises:
            InvalidRecordError: the record is not acceptable (also InvalidTopicError,
                SerializationError, RecordTooLargeError).
            BufferFullError: ``buffer.memory`` stayed full for ``max.block.ms``; at once in a thread
                that runs an event loop. (The future can fail with it as well.)
            ProducerClosedError: the SyncProducer is closed.
            KafkaError: the producer has failed to start a moment ago; the next call tries again.
        """
        # Most records take this way, which saves 1.5 of 4 us. What it leaves out, _checked() does.
        if (
            value.__class__ is bytes
            and (key is None or key.__class__ is bytes)  # type: ignore[unreachable] # no serializer
            and partition is None
            and timestamp_ms is None
            and not headers
            and topic.__class__ is str
            and topic in self._usual_topics
            and (size := len(value) + (0 if key is None else len(key))) <= self._usual_size
        ):
            record: One = (topic, value, key, None, int(time.time() * 1000), ())  # type: ignore[unreachable]
            return self._put(record, size, monotonic())
        now = monotonic()
        record, size = self._checked(now, topic, value, key, partition, timestamp_ms, headers)
        return self._put(record, size, now)

    def send_and_wait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """:meth:`send`, then wait for the acknowledgement. The record does not linger if no other
        one is queued or in flight.

        Raises what :meth:`send` raises, the error of a failed delivery, and ProducerStateError in a
        thread that runs an event loop.
        """
        check_may_wait("send_and_wait")
        now = monotonic()
        record, size = self._checked(now, topic, value, key, partition, timestamp_ms, headers)
        future: SendFuture[RecordMetadata] = self._put(record, size, now, awaited=True)
        return future.result()

    def _checked(
        self,
        now: float,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> tuple[One, int]:
        """The record in bytes and its size; raises InvalidRecordError. The call began at
        ``now``."""
        raw = RawRecord(topic, value, key, partition, timestamp_ms, headers)
        record = self._serializing.record(raw, now + self._max_block_s, self._run)
        timestamp_ms, key, value, pairs, partition, size, _ = record
        if not self._serializing.needed and len(self._usual_topics) < _KNOWN_TOPICS:
            self._usual_topics.add(topic)
        return (topic, value, key, partition, timestamp_ms, pairs), size

    def send_many(
        self,
        topic: str,
        values: Iterable[Value_contra | None],
        *,
        keys: Iterable[Key_contra | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        timestamps_ms: Iterable[int | None] | None = None,
        record_headers: Iterable[HeadersLike] | None = None,
    ) -> SendFuture[BulkMetadata]:
        """Hand over many records in one step, at a fraction of the cost of :meth:`send` for each.
        The result is one future of their :class:`BulkMetadata`.

        Parameters as in :meth:`kafkaclient.Producer.send_many`. The iterables are read, and the
        serializers run, in this call. The call waits as :meth:`send` does. The future has every
        other error, among them InvalidRecordError (then no record was sent) and BulkDeliveryError.

        Raises:
            InvalidRecordError: a column is no sequence, headers are not acceptable, or
                (SerializationError) a serializer failed; ``index`` is the record's. No record was
                sent.
            BufferFullError, ProducerClosedError: as :meth:`send`.
        """
        now = monotonic()
        columns = GivenColumns(values, keys, headers, timestamps_ms, record_headers)
        self._serializing.columns(topic, columns, now + self._max_block_s, self._run)
        size = columns.freeze()
        call = partial(
            Producer.send_many,
            topic=topic,
            values=columns.values,
            keys=columns.keys,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=columns.headers,
            timestamps_ms=columns.timestamps_ms,
            record_headers=columns.record_headers,
        )
        return self._put(Many(topic, partition, call), size, now)

    def _run(self, serialize: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Run a serializer's coroutine in the producer's thread."""
        check_may_wait("a serializer is async")
        return within(self._running().run(serialize()), seconds)

    def _put(
        self, work: One | Many, size: int, now: float, *, awaited: bool = False
    ) -> SendFuture[Any]:
        """Hand over what a call that began at ``now`` sends."""
        thread = self._thread
        if thread is None or thread.start_error is not None:
            thread = self._running()
        future: SendFuture[Any] = SendFuture(thread.future_state)
        size += _ENTRY_BYTES
        deadline = now + self._max_block_s
        entry = (future, work, copy_context(), awaited, deadline, threading.get_ident(), size)
        thread.handover.put(entry, size, now + self._wait_s)
        return future

    # --- waiting and looking --------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send all records of all threads without lingering, and wait until each has an outcome.

        Failures are reported by the futures, not by this call.

        Raises:
            FlushTimeoutError: ``timeout`` seconds (None: no limit) have passed; ``undelivered`` is
                the number of records without an outcome, which the producer still sends.
            ProducerStateError: this thread runs an event loop, which must not wait.
        """
        check_may_wait("flush", timeout)
        thread = self._thread
        if thread is None or thread.start_error is not None:
            return
        ends = None if timeout is None else monotonic() + timeout
        try:
            try:
                thread.flush().result(timeout)
            except ProducerClosedError:  # close() was called meanwhile
                thread.ended.result(None if ends is None else ends - monotonic())
        except CancelledError:
            return  # the thread has ended: each record has its outcome
        except TimeoutError as error:
            if type(error) is not TimeoutError:
                raise  # a KafkaTimeoutError: the producer could not be started
            if thread.unsettled == 0:
                return
            late = FlushTimeoutError(
                f"flush ended after {timeout} s with {counted(thread.unsettled, 'record')} "
                "undelivered, which the producer still sends"
            )
            late.undelivered = thread.unsettled
            raise late from None


def _new_producer(
    application: ApplicationMetrics,
    config: ProducerConfig,
    dialer: Dialer | None,
    rng: Random | None,
) -> Producer:
    """A producer that pushes the metrics that are registered with its ``SyncProducer``."""
    producer = Producer(config, dialer=dialer, rng=rng)
    producer._application_metrics = application
    return producer
