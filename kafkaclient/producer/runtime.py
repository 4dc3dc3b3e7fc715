"""The parts of a started producer: made and joined here, and ended in order."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from kafkaclient.cluster.identity import differs
from kafkaclient.cluster.metadata import Metadata
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.waits import LOGGED_AFTER_S, Waits
from kafkaclient.errors import (
    KafkaError,
    ProducerClosedError,
    TransactionAbortedError,
    counted,
    defect,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.metrics import ProducerMetrics
from kafkaclient.metrics_push.points import labels, producer_points
from kafkaclient.metrics_push.reporter import MetricsPush
from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
from kafkaclient.producer.accumulator.compressor import CompressionThreads
from kafkaclient.producer.accumulator.partition_strategies import CustomPartitioner
from kafkaclient.producer.admission.admission import Admission
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery_errors import why_late
from kafkaclient.producer.batches.idempotence import ProducerIdentity, TransactionalIdentity
from kafkaclient.producer.observability.load import LiveGauges, LiveLoad
from kafkaclient.producer.observability.reports import (
    UnobservedFailures,
    batch_reports,
    request_reports,
)
from kafkaclient.producer.partitioning.partitioners import named_partitioner
from kafkaclient.producer.sender.producer_ids import ProducerIdFetcher
from kafkaclient.producer.sender.sender import Sender
from kafkaclient.producer.settings import accumulator_settings, sender_settings
from kafkaclient.producer.wakeup import Wakeup
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.produce import FIRST_OF_TRANSACTIONS_V2, MAX_VERSION, MIN_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.config import ProducerConfig
    from kafkaclient.hooks import Hooks
    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.metrics_push.points import ApplicationMetrics
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.observability.batch_telemetry import BatchTelemetry
    from kafkaclient.producer.transactions.manager import TransactionManager

_log = logging.getLogger(__name__)

_LONGEST_GRACE_S = 1.0  # how long the end of a serializer or a connection may take
_LEAST_GRACE_S = 0.1  # ... when the time of stop() is over


class ProducerRuntime:
    """The parts of one producer; docs/project/architecture.md shows how they work together.

    Make it in the producer's event loop. ``check_open()`` raises when the producer takes no more
    records. ``on_open(is_open)`` is called when a transaction begins or can take no more records.
    ``new_producer(options)`` makes another producer with the same dialer and clocks. Once ``fatal``
    is set, everything has failed with that error, and nothing is sent.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        dialer: Dialer | None,
        clock: Callable[[], float] | None,
        wall_clock: Callable[[], float],
        rng: Random,
        check_open: Callable[[], None],
        on_open: Callable[[bool], None],
        application_metrics: ApplicationMetrics,
        new_producer: Callable[[dict[str, Any]], Any],
    ) -> None:
        self.config = config
        self.wall_clock = wall_clock
        self.check_open = check_open
        self.fatal: KafkaError | None = None
        self.loop = asyncio.get_running_loop()
        now = self.now = clock or _fine_clock(self.loop)
        self.max_block = config.max_block_ms / 1000
        self.metrics = metrics = ProducerMetrics(
            now, config.metrics_sample_window_ms, config.metrics_num_samples
        )
        self._telemetry = self._open_telemetry(new_producer)
        self._failures = UnobservedFailures(now, config.on_error, self.loop, config.client_id)
        self._request_reports = request_reports(config.hooks, metrics)
        self._batch_reports = batch_reports(
            config.hooks if self._telemetry is None else (*config.hooks, self._telemetry), now
        )
        wakeup = self._wakeup = Wakeup(now)
        self.router = Router(
            config,
            dialer,
            clock=now,
            wall_clock=wall_clock,
            rng=rng,
            meter=self._request_reports or metrics,
            on_connection_change=lambda _node: wakeup.wake_at(),
        )
        identity = (
            ProducerIdentity(config.enable_idempotence)
            if config.transactional_id is None
            else TransactionalIdentity(self._transaction_failed)
        )
        self._random31 = lambda: rng.getrandbits(31)
        custom = self._new_partitioner() is not None
        self.accumulator = RecordAccumulator(
            accumulator_settings(
                config,
                early=0.0 if clock else _lateness(now),
                slot_clock=None if now is time.monotonic else now,
            ),
            identity=identity,
            random31=self._random31,
            wakeup=wakeup,
            metrics=metrics,
            new_result=self._new_result,
            observer=self._batch_reports,
            new_strategy=self._custom_strategy if custom else None,
            background=CompressionThreads(self.loop, config.compression_threads),
        )
        self.metadata = Metadata(
            config,
            self.router,
            clock=now,
            rng=rng,
            waits=Waits(now, config.client_id),
            release=self._release,
            is_awaited=self._is_awaited,
            on_crash=self.crashed,
        )
        self.producer_ids = ProducerIdFetcher(
            self.accumulator,
            self.router,
            self.metadata,
            config,
            wakeup,
            self,
            clock=now,
            rng=rng,
        )
        self.admission = Admission(
            self.accumulator,
            self.metadata,
            metrics,
            max_block=self.max_block,
            ignore_keys=config.partitioner_ignore_keys or custom,
            call_partitioner_once=custom,
            clock=now,
            new_result=self._new_result,
            new_guard=self._new_guard,
            on_failed=self._transaction_failed,
        )
        settings = sender_settings(config)
        self.sender = Sender(
            self.accumulator,
            self.metadata,
            self.router,
            settings,
            metrics,
            wakeup,
            self.producer_ids,
            self,
            clock=now,
            rng=rng,
        )
        lanes = self.sender.lanes
        self.load = LiveLoad(self.accumulator, lanes, settings, self.metadata, now)
        metrics.gauges = LiveGauges(
            self.accumulator, lanes, self.admission.pending_sends, self.metadata, now
        )
        if self._batch_reports is not None:
            self._batch_reports.lanes = lanes
        self.metadata.subscribe(self._view_changed)
        self.transactions = None
        if isinstance(identity, TransactionalIdentity):
            self.transactions = self._new_transactions(identity, rng, on_open)
        self.metrics_push = MetricsPush(
            self.router,
            lambda: producer_points(self.snapshot_metrics(partitions=False)),
            lambda: labels(
                transactional_id=config.transactional_id, client_rack=config.client_rack
            ),
            application_metrics,
            enabled=config.enable_metrics_push,
            wall_clock=wall_clock,
            rng=rng,
        )
        self._task: asyncio.Task[None] | None = None

    def start_sender(self) -> None:
        """Fetch the producer id, and start the sender. The cluster's metadata must be known."""
        self.producer_ids.ensure()
        self._task = asyncio.create_task(self._run_sender(), name="kafkaclient-sender")
        self.metrics_push.start()

    async def _run_sender(self) -> None:
        try:
            await self.sender.run()
        except asyncio.CancelledError:
            self.crashed("the sender", None)
        except Exception as error:  # noqa: BLE001 - no delivery may stay without an outcome
            self.crashed("the sender", error)

    def crashed(self, what: str, error: BaseException | None) -> None:
        """A task that the producer needs has ended; without an error it was cancelled."""
        if error is None:
            # Programs that end cancel every task of the loop, and then await their deliveries.
            text = (
                f"{what}'s task was cancelled, as at the end of asyncio.run; nothing more is sent. "
                "Await stop() before, and start a producer in each event loop"
            )
            self.fail_producer(ProducerClosedError(text))
            return
        _log.error(
            "%s failed; the producer cannot go on",
            what,
            exc_info=error,
            extra=log_fields(client_id=self.config.client_id),
        )
        self.fail_producer(defect(what, error, ProducerClosedError))

    def fail_producer(self, error: KafkaError) -> None:
        """Fail everything pending, and every further send, with ``error``."""
        if self.fatal is None:
            self.fatal = error
            if self.transactions is not None:
                self.transactions.on_producer_failed(error)
            self._fail_pending(error)

    async def stop(self, timeout: float | None) -> int:
        """Send all records, wait up to ``timeout`` seconds for their outcome, and disconnect.
        Returns how many records were left without an outcome."""
        began, undelivered = self.now(), 0
        self.accumulator.close(began)
        within = f" with timeout={timeout}" if timeout else ""
        try:
            async with time_limit(timeout):
                if self.transactions is not None:
                    await self.transactions.close()
                await self.drain()
        except TimeoutError:
            pass
        finally:
            undelivered = self._fail_pending(
                ProducerClosedError(
                    f"the producer was stopped{within} before the record was acknowledged; it "
                    "may have been written if it had been sent"
                )
            )
            self.accumulator.compressor.close()
            self.sender.close()
            left = _LONGEST_GRACE_S if timeout is None else began + timeout - self.now()
            try:
                await self.metrics_push.close(min(left, _LONGEST_GRACE_S))
                await self.disconnect(min(max(left, _LEAST_GRACE_S), _LONGEST_GRACE_S))
                if self._task is not None:
                    await asyncio.wait({self._task})
            finally:
                self._failures.close()
                if self._telemetry is not None:
                    await self._telemetry.close()
        if undelivered:
            text = "the producer stopped with %s undelivered"
            level = logging.ERROR if self.transactions is None else logging.INFO  # aborted
            records = counted(undelivered, "record")
            name = self.config.client_id
            _log.log(level, text, records, extra=log_fields(maybe_written=True, client_id=name))
        return undelivered

    async def disconnect(self, grace_s: float = _LONGEST_GRACE_S) -> None:
        """End every task and connection, also those of a start under way. Serializers that were
        cancelled have ``grace_s`` to end, and so have connections to write accepted bytes."""
        await self.metrics_push.close()
        await self.admission.close(grace_s)
        await self.producer_ids.close()
        await self.metadata.stop()
        await self.router.close(grace_s)

    async def drain(self) -> None:
        """Send all records without lingering, and wait until each has an outcome."""
        asked_at, held_records = self.now(), self.admission.held_records
        held = held_records.has_held(asked_at)
        with self.metadata.waits.wait("acknowledgments of records", self._why_unacknowledged):
            await self.accumulator.incomplete.flush(asked_at)
            if held:
                await held_records.wait_appended(asked_at)
                await self.accumulator.incomplete.flush(self.now())

    def _why_unacknowledged(self) -> str | None:
        """What the oldest batch waits for; None if it is not old."""
        batch = self.accumulator.incomplete.next_expired(math.inf)
        if batch is None or (age := self.now() - batch.created) < LOGGED_AFTER_S:
            return None
        error = self.router.connection_error(batch.queue.leader) or self.metadata.last_error
        return why_late(batch, age, self.config.delivery_timeout_ms / 1000, error)

    async def initialize_transactions(self, began: float) -> None:
        """Fence older producers with the same transactional id. The start ``began`` at this time,
        and ends within max.block.ms."""
        if self.transactions is not None:
            spent = self.now() - began
            await self.transactions.timed("init", self.transactions.initialize(spent))

    def _choose_produce_versions(self, v2: bool) -> None:
        """The coordinator's answer decides between transactions v1 and v2."""
        first = FIRST_OF_TRANSACTIONS_V2
        self.sender.produce_versions = (first, MAX_VERSION) if v2 else (MIN_VERSION, first - 1)

    def _new_transactions(
        self, identity: TransactionalIdentity, rng: Random, on_open: Callable[[bool], None]
    ) -> TransactionManager:
        # Imported here: they load kafka-python, which takes longer than everything else.
        from kafkaclient.cluster.coordinator import Coordinators  # noqa: PLC0415
        from kafkaclient.producer.transactions.manager import TransactionManager  # noqa: PLC0415
        from kafkaclient.producer.transactions.participants import TransactionRecords  # noqa: PLC0415
        from kafkaclient.producer.transactions.requests import TransactionRequests  # noqa: PLC0415

        config, name = self.config, self.config.transactional_id or ""
        coordinators = Coordinators(
            self.router,
            config=config,
            rng=rng,
            waits=self.metadata.waits,
            on_unknown=self.metadata.request_refresh,
        )
        return TransactionManager(
            name,
            TransactionRecords(self.accumulator, self.admission.held_records, self.drain, self.now),
            identity,
            TransactionRequests(
                name,
                config.transaction_timeout_ms,
                identity,
                coordinators,
                self._choose_produce_versions,
                self.metadata.topic_id,
            ),
            limit=config.call_limit,
            clock=self.now,
            on_open=on_open,
            fail_producer=self.fail_producer,
            on_waited=self.metrics.transaction_waited,
            wake=self._wakeup.wake_at,
        )

    def _transaction_failed(self, error: KafkaError) -> None:
        """A record has failed: an open transaction can only be aborted."""
        if self.transactions is not None:
            self.transactions.fail_transaction(error)

    def _new_guard(self) -> Callable[[], None]:
        """See :class:`Admission`."""
        if self.transactions is None:
            return self.check_open
        return self.transactions.new_guard(self.check_open)

    def _new_partitioner(self) -> Any:
        """The partitioner that the options name; None: a built-in strategy."""
        setting, ignore_keys = self.config.partitioner, self.config.partitioner_ignore_keys
        return named_partitioner(setting, self._random31, ignore_keys=ignore_keys)

    def _custom_strategy(self, topic: TopicBuffer) -> CustomPartitioner:
        # A named partitioner is made for each topic, and dropped with it.
        may_move, partitioner = isinstance(self.config.partitioner, str), self._new_partitioner()
        return CustomPartitioner(topic, partitioner, self.metadata, self.load, may_move=may_move)

    def _new_result(self, topic: str) -> BatchResult:
        self.sender.loop_monitor.start()
        if self.transactions is not None:
            self.transactions.on_new_batch()
        if self.producer_ids.refusals:
            self.producer_ids.ensure()
        batch_result = BatchResult(topic, self.report_unobserved)
        batch_result.loop, batch_result.on_delivery = self.loop, self.config.on_delivery
        return batch_result

    def leave_out(self, hooks: Hooks) -> None:
        """Report no more batches and requests to ``hooks``."""
        for reports in (self._batch_reports, self._request_reports):
            if reports is not None:
                reports.leave_out(hooks)

    def report_unobserved(self, batch_result: BatchResult, error: KafkaError, records: int) -> None:
        if isinstance(error, TransactionAbortedError):
            return  # the application has aborted, or the failure behind it is reported
        if self.transactions is not None and isinstance(error, ProducerClosedError):
            return  # the stop ends the open transaction without a commit
        self.metrics.errors_unseen(records)
        self._failures.report(batch_result, error, records)

    def _view_changed(self, old: ClusterView, new: ClusterView) -> None:
        if differs(old.cluster_id, new.cluster_id):
            self._leave_cluster(old.cluster_id, new.cluster_id)
        self.accumulator.update_brokers(new.brokers.values())
        changed = {n: view for n, view in new.topics.items() if old.topics.get(n) is not view}
        for view in changed.values():
            self.admission.pending_sends.update_topic(view)
        self.accumulator.detours.update(changed, self.now())
        for name in old.topics.keys() - new.topics.keys():
            self.accumulator.forget_topic(name)
        self._wakeup.wake_at()

    def _leave_cluster(self, old: str | None, new: str | None) -> None:
        """The client has moved to another cluster, and nothing is on the wire."""
        self.accumulator.leave_cluster(self.now())
        self.producer_ids.restart()
        self.sender.misrouting.leave_cluster()
        if self.transactions is not None:
            self.transactions.leave_cluster(old, new)

    def _is_awaited(self, topic: str) -> bool:
        """Whether records without an outcome wait for the topic."""
        buffer = self.accumulator.topics.get(topic)
        return buffer is not None and buffer.in_use

    def _release(self, topic: str) -> bool:
        """Free the buffers and metrics of a topic that was idle for ``metadata.max.idle.ms``;
        returns whether no record depends on its metadata."""
        if not self.accumulator.release(topic):
            return False
        self.metrics.forget_topic(topic)
        return True

    def pending_records(self) -> int:
        batched = sum(batch.count for batch in self.accumulator.incomplete)
        return batched + len(self.admission.held_records)

    def _fail_pending(self, error: KafkaError) -> int:
        failed = self.admission.held_records.fail_all(error)
        return failed + self.accumulator.fail_batches(error, self.now(), in_flight=True)

    def _open_telemetry(
        self, new_producer: Callable[[dict[str, Any]], Any]
    ) -> BatchTelemetry | None:
        target = self.config.telemetry
        if target is None:
            return None
        from kafkaclient.producer.observability.batch_telemetry import BatchTelemetry  # noqa: PLC0415 - it needs pyarrow

        return BatchTelemetry(
            self.config,
            target,
            self.metrics,
            clock=self.now,
            wall_clock=self.wall_clock,
            new_producer=new_producer,
        )

    def snapshot_metrics(self, *, partitions: bool) -> MetricsSnapshot:
        """All metrics now; with telemetry, also its own."""
        snapshot = self.metrics.snapshot(partitions=partitions)
        if self._telemetry is None:
            return snapshot
        values = snapshot.producer | self._telemetry.gauges()
        return snapshot._replace(producer=dict(sorted(values.items())))


def _lateness(clock: Callable[[], float]) -> float:
    """How late the event loop's timers fire on average, in seconds: they count whole milliseconds.
    A loop with virtual time is exact."""
    return 0.0005 if clock is time.monotonic else 0.0


def _fine_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's time with fine resolution: uvloop's own clock counts whole milliseconds.

    A loop with virtual time (tests) keeps its own clock.
    """
    return time.monotonic if abs(loop.time() - time.monotonic()) < 1.0 else loop.time
