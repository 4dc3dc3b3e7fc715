"""What a worker counts, and the histograms in which the benchmark's driver reads its latencies."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hdrh.histogram import HdrHistogram

__all__ = ["WorkerStats"]

_MINUTE_US = 60_000_000
_HALF_DAY_US = 12 * 60 * _MINUTE_US
_DIGITS = 3
"""Java's worker has 5. Such a histogram takes 0.1 s to make here, in which no record is sent."""
_BITS = 11
"""A histogram with three digits tells values apart by so many leading bits."""


class _Latencies:
    """Microseconds of one kind since the last look, and since the last reset."""

    def __init__(self, most_us: int) -> None:
        self._most_us = most_us
        self._period: Counter[int] = Counter()
        self._all: Counter[int] = Counter()

    def add(self, us: int, count: int = 1) -> None:
        us = min(us, self._most_us)
        same = max(0, us.bit_length() - _BITS)  # the bits that the histogram ignores: fewer values
        self._period[us >> same << same] += count

    def period(self) -> str:
        """Those since the last call. Their histogram is made here, not when they are measured."""
        taken, self._period = self._period, Counter()
        self._all.update(taken)
        return self._encoded(taken)

    def total(self) -> str:
        """Those since the last call of this method, or of :meth:`clear`."""
        self._all.update(self._period)
        taken, self._all, self._period = self._all, Counter(), Counter()
        return self._encoded(taken)

    def clear(self) -> None:
        self._period.clear()
        self._all.clear()

    def _encoded(self, counts: Counter[int]) -> str:
        histogram = HdrHistogram(1, self._most_us, _DIGITS)
        for us, count in counts.items():
            histogram.record_value(us, count)
        encoded: bytes = histogram.encode()
        return encoded.decode("ascii")


class WorkerStats:
    """Java: ``io.openmessaging.benchmark.worker.WorkerStats``, whose JSON these methods return."""

    def __init__(self) -> None:
        self._publish = _Latencies(_MINUTE_US)
        self._delay = _Latencies(_MINUTE_US)
        self._end_to_end = _Latencies(_HALF_DAY_US)
        self._period: Counter[str] = Counter()
        self._total: Counter[str] = Counter()

    def sent(self, nbytes: int, intended: float, started: float, now: float) -> None:
        """A record was acknowledged; times are seconds of one clock."""
        self._period["messagesSent"] += 1
        self._period["bytesSent"] += nbytes
        self._publish.add(round((now - started) * 1e6))
        self._delay.add(max(0, round((started - intended) * 1e6)))

    def probed(self) -> None:
        """A record was acknowledged that is in no figure but the total."""
        self._total["messagesSent"] += 1

    def failed(self) -> None:
        self._period["messageSendErrors"] += 1

    def received(self, count: int, nbytes: int, us: int) -> None:
        """``count`` records were read ``us`` microseconds after their timestamp."""
        self._period["messagesReceived"] += count
        self._period["bytesReceived"] += nbytes
        if us > 0:
            self._end_to_end.add(us, count)

    def counters(self) -> dict[str, int]:
        """Since the start, or since :meth:`reset`."""
        names = ("messagesSent", "messagesReceived", "messageSendErrors")
        return {name: self._total[name] + self._period[name] for name in names}

    def period(self) -> dict[str, Any]:
        """Since the last call."""
        taken, self._period = self._period, Counter()
        for name in ("messagesSent", "messagesReceived", "messageSendErrors"):
            self._total[name] += taken[name]
        names = ("messagesSent", "messageSendErrors", "bytesSent")
        return {
            **{name: taken[name] for name in (*names, "messagesReceived", "bytesReceived")},
            "totalMessagesSent": self._total["messagesSent"],
            "totalMessageSendErrors": self._total["messageSendErrors"],
            "totalMessagesReceived": self._total["messagesReceived"],
            "publishLatency": self._publish.period(),
            "publishDelayLatency": self._delay.period(),
            "endToEndLatency": self._end_to_end.period(),
        }

    def cumulative(self) -> dict[str, str]:
        """Latencies since the last call, or since :meth:`clear_latencies`."""
        return {
            "publishLatency": self._publish.total(),
            "publishDelayLatency": self._delay.total(),
            "endToEndLatency": self._end_to_end.total(),
        }

    def clear_latencies(self) -> None:
        for each in (self._publish, self._delay, self._end_to_end):
            each.clear()

    def reset(self) -> None:
        """Forget all figures: the next load begins."""
        self.clear_latencies()
        self._period.clear()
        self._total.clear()
