"""What is ours, what was there before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.marks import (
    FOLLOWER_RATE,
    LEADER_RATE,
    MARK,
    BrokerMark,
    MarkedList,
)

elements = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9)).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    max_size=6,
).map(tuple)


@given(elements, elements)
def test_what_was_there_comes_back(before, ours) -> None:
    was = MarkedList(before)
    marked = MarkedList.parse(was.with_ours(ours).value)
    assert marked.before == before
    assert set(before) | set(ours) == set(before) | set(marked.ours or ())
    assert MarkedList.parse(marked.with_ours(()).value) == was


def test_the_value_that_topics_get() -> None:
    assert MarkedList.parse("").with_ours(("2:1", "10:1")).value == f"{MARK},10:1,2:1"
    assert MarkedList.parse(" 5:5 ,2:1,").with_ours(("2:1", "0:1")).value == f"5:5,2:1,{MARK},0:1"
    assert MarkedList.parse(f"{MARK},0:1").with_ours(()).value is None
    assert MarkedList.parse("0:1").with_ours(()).value == "0:1"


def test_a_list_of_all_replicas_stays() -> None:
    every = MarkedList.parse("*")
    assert every.with_ours(("0:1",)) == every
    assert not every.with_ours(("0:1",)).marked


@pytest.mark.parametrize("rates", [(None, None), (5, None), (2**63 - 1, 0)])
def test_a_brokers_mark(rates: tuple[int | None, int | None]) -> None:
    mark = BrokerMark(1000, *rates)
    assert BrokerMark.of(["num.partitions", mark.key]) == mark
    now = {LEADER_RATE: 1000, FOLLOWER_RATE: 1000}
    assert mark.restored(now) == dict(zip((LEADER_RATE, FOLLOWER_RATE), rates, strict=True))


def test_a_rate_that_somebody_changed_is_theirs() -> None:
    mark = BrokerMark(1000, 5, None)
    assert mark.restored({LEADER_RATE: 1000, FOLLOWER_RATE: 7}) == {LEADER_RATE: 5}
    assert mark.restored({}) == {}


def test_no_mark() -> None:
    assert BrokerMark.of(["kafkaclient.throttle.x", "num.partitions"]) is None
