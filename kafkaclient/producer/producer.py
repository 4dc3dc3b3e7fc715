"""The producer: what applications call."""

from __future__ import annotations

import asyncio
import time
import weakref
from enum import Enum
from functools import partial
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, Never

from kafkaclient.cluster.client import Client, LeftOpen
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import (
    FlushTimeoutError,
    ProducerClosedError,
    ProducerStateError,
)
from kafkaclient.net.fork import guard
from kafkaclient.producer.batches.direct_append import DirectAppend
from kafkaclient.producer.batches.record import RawRecord, checked_record
from kafkaclient.producer.bulk_api import SendManyMixin
from kafkaclient.producer.runtime import ProducerRuntime
from kafkaclient.producer.transaction_api import TransactionMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.metrics.producer import Snapshot
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.partitioning.load_view import LoadSnapshot
    from kafkaclient.types import HeadersLike, RecordMetadata

__all__ = ["Producer"]

_OVERHEAD = 128  # bytes: a batch with one record without headers takes less besides key and value


class _State(Enum):
    NEW = "has not been started"
    STARTING = "is being started"
    RUNNING = "is running"
    STOPPING = "is being stopped"
    STOPPED = "is stopped"
    FORKED = "belongs to the process that started it; create a new producer in a forked child"


class Producer(DirectAppend, SendManyMixin, TransactionMixin, Client):
    """Publishes records to Kafka from one asyncio event loop.

    ::

        async with Producer("localhost:9092", linger_ms=5) as producer:
            metadata = await producer.send_and_wait("flights", b"value", key=b"UA")

    Parameters: bootstrap servers (``"host:port,host:port"`` or a list of such), or a mapping of
    options under Kafka's dotted names (``{"bootstrap.servers": ..., "linger.ms": 5}``); further
    options by keyword (``linger_ms=5``). docs/configuration.md lists them; names, defaults and
    meaning are those of Java's ``ProducerConfig``. ``dialer``, ``clock`` (monotonic seconds),
    ``wall_clock`` (seconds since the epoch, stamps records) and ``rng`` are seams for tests.

    Creating a producer does no I/O; :meth:`start` or ``async with`` connects. It belongs to the
    event loop it was started in. Its only threads compress large batches and write ``telemetry``.
    A forked child cannot use it, and cannot disturb it; it cannot be copied or pickled. One that
    is dropped without a :meth:`stop` warns (ResourceWarning), and is stopped in the background
    while its event loop runs.

    Raises:
        ConfigError: an option is unknown, unusable or in conflict with another, or ``telemetry``
            is wanted without pyarrow.
    """

    # Class-level defaults: __del__ also runs when __init__ raised.
    _state = _State.NEW
    _core: ProducerRuntime | None = None

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        **options: Any,
    ) -> None:
        self.config = ProducerConfig.build(bootstrap_or_mapping, options)
        if self.config.telemetry is not None:
            # Raises ConfigError now if pyarrow cannot be imported.
            import_module("kafkaclient.producer.observability.batch_telemetry")
        self._dialer = dialer
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = rng or Random()
        self._stopping: asyncio.Task[int] | None = None

    def __repr__(self) -> str:
        core = self._core
        if core is None or self._state in (_State.STOPPED, _State.FORKED):
            return f"<Producer {self.config.client_id!r} {self._state.value}>"
        lanes = ", ".join(map(repr, core.sender.lanes))
        return f"<Producer {self.config.client_id!r} {core.accumulator!r} [{lanes}]>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(
            "a Producer cannot be copied or pickled: it owns its connections and records; make "
            "another one from the same options"
        )

    def _left_open(self) -> LeftOpen | None:
        core = self._core
        if core is None or self._state in (_State.STOPPED, _State.FORKED):
            return None
        what = f"producer {self.config.client_id!r}"
        return LeftOpen(what, core.loop, partial(core.stop, None))

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.fork.Forkable`; not for applications."""
        self._close_direct_append()
        self._state = _State.FORKED

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster. With a ``transactional.id``, end what an older producer with the
        same one left open, and fence it.

        Raises:
            BootstrapError: no bootstrap server could be reached within ``max.block.ms`` (where that
                is 0, ``request.timeout.ms``).
            TransactionTimeoutError: the transaction coordinator did not give a producer id within
                that time.
            BrokerError: it refused to.
            AuthenticationError: they and this client could not agree on who is who; at once, with
                the cause (also SslAuthenticationError, SaslAuthenticationError).
            ConfigError: a certificate or key cannot be read.
            ProducerClosedError: :meth:`stop` was called meanwhile.
            ProducerStateError: it has been started before.
        """
        if self._state is not _State.NEW:
            raise ProducerStateError(f"the producer cannot be started: it {self._state.value}")
        core = self._core = ProducerRuntime(
            self.config,
            dialer=self._dialer,
            clock=self._clock,
            wall_clock=self._wall_clock,
            rng=self._rng,
            check_open=_weakly(self._open, _dropped),
            on_open=_weakly(self._set_direct_append, _ignored),
        )
        self._state = _State.STARTING
        guard(self)
        try:
            await core.metadata.start()
            await core.initialize_transactions()
        except BaseException:
            if self._stopping is None:
                self._state = _State.STOPPED
                await core.disconnect()
            raise
        if self._stopping is not None:
            raise ProducerClosedError("the producer was stopped while it was being started")
        self._state = _State.RUNNING
        core.start_sender()
        if core.transactions is None:
            self._set_direct_append(True)

    def _set_direct_append(self, is_open: bool) -> None:
        """Open direct append, unless records have to be serialized; or close it."""
        core, config = self._core, self.config
        if core is None or not is_open:
            self._close_direct_append()
        elif config.key_serializer is None and config.value_serializer is None:
            largest = min(config.max_request_size, config.buffer_memory) - _OVERHEAD
            self._open_direct_append(
                core.accumulator.append_slots, core.loop, largest, self._wall_clock
            )

    async def stop(self, timeout: float | None = None) -> int:
        """Send what is there, wait for its outcome, disconnect. A transaction that is open is
        aborted instead, unless it is prepared.

        After ``timeout`` seconds (None: as long as ``delivery.timeout.ms`` lets records live) what
        is left fails with :class:`ProducerClosedError`. Returns how many records that were; 0 means
        that every record had its outcome. A second call waits for the first. A cancelled call
        lets the stop go on in the background. A :meth:`start` under way ends with an error.
        In a forked child nothing is done: the records are the parent's.

        Raises:
            ProducerStateError: this is not the event loop that the producer was started in.
        """
        core = self._core
        if core is None:
            self._state = _State.STOPPED
        over = self._state is _State.STOPPED and self._stopping is None
        if core is None or over or self._state is _State.FORKED:
            return 0
        self._check_home(core, "stop")
        if self._stopping is None:
            started, self._state = self._state is _State.RUNNING, _State.STOPPING
            self._close_direct_append()
            end = self._stop(core, timeout, started=started)
            self._stopping = asyncio.create_task(end, name="kafkaclient-stop")
        return await asyncio.shield(self._stopping)

    async def _stop(self, core: ProducerRuntime, timeout: float | None, *, started: bool) -> int:
        try:
            if started:
                return await core.stop(timeout)
            await core.disconnect()
            return 0
        finally:
            self._state = _State.STOPPED

    async def _end(self) -> None:
        await self.stop()

    # --- sending ------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Hand over a record; await the returned :class:`Delivery` for its acknowledgement.

        This call itself waits only for the topic's metadata and for buffer space, both together
        up to ``max.block.ms``. Cancelled while it waits, the record is not sent; once it has
        returned, the record is sent whatever happens to the caller.

        Parameters: ``value`` and ``key`` are bytes (or what the serializers make bytes of), None
        for no value (a tombstone) and no key. Records with the same key go to the same partition
        (murmur2, as in Java), without key to one chosen by load; ``partition`` overrides both.
        ``timestamp_ms``: milliseconds since the epoch, default now. ``headers``: pairs of str and
        bytes or None, or a mapping.

        Raises:
            InvalidRecordError: the record cannot be sent as it is (also InvalidTopicError,
                SerializationError, RecordTooLargeError, PartitionOutOfRangeError,
                PartitionerError).
            MetadataTimeoutError: the topic was not known within ``max.block.ms``.
            BufferFullError: ``buffer.memory`` stayed full for ``max.block.ms``.
            BrokerError: access to the topic is denied, say.
            ProducerStateError: the producer is not running, or has a ``transactional.id`` and no
                transaction is open.
            TransactionAbortableError: something of the transaction has failed.
        """
        fields = topic, value, key, partition, timestamp_ms, headers
        return self._put(*fields) or await self._append(RawRecord(*fields))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """:meth:`send`, then wait for the acknowledgement.

        Raises what :meth:`send` raises, and the error of a failed delivery
        (:class:`DeliveryTimeoutError`, :class:`BrokerError`, ...).
        """
        fields = topic, value, key, partition, timestamp_ms, headers
        return await (self._put(*fields) or await self._append(RawRecord(*fields)))

    async def _append(self, raw: RawRecord) -> Delivery:
        admission = self._open().admission
        record = checked_record(self.config, self._wall_clock, raw)
        topic = raw.topic
        return admission.try_append(topic, record) or await admission.wait_and_append(topic, record)

    def _send_slowly(self, *fields: Any) -> Delivery:
        """:meth:`send_nowait` where direct append is not possible (see DirectAppend)."""
        raw = RawRecord(*fields)
        admission = self._open().admission
        record = checked_record(self.config, self._wall_clock, raw)
        return admission.append_or_hold(raw.topic, record)

    def _open(self, *, in_transaction: bool = True) -> ProducerRuntime:
        """The parts, while records are taken; or the producer runs, but for its transactions."""
        core = self._core
        if core is not None and core.fatal is not None:
            raise core.fatal.with_traceback(None)  # it is raised again and again
        if core is None or self._state is not _State.RUNNING:
            raise self._not_running("the record was not sent")
        if asyncio._get_running_loop() is not core.loop:
            self._check_home(core, "the record was not sent")
        if in_transaction and core.transactions is not None:
            core.transactions.check_open()
        return core

    def _check_home(self, core: ProducerRuntime, what: str) -> None:
        if asyncio._get_running_loop() is not core.loop:
            advice = (
                "which is closed: start a producer in the new one"
                if core.loop.is_closed()
                else "from another thread, use asyncio.run_coroutine_threadsafe"
            )
            raise ProducerStateError(
                f"{what}: the producer belongs to the event loop it was started in; {advice}"
            )

    # --- waiting and looking ------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything at once, without lingering, and wait until all of it has an outcome.

        Failures are told by the deliveries, not here.

        Raises:
            FlushTimeoutError: ``timeout`` (seconds; None: no limit of its own) passed before;
                ``undelivered`` says how many records are left. They stay on their way.
        """
        core = self._started("flush")
        self._check_home(core, "flush")
        asked_at = core.now()
        try:
            async with asyncio.timeout(timeout):
                await core.drain()
        except TimeoutError:
            undelivered = core.pending_records()
            error = FlushTimeoutError(
                f"flush ended after {timeout} s with {undelivered} records undelivered; they are "
                "still on their way"
            )
            error.undelivered = undelivered
            raise error from None
        finally:
            core.metrics.flushed(core.now() - asked_at)

    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """The topic's partitions in order, with leader, replicas and in-sync replicas.

        Raises:
            InvalidTopicError: no topic can have this name.
            MetadataTimeoutError: the topic was not known within ``max.block.ms``.
        """
        core = self._started("partitions_for")
        self._check_home(core, "partitions_for")
        return (await core.metadata.wait_topic(topic, core.max_block)).partitions

    async def refresh_metadata(self, *, max_age_s: float = 0.0) -> None:
        """Learn now what has changed in the cluster, instead of within ``metadata.max.age.ms``: of
        a topic that has more partitions, or was deleted and created anew. Nothing is asked if
        all topics in use were asked for within the last ``max_age_s`` seconds.

        Raises:
            MetadataTimeoutError: no broker answered within ``max.block.ms`` (where that is 0,
                ``request.timeout.ms``).
            KafkaError: the producer cannot send any more; see there.
        """
        core = self._open(in_transaction=False)
        await core.metadata.refresh(max_age_s=max_age_s)

    def metrics(self) -> Snapshot:
        """All metrics under Java's names, by group; see docs/operations.md."""
        core = self._started("metrics")
        return core.metrics.snapshot()

    def load(self) -> LoadSnapshot:
        """What is queued and in flight at this moment, per broker and partition."""
        return self._started("load").load.snapshot()

    def _started(self, what: str) -> ProducerRuntime:
        """The parts, from the start on."""
        if self._core is None or self._state is _State.FORKED:
            raise self._not_running(what)
        return self._core

    def _not_running(self, what: str) -> ProducerStateError:
        closed = self._state in (_State.STOPPING, _State.STOPPED)
        return (ProducerClosedError if closed else ProducerStateError)(
            f"{what}: the producer {self._state.value}"
        )


def _weakly(
    method: Callable[..., object], when_dropped: Callable[..., object]
) -> Callable[..., None]:
    """Calls ``method`` of a producer without keeping the producer alive: the warning about a
    dropped producer depends on its deletion. Calls ``when_dropped`` once the producer is gone."""
    known = weakref.WeakMethod(method)

    def call(*args: object) -> None:
        (known() or when_dropped)(*args)

    return call


def _dropped() -> Never:
    raise ProducerClosedError("the producer was dropped without a stop")


def _ignored(_is_open: bool) -> None:
    """There is no producer left to open or close."""
