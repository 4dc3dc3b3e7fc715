"""Which fault a gap belongs to."""

from __future__ import annotations

from experiments.counting.outcome import Gap
from experiments.streams_chaos.gaps import (
    NO_FAULT,
    NO_INSTANCE,
    KindGaps,
    gaps_by_kind,
    times_without_instance,
)
from experiments.streams_chaos.schedule import Fault, FaultKind
from experiments.streams_chaos.strikes import Struck


def struck(kind: FaultKind, began: float, ended: float, which: int = 0) -> Struck:
    return Struck(
        fault=Fault(at=began, kind=kind, which=which, seconds=ended - began),
        began=began,
        ended=ended,
    )


KILL = struck(FaultKind.KILL, 100.0, 105.0)
PAUSE = struck(FaultKind.PAUSE, 104.0, 108.0, which=1)


def test_gaps_of_each_kind() -> None:
    gaps = [Gap(0, 99.0, 101.0), Gap(1, 103.0, 109.0), Gap(0, 200.0, 200.5)]
    assert gaps_by_kind([KILL, PAUSE], gaps, 3, 1.0) == [
        KindGaps("kill", 1, 6.0, 2.0),
        KindGaps("pause", 1, 6.0, None),
        KindGaps(NO_FAULT, 0, 0.5, 0.5),
    ]


def test_a_gap_after_a_fault_belongs_to_it() -> None:
    gaps = [Gap(0, 105.5, 107.0), Gap(0, 107.0, 107.5)]
    assert gaps_by_kind([KILL], gaps, 3, 1.0) == [
        KindGaps("kill", 1, 1.5, 1.5),
        KindGaps(NO_FAULT, 0, 0.5, 0.5),
    ]


def test_no_instance_left() -> None:
    broker = struck(FaultKind.BROKER_KILL, 90.0, 120.0)
    assert times_without_instance([KILL, broker], 2) == []
    assert times_without_instance([KILL, PAUSE, broker], 2) == [(104.0, 105.0)]
    found = {each.kind: each for each in gaps_by_kind([KILL, PAUSE], [Gap(0, 104.5, 111.0)], 2, 1)}
    assert found[NO_INSTANCE] == KindGaps(NO_INSTANCE, 1, 6.5, None)
