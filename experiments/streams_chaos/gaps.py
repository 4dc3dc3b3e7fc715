"""Which fault a gap of a task belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.streams_chaos.schedule import INSTANCE_KINDS, FaultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.counting.outcome import Gap
    from experiments.streams_chaos.strikes import Struck

__all__ = ["NO_FAULT", "NO_INSTANCE", "KindGaps", "gaps_by_kind", "times_without_instance"]

NO_FAULT, NO_INSTANCE = "no fault", "no instance left"


@dataclass(frozen=True, slots=True)
class KindGaps:
    """The gaps during one kind of fault."""

    kind: str
    """A kind of fault; :data:`NO_FAULT`; or :data:`NO_INSTANCE`, when all instances have one."""
    faults: int
    longest_gap_s: float | None
    """The longest gap that overlaps with a fault of this kind and what follows it; None: none."""
    longest_gap_alone_s: float | None
    """The same, of gaps that overlap with no other fault."""


def times_without_instance(struck: Sequence[Struck], instances: int) -> list[tuple[float, float]]:
    """When every instance had a fault at once: begins and ends."""
    marks = sorted(
        mark
        for s in struck
        if s.fault.kind in INSTANCE_KINDS
        for mark in ((s.began, 1), (s.ended, -1))
    )
    found, away, begins = [], 0, 0.0
    for at, change in marks:
        if away == instances:
            found.append((begins, at))
        away += change
        begins = at
    return found


def gaps_by_kind(
    struck: Sequence[Struck], gaps: Sequence[Gap], instances: int, aftermath_s: float
) -> list[KindGaps]:
    """The longest gaps of each kind of fault, of the times when no instance was left, and of the
    time without fault.

    The time of a fault ends ``aftermath_s`` after the fault: until then its rebalances are over.
    """
    overlapping = [
        (gap, [s for s in struck if s.began < gap.ends and gap.begins < s.ended + aftermath_s])
        for gap in gaps
    ]
    found = []
    for kind in FaultKind:
        faults = sum(s.fault.kind is kind for s in struck)
        if not faults:
            continue
        during = [(g, hits) for g, hits in overlapping if any(s.fault.kind is kind for s in hits)]
        alone = [gap.seconds for gap, hits in during if len(hits) == 1]
        every = [gap.seconds for gap, _ in during]
        found.append(KindGaps(kind, faults, _longest(every), _longest(alone)))
    if times := times_without_instance(struck, instances):
        during_none = [
            gap.seconds
            for gap in gaps
            if any(begins < gap.ends and gap.begins < ends for begins, ends in times)
        ]
        found.append(KindGaps(NO_INSTANCE, len(times), _longest(during_none), None))
    quiet = [gap.seconds for gap, hits in overlapping if not hits]
    return [*found, KindGaps(NO_FAULT, 0, _longest(quiet), _longest(quiet))]


def _longest(seconds: list[float]) -> float | None:
    return round(max(seconds), 3) if seconds else None
