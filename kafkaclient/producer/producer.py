"""The producer: what applications call."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any, Self

from kafkaclient.cluster.metadata import Metadata
from kafkaclient.cluster.router import Router
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import (
    FlushTimeoutError,
    KafkaError,
    ProducerClosedError,
    ProducerStateError,
)
from kafkaclient.metrics import ProducerMetrics
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.producer.accumulator import RecordAccumulator
from kafkaclient.producer.delivery import Delivery, Receipt
from kafkaclient.producer.failures import UnseenFailures
from kafkaclient.producer.identity import IdentityKeeper
from kafkaclient.producer.intake import Intake
from kafkaclient.producer.load import LoadSnapshot, load_snapshot
from kafkaclient.producer.record import Record, checked_record
from kafkaclient.producer.sender import Sender
from kafkaclient.producer.sequence import ProducerIdentity
from kafkaclient.producer.settings import accumulator_settings, sender_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from kafkaclient.cluster.view import ClusterView, PartitionView
    from kafkaclient.metrics.producer import Snapshot
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import Headers, RecordMetadata

__all__ = ["Producer"]

_log = logging.getLogger(__name__)


class _State(Enum):
    NEW = "has not been started"
    STARTING = "is being started"
    RUNNING = "is running"
    STOPPING = "is being stopped"
    STOPPED = "is stopped"


class Producer:
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
    event loop it was started in, and uses no threads.

    Raises:
        ConfigError: an option is unknown, unusable or in conflict with another.
    """

    _state = _State.NEW

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
        if isinstance(bootstrap_or_mapping, Mapping):
            mapping: Mapping[str, object] | None = bootstrap_or_mapping
        else:
            mapping = None
            if bootstrap_or_mapping is not None:
                options["bootstrap_servers"] = bootstrap_or_mapping
        self.config = ProducerConfig.build(mapping, options)
        self._dialer = dialer
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = rng or Random()
        self._fatal: KafkaError | None = None
        self._stopping: asyncio.Task[int] | None = None
        self._assembled = False

    def __repr__(self) -> str:
        if not self._assembled or self._state is _State.STOPPED:
            return f"<Producer {self.config.client_id!r} {self._state.value}>"
        lanes = ", ".join(map(repr, self._sender.lanes.values()))
        return f"<Producer {self.config.client_id!r} {self._accumulator!r} [{lanes}]>"

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._state not in (_State.NEW, _State.STOPPED):
            _warn(f"unclosed producer {self.config.client_id!r}", ResourceWarning, source=self)

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            BootstrapError: no bootstrap server could be reached within ``max.block.ms``.
            ProducerClosedError: :meth:`stop` was called meanwhile.
            ProducerStateError: it has been started before.
        """
        if self._state is not _State.NEW:
            raise ProducerStateError(f"the producer cannot be started: it {self._state.value}")
        self._assemble()
        self._state = _State.STARTING
        try:
            await self._metadata.start()
        except BaseException:
            if self._stopping is None:
                self._state = _State.STOPPED
                await self._disconnect()
            raise
        if self._stopping is not None:
            raise ProducerClosedError("the producer was stopped while it was being started")
        self._state = _State.RUNNING
        self._keeper.ensure()
        self._loop_task = asyncio.create_task(self._run_sender(), name="kafkaclient-sender")

    def _assemble(self) -> None:
        """Build the parts; docs/architecture.md shows how they stand to each other."""
        config, rng = self.config, self._rng
        self._loop = asyncio.get_running_loop()
        clock = self._now = self._clock or _fine_clock(self._loop)
        self._max_block = config.max_block_ms / 1000
        self._metrics = metrics = ProducerMetrics(
            clock, config.metrics_sample_window_ms, config.metrics_num_samples
        )
        self._failures = UnseenFailures(clock, config.on_error, self._loop)
        dialer = self._dialer or TcpDialer(config.send_buffer_bytes, config.receive_buffer_bytes)
        self._router = Router(config, dialer, clock=clock, rng=rng, meter=metrics)
        identity = ProducerIdentity(config.enable_idempotence)
        self._accumulator = RecordAccumulator(
            accumulator_settings(config),
            identity=identity,
            random31=lambda: rng.getrandbits(31),
            wake=self._wake,
            new_receipt=self._new_receipt,
        )
        in_use = self._accumulator.uses
        self._metadata = Metadata(config, self._router, clock=clock, rng=rng, in_use=in_use)
        self._keeper = IdentityKeeper(
            identity,
            self._router,
            retry_backoff=config.retry_backoff_ms / 1000,
            retry_backoff_max=config.retry_backoff_max_ms / 1000,
            rng=rng,
            on_assigned=self._identity_assigned,
            on_fatal=self._die,
        )
        self._intake = Intake(
            self._accumulator,
            self._metadata,
            metrics,
            max_block=self._max_block,
            ignore_keys=config.partitioner_ignore_keys,
            clock=clock,
            new_receipt=self._new_receipt,
            check_open=self._check_open,
        )
        self._sender = Sender(
            self._accumulator,
            self._metadata,
            self._router,
            sender_settings(config),
            metrics,
            clock=clock,
            rng=rng,
            on_identity_wanted=self._keeper.ensure,
            on_fatal=self._die,
        )
        self._metadata.subscribe(self._view_changed)
        self._router.on_connection_change = lambda _node: self._sender.wake()
        self._bind_gauges()
        self._assembled = True

    async def _run_sender(self) -> None:
        try:
            await self._sender.run()
        except asyncio.CancelledError:
            # Programs that end cancel every task of the loop, and then await their deliveries.
            self._die(ProducerClosedError("the sender's task was cancelled; nothing is sent"))
        except Exception as error:  # noqa: BLE001 - nobody may be left waiting
            _log.exception("the sender failed; the producer cannot go on")
            crash = ProducerClosedError(f"the sender failed: {error!r}; this is a defect")
            crash.__cause__ = error
            self._die(crash)

    def _die(self, error: KafkaError) -> None:
        """Fail everything pending, and every further send, with ``error``."""
        if self._fatal is None:
            self._fatal = error
            self._fail_pending(error)

    async def stop(self, timeout: float | None = None) -> int:
        """Send what is there, wait for its outcome, disconnect.

        After ``timeout`` seconds (None: as long as ``delivery.timeout.ms`` lets records live) what
        is left fails with :class:`ProducerClosedError`. Returns how many records that were; 0 means
        that every record had its outcome. A second call waits for the first. A cancelled call
        lets the stop go on in the background. A :meth:`start` under way ends with an error.
        """
        if self._state is _State.NEW:
            self._state = _State.STOPPED
        if self._state is _State.STOPPED and self._stopping is None:
            return 0
        if self._stopping is None:
            started, self._state = self._state is _State.RUNNING, _State.STOPPING
            end = self._stop(timeout) if started else self._abandon_start()
            self._stopping = asyncio.create_task(end, name="kafkaclient-stop")
        return await asyncio.shield(self._stopping)

    async def _abandon_start(self) -> int:
        await self._disconnect()
        self._state = _State.STOPPED
        return 0

    async def _stop(self, timeout: float | None) -> int:
        self._accumulator.close(self._now())
        undelivered = 0
        try:
            async with asyncio.timeout(timeout):
                await self._drained()
        except TimeoutError:
            pass
        finally:
            undelivered = self._fail_pending(
                ProducerClosedError(
                    f"the producer was stopped with timeout={timeout} before the record was "
                    "acknowledged; it may have been written if it had been sent"
                )
            )
            self._state = _State.STOPPED
            self._sender.close()
            await self._disconnect()
            await asyncio.wait({self._loop_task})
            self._failures.close()
        if undelivered:
            _log.error("the producer stopped with %d records undelivered", undelivered)
        return undelivered

    async def _disconnect(self) -> None:
        self._accumulator.budget.fail_waiters(
            ProducerClosedError("the producer was stopped while send waited for buffer space")
        )
        await self._intake.parking.close()
        await self._keeper.close()
        await self._metadata.stop()
        await self._router.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        headers: Headers | Mapping[str, bytes | None] = (),
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
            InvalidRecordError: the record cannot be sent as it is (also SerializationError,
                RecordTooLargeError, PartitionOutOfRangeError).
            MetadataTimeoutError: the topic was not known within ``max.block.ms``.
            BufferFullError: ``buffer.memory`` stayed full for ``max.block.ms``.
            BrokerError: the topic name is invalid, or access is denied.
            ProducerStateError: the producer is not running.
        """
        record = self._checked(topic, value, key, partition, timestamp_ms, headers)
        delivery = self._intake.try_put(topic, record)
        return delivery or await self._intake.wait_and_put(topic, record)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> RecordMetadata:
        """:meth:`send`, then wait for the acknowledgement.

        Raises what :meth:`send` raises, and the error of a failed delivery
        (:class:`DeliveryTimeoutError`, :class:`BrokerError`, ...).
        """
        return await (
            await self.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> Delivery:
        """Like :meth:`send`, but never waits.

        A record for a topic whose metadata is not known yet is kept until it is, or fails after
        ``max.block.ms``. A loop of calls must await something now and then, or nothing is sent.

        Raises:
            BufferFullError: ``buffer.memory`` is used up, or others wait for it already.
        """
        record = self._checked(topic, value, key, partition, timestamp_ms, headers)
        return self._intake.put(topic, record)

    def _checked(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | Mapping[str, bytes | None],
    ) -> Record:
        self._check_open()
        return checked_record(
            self.config, self._wall_clock, topic, value, key, partition, timestamp_ms, headers
        )

    def _check_open(self) -> None:
        if self._fatal is not None:
            raise self._fatal.with_traceback(None)  # it is raised again and again
        if self._state is not _State.RUNNING:
            raise self._not_running("the record was not sent")
        if _running_loop() is not self._loop:
            raise ProducerStateError(
                "the record was not sent: the producer belongs to the event loop it was started "
                "in; from another thread, use asyncio.run_coroutine_threadsafe"
            )

    # --- waiting and looking ------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything at once, without lingering, and wait until all of it has an outcome.

        Failures are told by the deliveries, not here.

        Raises:
            FlushTimeoutError: ``timeout`` (seconds; None: no limit of its own) passed before;
                ``undelivered`` says how many records are left. They stay on their way.
        """
        self._check_running("flush")
        asked_at = self._now()
        try:
            async with asyncio.timeout(timeout):
                await self._drained()
        except TimeoutError:
            undelivered = self._pending_records()
            error = FlushTimeoutError(
                f"flush ended after {timeout} s with {undelivered} records undelivered; they are "
                "still on their way"
            )
            error.undelivered = undelivered
            raise error from None
        finally:
            self._metrics.flushed(self._now() - asked_at)

    async def _drained(self) -> None:
        asked_at, parking = self._now(), self._intake.parking
        held = parking.holds_from(asked_at)
        await self._accumulator.incomplete.flush(asked_at)
        if held:
            await parking.wait_gone(asked_at)
            await self._accumulator.incomplete.flush(self._now())

    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """The topic's partitions in order, with leader, replicas and in-sync replicas.

        Raises:
            MetadataTimeoutError: the topic was not known within ``max.block.ms``.
        """
        self._check_running("partitions_for")
        return (await self._metadata.wait_topic(topic, self._max_block)).partitions

    def metrics(self) -> Snapshot:
        """All metrics under Java's names, by group; see docs/operations.md."""
        self._check_running("metrics")
        return self._metrics.snapshot()

    def load(self) -> LoadSnapshot:
        """What is queued and in flight at this moment, per broker and partition."""
        self._check_running("load")
        brokers = self._metadata.view.brokers
        return load_snapshot(self._accumulator, self._sender.lanes, brokers, self._now())

    def _check_running(self, what: str) -> None:
        if not self._assembled:
            raise self._not_running(what)

    def _not_running(self, what: str) -> ProducerStateError:
        unborn = self._state in (_State.NEW, _State.STARTING)
        return (ProducerStateError if unborn else ProducerClosedError)(
            f"{what}: the producer {self._state.value}"
        )

    # --- inside -------------------------------------------------------------------------------

    def _wake(self, when: float) -> None:
        self._sender.wake(when)

    def _new_receipt(self, topic: str) -> Receipt:
        receipt = Receipt(topic, self._report_unseen)
        receipt.hook = self.config.on_delivery
        return receipt

    def _report_unseen(self, receipt: Receipt, error: KafkaError, records: int) -> None:
        self._metrics.errors_unseen(records)
        self._failures.report(receipt, error, records)

    def _identity_assigned(self) -> None:
        self._accumulator.incomplete.reschedule(self._now())
        self._sender.wake()  # batches without a partition were ready all the time

    def _view_changed(self, old: ClusterView, new: ClusterView) -> None:
        for name, view in new.topics.items():
            if old.topics.get(name) is not view:
                self._intake.update_topic(view)
        for name in old.topics.keys() - new.topics.keys():
            self._accumulator.forget_topic(name)
        self._sender.wake()

    def _pending_records(self) -> int:
        batched = sum(batch.count for batch in self._accumulator.incomplete)
        return batched + len(self._intake.parking)

    def _fail_pending(self, error: KafkaError) -> int:
        now, failed = self._now(), self._intake.parking.fail_all(error)
        for batch in list(self._accumulator.incomplete):
            failed += batch.count
            self._metrics.records_failed(batch.receipt.topic, batch.count)
            self._accumulator.incomplete.abandon(batch, error, now)
        return failed

    def _bind_gauges(self) -> None:
        metrics, budget = self._metrics, self._accumulator.budget
        lanes = self._sender.lanes
        metrics.bind_gauge("buffer-total-bytes", lambda: budget.total)
        metrics.bind_gauge("buffer-available-bytes", lambda: budget.available)
        metrics.bind_gauge("waiting-threads", lambda: budget.waiting)
        metrics.bind_gauge(
            "requests-in-flight", lambda: sum(len(lane.sent) for lane in lanes.values())
        )
        metrics.bind_gauge("metadata-age", lambda: self._now() - self._metadata.view.fetched_at)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _fine_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's time in fine grain: uvloop's own stands still during a turn, in milliseconds.

    A loop with a time of its own (tests in virtual time) keeps it.
    """
    return time.monotonic if abs(loop.time() - time.monotonic()) < 1.0 else loop.time
