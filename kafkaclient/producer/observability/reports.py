"""Reports to hooks, and the report about failed records that no caller has checked."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkaclient.errors import counted
from kafkaclient.hooks import FinishedBatch, FinishedRequest, Hooks
from kafkaclient.log_fields import log_fields
from kafkaclient.producer.batches.batch import BindingFacts
from kafkaclient.producer.user_code import call_hooks, text_of_user_error

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from kafkaclient.errors import KafkaError
    from kafkaclient.net.pipeline import Meter
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.sender.broker_lanes import BrokerLanes


# --- Failures that no caller has checked: logged at a limited rate --------------------------------

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0  # seconds between two log lines for one topic and kind of error


class UnseenFailure(NamedTuple):
    """``records`` records of one batch failed with ``error``, and no caller awaited them.

    ``partition`` is -1 if no partition had been chosen yet.
    """

    topic: str
    partition: int
    records: int
    error: KafkaError


@dataclass(slots=True)
class _Window:
    """Failures of one kind that are not logged until the time ``ends``."""

    ends: float
    last: UnseenFailure
    records: int = 0


class UnobservedFailures:
    """Logs at most one line per topic and kind of error in ten seconds, with the number of records.

    A timer, or :meth:`close`, logs the failures held back.
    """

    __slots__ = ("_client_id", "_clock", "_loop", "_on_error", "_timer", "_windows")

    def __init__(
        self,
        clock: Callable[[], float],
        on_error: Callable[[UnseenFailure], object] | None,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
    ) -> None:
        self._client_id = client_id
        self._clock = clock
        self._on_error = on_error
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._windows: dict[tuple[str, type[KafkaError], int | None], _Window] = {}  # oldest first

    def report(self, batch_result: BatchResult, error: KafkaError, records: int) -> None:
        """Report a failure; safe to call from any thread, and in the middle of other work: a
        garbage collection may drop a delivery anywhere. The report runs in the event loop."""
        failure = UnseenFailure(batch_result.topic, batch_result.partition, records, error)
        try:
            self._loop.call_soon_threadsafe(self._handle, failure)
        except RuntimeError:  # the loop is closed
            self._handle(failure)

    def close(self) -> None:
        """Log the failures that are still held back."""
        if self._timer is not None:
            self._timer.cancel()
        for window in self._windows.values():
            if window.records:
                self._log(window.last, window.records)
        self._windows.clear()

    def _handle(self, failure: UnseenFailure) -> None:
        self._limit(failure, self._clock())
        if self._on_error is not None:
            try:
                self._on_error(failure)
            except BaseException as error:  # noqa: BLE001 - it must not stop the producer
                _log.exception(
                    "the on_error hook failed on %r: %s",
                    failure,
                    text_of_user_error(error),
                    extra=self._fields(failure),
                )

    def _log(self, failure: UnseenFailure, records: int) -> None:
        _log.error(
            "%s to topic %s failed, and no caller checked the delivery: %s",
            counted(records, "record"),
            failure.topic,
            failure.error,
            extra=self._fields(failure),
        )

    def _fields(self, failure: UnseenFailure) -> dict[str, object]:
        return log_fields(
            failure.error,
            topic=failure.topic,
            partition=failure.partition,
            maybe_written=failure.error.maybe_written,
            client_id=self._client_id,
        )

    def _limit(self, failure: UnseenFailure, now: float) -> None:
        windows = self._windows
        kind = (failure.topic, type(failure.error), failure.error.code)
        window = windows.get(kind)
        if window is None:
            self._log(failure, failure.records)
            windows[kind] = _Window(now + _LOG_EVERY_S, failure)
            if self._timer is None:
                self._set_timer(_LOG_EVERY_S)
        else:
            window.records += failure.records
            window.last = failure

    def _set_timer(self, delay_s: float) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._timer = self._loop.call_later(delay_s, self._end_windows)

    def _end_windows(self) -> None:
        """Log what the windows that have ended held back."""
        windows, now, self._timer = self._windows, self._clock(), None
        while windows and (first := next(iter(windows))) and windows[first].ends <= now:
            ended = windows.pop(first)
            if ended.records:
                self._log(ended.last, ended.records)
                windows[first] = _Window(now + _LOG_EVERY_S, ended.last)
        if windows:
            self._set_timer(max(0.001, next(iter(windows.values())).ends - now))


# --- Reports the start, every batch and every request to the hooks that want them -----------------

T = TypeVar("T")


_OLDEST = 16  # queued batches that are measured; the cost must not grow with the queue
_NO_FACTS = BindingFacts()


def report_start(hooks: Sequence[Hooks], producer: object) -> None:
    """Tell the hooks that want it that ``producer`` has been started."""
    call_hooks([h.on_start for h in hooks if type(h).on_start is not Hooks.on_start], producer)


def batch_reports(hooks: Sequence[Hooks], clock: Callable[[], float]) -> BatchReports | None:
    """None if no hook wants batches."""
    wanted = [h.on_batch for h in hooks if type(h).on_batch is not Hooks.on_batch]
    return BatchReports(wanted, clock) if wanted else None


def request_reports(hooks: Sequence[Hooks], meter: Meter) -> RequestReports | None:
    """What reports to the hooks as well as to ``meter``. None if no hook wants requests."""
    wanted = [h.on_request for h in hooks if type(h).on_request is not Hooks.on_request]
    return RequestReports(meter, wanted) if wanted else None


class BatchReports:
    """Implements :class:`~kafkaclient.producer.batches.topic_buffer.BatchObserver`: keeps
    with each batch how it was bound, and calls ``hooks`` when the batch has its outcome."""

    def __init__(
        self, hooks: Sequence[Callable[[FinishedBatch], object]], clock: Callable[[], float]
    ) -> None:
        self._hooks = hooks
        self._clock = clock
        self.lanes: BrokerLanes | None = None
        """Assigned when the sender is made, before the first batch."""

    def leave_out(self, hooks: Hooks) -> None:
        """Report no more batches to ``hooks``."""
        self._hooks = _without(self._hooks, hooks)

    def on_bound(
        self, batch: ProducerBatch, target: PartitionQueue, bound_by: str, now: float
    ) -> None:
        source = batch.queue
        in_flight, window = (0, 1) if self.lanes is None else self.lanes.in_flight_of(target.lane)
        batch.record_binding(
            BindingFacts(
                bound_by,
                now,
                queued_batches=len(source.batches),
                queued_bytes=_queued_bytes(source),
                in_flight=in_flight,
                window=window,
            )
        )

    def on_sent(self, batch: ProducerBatch) -> None:
        facts = batch.binding_facts
        if facts is not None and facts.sent_at is None:
            facts.broker = batch.queue.leader
            facts.sent_at = self._clock()

    def on_outcome(self, batch: ProducerBatch, now: float) -> None:
        batch_result, facts = batch.result, batch.binding_facts or _NO_FACTS
        finished = FinishedBatch(
            topic=batch_result.topic,
            partition=batch_result.partition,
            broker=facts.broker,
            records=batch.count,
            bytes=batch.size,
            attempts=batch.attempts,
            base_offset=batch_result.base_offset,
            created_s=batch.created,
            bound_s=facts.bound_at,
            sent_s=facts.sent_at,
            done_s=now,
            queued_batches=facts.queued_batches,
            queued_bytes=facts.queued_bytes,
            in_flight=facts.in_flight,
            window=facts.window,
            bound_by=facts.bound_by,
            error=batch_result.error,
        )
        call_hooks(self._hooks, finished)


class RequestReports:
    """Implements :class:`~kafkaclient.net.pipeline.Meter`: passes everything to ``meter``, and
    calls ``hooks`` at the end of each request."""

    def __init__(self, meter: Meter, hooks: Sequence[Callable[[FinishedRequest], object]]) -> None:
        self.connection_opened = meter.connection_opened
        self.connection_closed = meter.connection_closed
        self.request_sent = meter.request_sent
        self._count = meter.request_done
        self._hooks = hooks

    def leave_out(self, hooks: Hooks) -> None:
        """Report no more requests to ``hooks``."""
        self._hooks = _without(self._hooks, hooks)

    def request_done(
        self, node_id: int, api: str, nbytes: int, latency_s: float, error: KafkaError | None
    ) -> None:
        self._count(node_id, api, nbytes, latency_s, error)
        call_hooks(self._hooks, FinishedRequest(node_id, api, latency_s, nbytes, error))


def _without(calls: Sequence[Callable[[T], object]], hooks: Hooks) -> list[Callable[[T], object]]:
    return [call for call in calls if getattr(call, "__self__", None) is not hooks]


def _queued_bytes(queue: PartitionQueue) -> int:
    """The bytes queued; estimated from the oldest batches if there are many."""
    batches = queue.batches
    if len(batches) <= _OLDEST:
        return queue.queued_bytes
    return sum(batch.size for batch in islice(batches, _OLDEST)) * len(batches) // _OLDEST
