"""The load of ``benchmarks.stalled_broker``: which records are due, and what becomes of them."""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    import argparse

QUIET_S = 10.0
"""Seconds of load before the stall, the first of which are not counted, and after it."""
WARM_UP_S = 3.0

Due = tuple[bytes, int, float]
"""A record's key, its partition, and when it is due."""

clock = time.monotonic


class Answers:
    """By phase, and by whether the record's broker is a stalled one: counts and latencies. Threads
    may call it."""

    def __init__(self, wanted: argparse.Namespace) -> None:
        stall = wanted.stall
        self._began, self._stalled, self._lock = clock(), wanted.stalled, threading.Lock()
        self._ends = (WARM_UP_S, QUIET_S, QUIET_S + stall, 2 * QUIET_S + stall)
        self._last = self._resumed = self._began
        self._gap = self._caught_up = 0.0
        self.over = self._began + self._ends[-1]
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._took: dict[tuple[str, str], list[float]] = defaultdict(list)

    def phase(self, at: float) -> str:
        names = ("warm-up", "before", "during", "after", "later")
        since = at - self._began
        return names[sum(since >= end for end in self._ends)]

    def due(self, partition: int, at: float) -> None:
        with self._lock:
            self._counts["due", self.phase(at), self._which(partition)] += 1

    def done(self, partition: int, at: float, error: BaseException | None) -> None:
        """The record that was due at ``at`` has its outcome."""
        now, which, phase = clock(), self._which(partition), self.phase(at)
        with self._lock:
            if error is not None:
                self._counts["failed", phase, which] += 1
                return
            self._counts["acked", self.phase(now), which] += 1
            self._took[phase, which].append(now - at)
            if which == "stalled":
                self._resume(now, at)

    def _resume(self, now: float, at: float) -> None:
        """The stall ended at the first answer after the longest silence."""
        if now - self._last > self._gap:
            self._gap, self._resumed = now - self._last, now
        self._last = now
        if at < self._resumed:
            self._caught_up = now - self._resumed

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for phase in ("before", "during", "after"):
            for which in ("well", "stalled"):
                took = sorted(self._took[phase, which])
                found[f"{phase}, {which}"] = {
                    "due": self._counts["due", phase, which],
                    "acked": self._counts["acked", phase, which],
                    "failed": self._counts["failed", phase, which],
                    "p50_ms": round(1e3 * took[len(took) // 2], 1) if took else None,
                    "p99_ms": round(1e3 * took[len(took) * 99 // 100], 1) if took else None,
                }
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return found | {
            "peak_mb": usage.ru_maxrss // 1024,
            "caught_up_s": round(self._caught_up, 2),
        }

    def _which(self, partition: int) -> str:
        return "stalled" if partition < self._stalled else "well"


class Load:
    """The records that are due, at a steady rate: key, partition, and when."""

    def __init__(self, wanted: argparse.Namespace, part: int = 0, parts: int = 1) -> None:
        """``part`` of ``parts`` of all records."""
        self._rate, self._keys = wanted.rate / parts, Random(part)
        self._partitions = wanted.brokers
        self._began, self._sent = clock(), 0

    def due(self) -> list[Due]:
        count = int((clock() - self._began) * self._rate) - self._sent
        first, self._sent = self._sent, self._sent + count
        keys = [b"%d" % self._keys.randrange(10**6) for _ in range(count)]
        at = self._began
        return [
            (key, partition_for_key(key, self._partitions), at + (first + n) / self._rate)
            for n, key in enumerate(keys)
        ]
