from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.chaos.schedule import NODE_KINDS, Fault, FaultKind, outage, schedule

arguments = st.tuples(
    st.integers(0, 2**32), st.sampled_from((60, 180, 600, 1800)), st.integers(3, 6)
)


def node_faults(faults: list[Fault]) -> list[Fault]:
    return [fault for fault in faults if fault.kind in NODE_KINDS]


def test_the_seed_repeats_the_schedule_and_another_gives_another() -> None:
    assert schedule(1, 600, 3) == schedule(1, 600, 3)
    assert schedule(1, 600, 3) != schedule(2, 600, 3)
    assert schedule(1, 600, 3) != schedule(1, 600, 5)


def test_a_schedule_of_the_past_is_still_the_same() -> None:
    first = node_faults(schedule(1, 60, 3))[0]
    assert first == Fault(at=1.579, kind=FaultKind.TERMINATE, broker=1, seconds=2.767)


@given(arguments)
def test_brokers_go_one_at_a_time_every_15_s_for_2_to_12_s(given: tuple[int, int, int]) -> None:
    _, seconds, brokers = given
    faults = node_faults(schedule(*given))
    assert len(faults) == seconds / 15
    assert all(2 <= fault.seconds <= 12 for fault in faults)
    assert all(0 <= fault.broker < brokers for fault in faults)
    for before, after in pairwise(faults):
        assert before.at + before.seconds < after.at
        assert before.broker != after.broker
    assert faults[-1].at + faults[-1].seconds <= seconds


@given(arguments)
def test_some_broker_is_away_for_40_percent_of_the_time(given: tuple[int, int, int]) -> None:
    away = sum(fault.seconds for fault in node_faults(schedule(*given)))
    assert 0.4 <= away / given[1] <= 0.53


@given(arguments)
def test_every_kind_comes_and_brokers_go_in_equal_parts(given: tuple[int, int, int]) -> None:
    faults = schedule(*given)
    kinds = Counter(fault.kind for fault in faults)
    assert set(kinds) == set(FaultKind) - {FaultKind.OUTAGE}
    parts = [kinds[kind] for kind in NODE_KINDS]
    assert max(parts) - min(parts) <= 1
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert all(0 <= fault.at <= given[1] for fault in faults)


@pytest.mark.parametrize("seconds", [5.0, 20.0])
def test_a_short_campaign_has_a_fault_that_fits(seconds: float) -> None:
    (fault,) = node_faults(schedule(1, seconds, 3))
    assert 0 < fault.seconds <= seconds - fault.at


def test_an_outage_is_in_the_middle() -> None:
    assert outage(90, 30) == [Fault(at=30.0, kind=FaultKind.OUTAGE, seconds=30)]
    assert outage(90, 30)[0].as_json()["kind"] == "outage"
