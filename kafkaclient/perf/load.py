"""The load loop, which sends records at a target rate through any client.

The loop is open: a record is sent when it is due, whether or not earlier records have an outcome. A
record's latency runs from the call of the client, including the wait for buffer space, until its
acknowledgement is known (Java: ``ProducerPerformance``).

The records that are due are handed to the client in slices of about 0.1 ms of work. The latency of
each record of a slice runs from the slice's first call. Only with aiokafka it runs from the
record's own call, which may wait for buffer space in the middle of a slice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf, nextafter
from sys import maxsize
from typing import TYPE_CHECKING

from kafkaclient.perf.latency import LatencyRecorder, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.perf.clients import LoadClient
    from kafkaclient.perf.latency import Window
    from kafkaclient.perf.traffic import KeyValue

_YIELD_EVERY_S = 0.001
_MIN_SLEEP_S = 0.002
_SLICE_S = 0.0001  # seconds of work between two readings of the clock
_FIRST_SLICE = 16
_LARGEST_SLICE = 1024


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """The number of records to send, and their rate."""

    num_records: int
    rate: float | None = None
    """Target records per second on average; None: as fast as the client takes records."""
    warmup_records: int = 0
    """The number of first records that the steady-state summary leaves out."""
    reporting_interval_s: float = 5.0
    transaction_s: float | None = None
    """Seconds after which a transaction is committed; None: no transactions."""


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """The result of a load."""

    summary: Summary
    steady_state: Summary | None
    """The summary of the records after the warm-up; None without a warm-up."""
    errors: Counter[str] = field(default_factory=Counter)
    """Cause -> number of failed records."""


class RateLimiter:
    """Keeps the average rate since the start; after a delay it catches up in bursts.

    Behaves as Kafka's ``ThroughputThrottler``: a sender that is ahead owes the time of a record,
    and sleeps once it owes 2 ms. A sender that is behind does not sleep.
    """

    def __init__(self, rate: float | None, start: float) -> None:
        self._rate = rate or 0.0
        self._interval = 1.0 / rate if rate else 0.0
        self._start = start
        self._owed = 0.0

    def due(self, sent: int, now: float) -> int:
        """The number of records to send before the next pause, after ``sent`` records."""
        if not self._rate:
            return maxsize
        behind = int(self._rate * (now - self._start)) + 1 - sent
        return max(behind, 0) + max(ceil((_MIN_SLEEP_S - self._owed) / self._interval), 1)

    def pause(self, sent: int, count: int, now: float) -> float:
        """Seconds to sleep after ``sent`` records, the last ``count`` of them since the last call;
        0.0: do not sleep."""
        if not self._rate:
            return 0.0
        ahead = sent - 1 - int(self._rate * (now - self._start))
        self._owed += self._interval * min(max(ahead, 0), count)
        if self._owed < _MIN_SLEEP_S:
            return 0.0
        pause, self._owed = self._owed, 0.0
        return pause

    def slept(self, pause: float, seconds: float) -> None:
        """Add the rest of a pause that lasted only ``seconds`` to the time owed.

        uvloop's timers count whole milliseconds. Without this, a load of 2048/s would be an eighth
        too fast.
        """
        self._owed += max(0.0, pause - seconds)


class SliceSize:
    """The number of records to hand over between two looks at the clock: about 0.1 ms of work."""

    def __init__(self) -> None:
        self.records = _FIRST_SLICE

    def adapt(self, taken: int, seconds: float) -> None:
        """``taken`` records took ``seconds`` to hand over."""
        if seconds < _SLICE_S and taken == self.records:
            self.records = min(2 * self.records, _LARGEST_SLICE)
        elif seconds > 2 * _SLICE_S and taken > 1:
            self.records = max(self.records // 2, 1)


class Load:
    """A run of a load: ``await run(...)``; ``sent`` and ``acknowledged`` show its progress."""

    def __init__(
        self,
        client: LoadClient,
        spec: LoadSpec,
        *,
        on_window: Callable[[Window], None] | None = None,
        on_steady_state: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.sent = 0
        self.spec = spec
        self._client = client
        self._clock = clock
        self._on_window = on_window
        self._on_steady_state = on_steady_state
        self._recorder = LatencyRecorder(clock(), spec.reporting_interval_s, on_window)
        self._steady: LatencyRecorder | None = None
        self._steady_from = inf
        self._errors: Counter[str] = Counter()
        self._commits_at: float | None = None
        """When to commit the open transaction; None: no transaction is open."""

    @property
    def acknowledged(self) -> int:
        return self._recorder.count

    @property
    def failed(self) -> int:
        return self._errors.total()

    async def run(self, records: Iterable[KeyValue]) -> LoadOutcome:
        """Start the client, send ``spec.num_records`` of ``records``, and wait for their outcomes.

        The client is not stopped: its owner does that, and reads its counters. Failed records are
        counted. Raises what ``client.start`` and the client's transactions raise.
        """
        await self._client.start(self._completed)
        start = self._clock()
        self._recorder = LatencyRecorder(start, self.spec.reporting_interval_s, self._on_window)
        await self._send_all(records, start)
        if self._commits_at is not None:
            await self._commit()
        await self._client.flush()
        finished = self._clock()
        return LoadOutcome(
            summary=self._recorder.summary(finished),
            steady_state=self._steady.summary(finished) if self._steady else None,
            errors=self._errors,
        )

    async def _send_all(self, records: Iterable[KeyValue], start: float) -> None:
        spec, clock, source = self.spec, self._clock, iter(records)
        throttle, size = RateLimiter(spec.rate, start), SliceSize()
        yielded = start
        due: list[KeyValue] = []
        while True:
            if not due:
                most = min(throttle.due(self.sent, clock()), size.records, self._before_change())
                due = list(islice(source, most))
                if not due:
                    return
            if spec.transaction_s is not None and self._commits_at is None:
                await self._begin()
            now = clock()
            if self.sent == spec.warmup_records and spec.warmup_records and self._steady is None:
                now = nextafter(now, inf)  # the last record may have the same time
                self._begin_steady_state(now)
            taken = await self._client.send(due, now)
            self.sent += taken
            due = due[taken:]  # most often nothing is left
            ended = clock()
            size.adapt(taken, ended - now)
            if self._commits_at is not None and now >= self._commits_at:
                await self._commit()
            pause = throttle.pause(self.sent, taken, ended)
            if pause or ended - yielded >= _YIELD_EVERY_S:
                await asyncio.sleep(pause)
                yielded = clock()
                throttle.slept(pause, yielded - ended)

    def _before_change(self) -> int:
        """The number of records until the warm-up, or the load, ends."""
        warmup = self.spec.warmup_records
        return (warmup if self.sent < warmup else self.spec.num_records) - self.sent

    async def _begin(self) -> None:
        assert self.spec.transaction_s is not None
        await self._client.begin_transaction()
        self._commits_at = self._clock() + self.spec.transaction_s

    async def _commit(self) -> None:
        self._commits_at = None
        await self._client.commit_transaction()

    def _begin_steady_state(self, now: float) -> None:
        self._recorder.mute()
        self._steady_from = now
        self._steady = LatencyRecorder(now, self.spec.reporting_interval_s, self._on_window)
        if self._on_steady_state is not None:
            self._on_steady_state()

    def _completed(
        self, started: float, finished: float, count: int, nbytes: int, error: BaseException | None
    ) -> None:
        if error is not None:
            self._errors[f"{type(error).__name__}: {error}"] += count
            return
        self._recorder.record(started, finished, count, nbytes)
        if started >= self._steady_from and self._steady is not None:
            self._steady.record(started, finished, count, nbytes)
