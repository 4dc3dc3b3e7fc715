"""The load loop: one arrival process at a target rate that drives any client alike.

It is open: when a record is due it is sent, whether or not earlier ones have been answered. A
record's latency runs from the moment it is handed to the client, including any wait for buffer
space, until its acknowledgement is known (Java: ``ProducerPerformance``).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from math import inf, nextafter
from typing import TYPE_CHECKING

from kafkaclient.experiments.latency import LatencyRecorder, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.experiments.clients import LoadClient
    from kafkaclient.experiments.latency import Window
    from kafkaclient.experiments.payload import KeyValue

__all__ = ["Load", "LoadSpec", "Outcome", "Throttle"]

_YIELD_EVERY_S = 0.001
_MIN_SLEEP_S = 0.002


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """How much to send, and how fast."""

    num_records: int
    rate: float | None = None
    """Target records per second on average; None sends as fast as the client takes them."""
    warmup_records: int = 0
    """The first records, which the steady-state summary leaves out."""
    reporting_interval_s: float = 5.0
    transaction_s: float | None = None
    """Send in transactions, each committed after the record that finds it this old; seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load came to."""

    summary: Summary
    steady_state: Summary | None
    """The records after the warm-up; None when there was no warm-up."""
    errors: Counter[str] = field(default_factory=Counter)
    """Failed records by cause."""


class Throttle:
    """Holds the average rate since the start, and catches up in bursts after a pause.

    Behaves as Kafka's ``ThroughputThrottler``: a sender that is ahead owes the time of one
    record, and sleeps when it owes 2 ms; one that is behind does not wait at all.
    """

    __slots__ = ("_interval", "_owed", "_rate", "_start")

    def __init__(self, rate: float | None, start: float) -> None:
        self._rate = rate or 0.0
        self._interval = 1.0 / rate if rate else 0.0
        self._start = start
        self._owed = 0.0

    def pause(self, sent: int, now: float) -> float:
        """Seconds to sleep after ``sent`` records at time ``now``; 0.0 to go on."""
        if not self._rate or sent <= self._rate * (now - self._start):
            return 0.0
        self._owed += self._interval
        if self._owed < _MIN_SLEEP_S:
            return 0.0
        owed, self._owed = self._owed, 0.0
        return owed

    def slept(self, pause: float, seconds: float) -> None:
        """What was really slept of a pause. uvloop's timers count whole milliseconds: what is
        missing is owed on, or the load would run an eighth ahead of 2048/s."""
        self._owed += max(0.0, pause - seconds)


class Load:
    """One run of a load: ``await run(...)``, with ``sent`` and ``acknowledged`` to watch it."""

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
        self._client = client
        self._spec = spec
        self._clock = clock
        self._on_window = on_window
        self._on_steady_state = on_steady_state
        self._recorder = LatencyRecorder(clock(), spec.reporting_interval_s, on_window)
        self._steady: LatencyRecorder | None = None
        self._steady_from = inf
        self._errors: Counter[str] = Counter()
        self._commits_at: float | None = None
        """When the open transaction ends; None while there is none."""

    @property
    def spec(self) -> LoadSpec:
        return self._spec

    @property
    def acknowledged(self) -> int:
        return self._recorder.count

    @property
    def failed(self) -> int:
        return self._errors.total()

    async def run(self, records: Iterable[KeyValue]) -> Outcome:
        """Send ``spec.num_records`` of ``records`` and wait until each is answered.

        The client is started first and left running: its owner reads its counters and stops it.
        Failed records are counted, not raised; what ``client.start`` raises is, and what becomes
        of a transaction.
        """
        await self._client.start(self._completed)
        start = self._clock()
        self._recorder = LatencyRecorder(start, self._spec.reporting_interval_s, self._on_window)
        await self._send_all(records, start)
        if self._commits_at is not None:
            await self._commit()
        await self._client.flush()
        finished = self._clock()
        return Outcome(
            summary=self._recorder.summary(finished),
            steady_state=self._steady.summary(finished) if self._steady else None,
            errors=self._errors,
        )

    async def _send_all(self, records: Iterable[KeyValue], start: float) -> None:
        spec, clock, client = self._spec, self._clock, self._client
        send_nowait = client.send_nowait
        transactional = spec.transaction_s is not None
        throttle = Throttle(spec.rate, start)
        warmup = spec.warmup_records or None
        yielded = start
        for number, (key, value) in enumerate(islice(records, spec.num_records)):
            if transactional and self._commits_at is None:
                await self._begin()
            now = clock()
            if number == warmup:
                now = nextafter(now, inf)  # a clock may tell the last record the same time
                self._begin_steady_state(now)
            if not send_nowait(key, value, now):
                await client.send(key, value, now)
            self.sent = number + 1
            if self._commits_at is not None and now >= self._commits_at:
                await self._commit()
            pause = throttle.pause(number, now)
            if pause or now - yielded >= _YIELD_EVERY_S:
                await asyncio.sleep(pause)
                yielded = clock()
                throttle.slept(pause, yielded - now)

    async def _begin(self) -> None:
        assert self._spec.transaction_s is not None
        await self._client.begin_transaction()
        self._commits_at = self._clock() + self._spec.transaction_s

    async def _commit(self) -> None:
        self._commits_at = None
        await self._client.commit_transaction()

    def _begin_steady_state(self, now: float) -> None:
        self._recorder.mute()
        self._steady_from = now
        self._steady = LatencyRecorder(now, self._spec.reporting_interval_s, self._on_window)
        if self._on_steady_state is not None:
            self._on_steady_state()

    def _completed(
        self, started: float, finished: float, nbytes: int, error: BaseException | None
    ) -> None:
        if error is not None:
            self._errors[f"{type(error).__name__}: {error}"] += 1
            return
        self._recorder.record(started, finished, nbytes)
        if started >= self._steady_from and self._steady is not None:
            self._steady.record(started, finished, nbytes)
