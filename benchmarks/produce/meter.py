"""What a process spends between its first record and its last acknowledgement."""

from __future__ import annotations

import asyncio
import gc
import resource
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from array import array
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

__all__ = ["Meter", "cpu_share", "latencies", "percentile", "rss_sampled", "ticking"]

_TICK_S = 0.001
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


class Meter:
    """Wall clock and CPU time of this process, all of its threads included."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    @contextmanager
    def running(self, started: Callable[[], None]) -> Iterator[None]:
        """From the start, which ``started()`` tells of, to the end of the block."""
        started()
        # What was prepared is not looked at by the collector during the run, for nobody's client.
        gc.collect()
        gc.freeze()
        cpu, began = cpu_seconds(), perf_counter()
        yield
        self.seconds = perf_counter() - began
        self.cpu_seconds = cpu_seconds() - cpu


def cpu_seconds() -> float:
    """User and system time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which ``percent`` of the ``ordered`` values are."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def latencies(seconds: array[float]) -> dict[str, float]:
    """A record's latency fields from single latencies; none of them without any."""
    if not seconds:
        return {}
    ordered = sorted(1e3 * value for value in seconds)
    return {
        "avg_ms": sum(ordered) / len(ordered),
        "p50_ms": percentile(ordered, 50),
        "p95_ms": percentile(ordered, 95),
        "p99_ms": percentile(ordered, 99),
        "p999_ms": percentile(ordered, 99.9),
        "max_ms": ordered[-1],
    }


@asynccontextmanager
async def ticking(extras: dict[str, Any]) -> AsyncIterator[None]:
    """A timer of 1 ms in the event loop; how late it is goes to ``extras`` at the end."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            due = perf_counter() + _TICK_S
            await asyncio.sleep(_TICK_S)
            late.append(perf_counter() - due)

    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()
        await asyncio.wait([ticker])
    ordered = sorted(1e3 * max(value, 0.0) for value in late)
    extras |= {
        "lag_p50_ms": percentile(ordered, 50),
        "lag_p99_ms": percentile(ordered, 99),
        "lag_p999_ms": percentile(ordered, 99.9),
        "lag_max_ms": ordered[-1],
        "ticks": len(ordered),
    }


def _memory_mb(name: str) -> float:
    """A line of what Linux says of this process; getrusage's maximum may be the parent's."""
    lines = _STATUS.read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def _forget_peak() -> None:
    with suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK)


@asynccontextmanager
async def rss_sampled(extras: dict[str, Any], every_s: float) -> AsyncIterator[None]:
    """Resident memory at the start, at most (as the kernel counts it), and over time."""
    _forget_peak()
    start = _memory_mb("VmRSS")
    samples: list[tuple[float, float]] = []
    began = perf_counter()

    async def sample() -> None:
        while True:
            samples.append((round(perf_counter() - began, 2), round(_memory_mb("VmRSS"), 1)))
            await asyncio.sleep(every_s)

    sampler = asyncio.create_task(sample())
    try:
        yield
    finally:
        sampler.cancel()
        await asyncio.wait([sampler])
    extras |= {
        "rss_start_mb": start,
        "rss_peak_mb": _memory_mb("VmHWM"),
        "rss_over_time_mb": samples,
    }


async def cpu_share(seconds: float) -> float:
    """The part of one core that this process takes while the caller does nothing."""
    cpu, began = cpu_seconds(), perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_seconds() - cpu) / (perf_counter() - began)
