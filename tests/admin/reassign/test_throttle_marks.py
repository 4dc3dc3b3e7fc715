"""What is ours, what was there before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.outcome import (
    FOLLOWER_RATE,
    LEADER_RATE,
    MARK,
    BrokerMark,
    BrokerThrottle,
    ThrottledReplicas,
)

elements = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9)).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    max_size=6,
).map(tuple)


def appended(was: str, ours: tuple[str, ...]) -> str:
    """The list's value as brokers make it (KIP-339)."""
    now = [each.strip() for each in was.split(",") if each.strip()]
    more = ThrottledReplicas.parse(was).addition(ours)
    return ",".join(dict.fromkeys([*now, *(more.split(",") if more else [])]))


@given(elements, elements, elements)
def test_what_was_there_comes_back(before, ours, more) -> None:
    """Also when two add to a list one after the other."""
    was = ThrottledReplicas(tuple(dict.fromkeys(before)))
    value = appended(appended(was.value or "", ours), more)
    marked = ThrottledReplicas.parse(value)
    assert marked.before == was.before
    assert set(before) | set(ours) | set(more) == set(before) | set(marked.ours or ())
    assert marked.value == (value or None)
    gone = {MARK, *(marked.ours or ())}
    left = [each for each in value.split(",") if each not in gone]
    assert ThrottledReplicas.parse(",".join(left)) == was


def test_what_topics_get() -> None:
    assert ThrottledReplicas.parse("").addition(("2:1", "10:1")) == f"{MARK},10:1,2:1"
    assert ThrottledReplicas.parse(" 5:5 ,2:1,").addition(("2:1", "0:1")) == f"{MARK},0:1"
    assert ThrottledReplicas.parse("0:1").addition(("0:1",)) is None
    assert ThrottledReplicas.parse("0:1").addition(()) is None


def test_a_list_of_all_replicas_stays() -> None:
    assert ThrottledReplicas.parse("*").addition(("0:1",)) is None


@pytest.mark.parametrize("rates", [(None, None), (5, None), (2**63 - 1, 0)])
def test_a_brokers_mark(rates: tuple[int | None, int | None]) -> None:
    mark = BrokerMark(1000, *rates)
    assert BrokerMark.all_of(["num.partitions", mark.key]) == (mark,)
    now = {LEADER_RATE: 1000, FOLLOWER_RATE: 1000}
    assert mark.restored(now) == dict(zip((LEADER_RATE, FOLLOWER_RATE), rates, strict=True))


def test_a_rate_that_somebody_changed_is_theirs() -> None:
    mark = BrokerMark(1000, 5, None)
    assert mark.restored({LEADER_RATE: 1000, FOLLOWER_RATE: 7}) == {LEADER_RATE: 5}
    assert mark.restored({}) == {}


def test_of_several_marks_the_one_of_the_present_rate_holds() -> None:
    first, last = BrokerMark(1000, 5, None), BrokerMark(2000, 5, None)
    rates = {LEADER_RATE: 2000, FOLLOWER_RATE: 2000}
    now = BrokerThrottle(rates, BrokerMark.all_of([first.key, last.key]))
    assert now.mark == last
    assert now.restored() == {LEADER_RATE: 5, FOLLOWER_RATE: None}
    assert BrokerThrottle({}, now.marks).restored() == {}


def test_no_mark() -> None:
    assert BrokerMark.all_of(["kafkaclient.throttle.x", "num.partitions"]) == ()
