"""Which replicas are let go shortly before they arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.cluster_reader import FETCH_BYTES, Remaining, Rest, lacking
from kafkaclient.admin.reassign.early_unthrottle import SHARE, EarlyUnthrottling
from kafkaclient.types import TopicPartition

QUOTA = 10_000_000
SAVED = 5_000_000


def replica(partition: int, node: int = 2) -> tuple[TopicPartition, int]:
    return TopicPartition("t", partition), node


def remaining(at: float, *nbytes: int, quota: int = QUOTA, leader: int = 0) -> Remaining:
    rests = {replica(n): Rest(leader, each) for n, each in enumerate(nbytes)}
    return Remaining(at, rests, {leader: quota, 2: quota})


def test_what_a_fetch_brings_is_let_go_once() -> None:
    releases = EarlyUnthrottling()
    assert releases.due(remaining(0.0, FETCH_BYTES + 1, FETCH_BYTES, 0)) == [replica(2), replica(1)]
    assert releases.due(remaining(1.0, FETCH_BYTES + 1, FETCH_BYTES, 0)) == []


def test_the_least_first_and_no_more_than_the_share() -> None:
    releases = EarlyUnthrottling()
    rests = [1_000_000 - 1000 * n for n in range(10)]
    first = releases.due(remaining(0.0, *rests))
    assert first == [replica(n) for n in (9, 8, 7, 6, 5)]
    assert releases.due(remaining(0.1, *rests)) == []
    assert releases.due(remaining(1.0, *rests)) == [replica(4), replica(3)]


def test_nothing_is_saved_for_longer() -> None:
    releases = EarlyUnthrottling()
    releases.due(remaining(0.0))
    assert len(releases.due(remaining(3600.0, *[1_000_000] * 20))) == SAVED / 1_000_000


def test_a_small_quota_lets_go_of_one_when_all_is_saved() -> None:
    releases = EarlyUnthrottling()
    rests = [900_000, 900_000]
    assert releases.due(remaining(0.0, *rests, quota=1_000_000)) == [replica(0)]
    assert releases.due(remaining(4.4, *rests, quota=1_000_000)) == []
    assert releases.due(remaining(4.6, *rests, quota=1_000_000)) == [replica(1)]


def test_a_quota_of_nothing_lets_nothing_go() -> None:
    assert EarlyUnthrottling().due(remaining(0.0, 0, quota=0)) == []


def test_what_is_lacking() -> None:
    mb = 1_000_000
    assert lacking(10 * mb, 9 * mb, 900, 1000) == 1 * mb, "many small records, after large ones"
    assert lacking(9 * mb, 10 * mb, 0, 1000) == 0
    assert lacking(0, 0, 0, 0) == 0
    assert lacking(900 * mb, 899 * mb, 100, 1000) == 90 * mb, "the leader has deleted a segment"


def test_both_sides_have_their_share() -> None:
    releases = EarlyUnthrottling()
    rests = {replica(n, node=n): Rest(0, 1_000_000) for n in range(1, 10)}
    rates = dict.fromkeys(range(10), QUOTA)
    assert len(releases.due(Remaining(0.0, rests, rates))) == SAVED / 1_000_000
    del rates[0]
    assert len(releases.due(Remaining(0.0, rests, rates))) == 4


def test_what_failed_is_tried_again() -> None:
    releases = EarlyUnthrottling()
    assert releases.due(remaining(0.0, 100)) == [replica(0)]
    releases.failed(replica(0))
    assert releases.due(remaining(1.0, 100)) == [replica(0)]


def test_close_is_what_may_arrive_before_the_next_look() -> None:
    releases = EarlyUnthrottling()
    assert releases.is_close(remaining(0.0, FETCH_BYTES + QUOTA), 1.0)
    assert not releases.is_close(remaining(0.0, FETCH_BYTES + QUOTA + 1), 1.0)
    releases.due(remaining(0.0, 0))
    assert not releases.is_close(remaining(0.0, 0), 1.0)


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.lists(st.integers(0, 2 * FETCH_BYTES), max_size=30)),
        max_size=20,
    ),
    st.integers(2 * FETCH_BYTES, 10**9),
)
def test_never_more_than_the_share_of_the_quota(looks, quota) -> None:
    """What is let go in any time is the share in it, and what was saved before."""
    releases = EarlyUnthrottling()
    at = total = 0.0
    for passed, sizes in looks:
        at += passed
        found = remaining(at, *sizes, quota=quota)
        total += sum(found.rests[each].nbytes for each in releases.due(found))
        # One that is more than can be saved may take more, once all is saved.
        assert total <= SHARE * quota * (2.5 + at) + FETCH_BYTES
