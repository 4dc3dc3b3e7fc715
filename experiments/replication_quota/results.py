"""The results of the experiment, and their file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiments.experiment import BaseResults

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Latency", "MoveResult", "Results"]

LOOK_BACK_S = 11.0
"""Seconds over which a broker measures a rate (``replication.quota.window.num`` windows)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latency of clients in a phase of a run, in milliseconds."""

    records: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    windows: tuple[tuple[float, float, float], ...] = ()
    """(seconds since the phase began, average, maximum) for about each second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """A run of a scenario."""

    scenario: str
    load: float
    """Records per second that clients sent during the run."""
    quota: int
    inbound: float
    """Bytes per second that came into the busiest broker just before the move (KIP-73's IN)."""
    bytes_to_move: int
    """Bytes on the disks when the move began."""
    seconds: float
    """From the first request of the move until all replicas are in sync."""
    move_time_s: float | None
    """KIP-73's estimate of :attr:`seconds`."""
    expected_s: float | None
    """Our estimate of :attr:`seconds`."""
    samples: tuple[tuple[float, int], ...]
    """(seconds since the move began, bytes that have arrived, new records included)."""
    left: bool
    """Whether a throttle was left behind."""
    quiet: Latency | None = None
    throttled: Latency | None = None
    unthrottled: Latency | None = None
    """During the move back, without a quota."""
    unthrottled_s: float | None = None

    @property
    def name(self) -> str:
        return f"{self.scenario}, with load" if self.load else self.scenario

    @property
    def dictated(self) -> float:
        """Bytes per second that the quota leaves for the move: quota minus inbound."""
        return self.quota - self.inbound

    @property
    def rate(self) -> float:
        """Bytes to move per second of the whole move."""
        return self.bytes_to_move / self.seconds

    @property
    def share(self) -> float:
        """The rate as a share of :attr:`dictated`."""
        return self.rate / self.dictated

    @property
    def burst_s(self) -> float:
        """How far ahead of the quota the move ever was, in seconds of the quota."""
        return max((done / self.quota - at for at, done in self.samples), default=0.0)

    @property
    def steady_rate(self) -> float | None:
        """Bytes per second after :data:`LOOK_BACK_S`; None for a move that is too short."""
        later = [sample for sample in self.samples if sample[0] >= LOOK_BACK_S]
        if len(later) < 2 or later[-1][0] - later[0][0] < LOOK_BACK_S:
            return None
        (began, had), (ended, has) = later[0], later[-1]
        return (has - had) / (ended - began)

    @property
    def error(self) -> float | None:
        """The error of our estimate: 0.1 if it was a tenth too high."""
        return None if self.expected_s is None else self.expected_s / self.seconds - 1

    @property
    def p99_ratio(self) -> float | None:
        """The p99 during the move within the quota, as a multiple of the p99 without a move."""
        return _ratio(self.throttled, self.quiet)

    @property
    def unthrottled_ratio(self) -> float | None:
        return _ratio(self.unthrottled, self.quiet)

    def rates(self) -> list[tuple[float, float]]:
        """(seconds since the move began, bytes per second) between the samples."""
        return [
            ((then + now) / 2, (done - had) / (now - then))
            for (then, had), (now, done) in pairwise(self.samples)
            if now > then
        ]

    def as_json(self) -> dict[str, Any]:
        names = ("rate", "dictated", "share", "burst_s", "steady_rate", "error")
        ratios = ("p99_ratio", "unthrottled_ratio")
        return {**asdict(self), **{name: getattr(self, name) for name in (*names, *ratios)}}


def _ratio(one: Latency | None, other: Latency | None) -> float | None:
    if one is None or other is None or not one.p99_ms or not other.p99_ms:
        return None
    return one.p99_ms / other.p99_ms


@dataclass(slots=True)
class Results(BaseResults):
    """All runs so far."""

    runs: list[MoveResult] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Run that failed -> its error."""

    @property
    def has_runs(self) -> bool:
        return bool(self.runs)

    @property
    def is_clean(self) -> bool:
        """Whether every run was made, no client's record failed, and no throttle is left."""
        phases = [
            found
            for run in self.runs
            for found in (run.quiet, run.throttled, run.unthrottled)
            if found is not None
        ]
        return (
            self.complete
            and not any(run.left for run in self.runs)
            and not any(found.failed for found in phases)
        )

    def write(self, folder: Path) -> None:
        runs = [run.as_json() for run in self.runs]
        self.write_summary(folder, "replication-quota", runs, failed=self.failed)
