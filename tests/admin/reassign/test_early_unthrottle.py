"""Which replicas are let go shortly before they arrive."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.clearing import (
    FETCH_BYTES,
    SHARE,
    EarlyUnthrottling,
    lacking,
)
from kafkaclient.admin.reassign.plan import Move
from kafkaclient.admin.reassign.progress import Measurements
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import PartitionView

QUOTA = 10_000_000
SAVED = 5_000_000
MOVES = {TopicPartition("t", n): Move(frozenset({0}), frozenset({2})) for n in range(30)}


def replica(partition: int, node: int = 2) -> tuple[TopicPartition, int]:
    return TopicPartition("t", partition), node


def remaining(at: float, *nbytes: int, quota: int = QUOTA, apart: bool = False) -> Measurements:
    """Broker 0 leads each partition, broker 2, or with ``apart`` each a broker of its own, lacks
    these bytes of it."""
    size = 10 * FETCH_BYTES
    lacks = {replica(n, n + 1 if apart else 2): each for n, each in enumerate(nbytes)}
    sizes = {0: {partition: size for partition, _ in lacks}}
    for (partition, node), each in lacks.items():
        sizes.setdefault(node, {})[partition] = size - each
    views = {p: PartitionView(p.partition, leader=0, replicas=(0, n), isr=(0,)) for p, n in lacks}
    return Measurements(
        at,
        live=frozenset(sizes),
        ongoing={},
        partitions=views,
        sizes=sizes,
        lags=dict.fromkeys(lacks, 1),
        records=dict.fromkeys(views, 1000),
        rates=dict.fromkeys(sizes, quota),
    )


def let_go(early: EarlyUnthrottling, now: Measurements) -> list[tuple[TopicPartition, int]]:
    due = early.due(now)
    early.unthrottled.update(due)
    return due


def test_what_a_fetch_brings_is_let_go_once() -> None:
    early = EarlyUnthrottling(MOVES)
    assert let_go(early, remaining(0.0, FETCH_BYTES + 1, FETCH_BYTES, 0)) == [
        replica(2),
        replica(1),
    ]
    assert let_go(early, remaining(1.0, FETCH_BYTES + 1, FETCH_BYTES, 0)) == []


def test_the_least_first_and_no_more_than_the_share() -> None:
    early = EarlyUnthrottling(MOVES)
    rests = [1_000_000 - 1000 * n for n in range(10)]
    first = let_go(early, remaining(0.0, *rests))
    assert first == [replica(n) for n in (9, 8, 7, 6, 5)]
    assert let_go(early, remaining(0.1, *rests)) == []
    assert let_go(early, remaining(1.0, *rests)) == [replica(4), replica(3)]


def test_nothing_is_saved_for_longer() -> None:
    early = EarlyUnthrottling(MOVES)
    let_go(early, remaining(0.0))
    assert len(let_go(early, remaining(3600.0, *[1_000_000] * 20))) == SAVED / 1_000_000


def test_a_small_quota_lets_go_of_one_when_all_is_saved() -> None:
    early = EarlyUnthrottling(MOVES)
    rests = [900_000, 900_000]
    assert let_go(early, remaining(0.0, *rests, quota=1_000_000)) == [replica(0)]
    assert let_go(early, remaining(4.4, *rests, quota=1_000_000)) == []
    assert let_go(early, remaining(4.6, *rests, quota=1_000_000)) == [replica(1)]


def test_a_quota_of_nothing_lets_nothing_go() -> None:
    assert EarlyUnthrottling(MOVES).due(remaining(0.0, 0, quota=0)) == []


def test_what_is_lacking() -> None:
    mb = 1_000_000
    assert lacking(10 * mb, 9 * mb, 900, 1000) == 1 * mb, "many small records, after large ones"
    assert lacking(9 * mb, 10 * mb, 0, 1000) == 0
    assert lacking(0, 0, 0, 0) == 0
    assert lacking(900 * mb, 899 * mb, 100, 1000) == 90 * mb, "the leader has deleted a segment"


def test_both_sides_have_their_share() -> None:
    now = remaining(0.0, *[1_000_000] * 9, apart=True)
    early = EarlyUnthrottling(MOVES)
    assert len(let_go(early, now)) == SAVED / 1_000_000
    assert len(let_go(early, replace(now, rates=dict.fromkeys(range(1, 10), QUOTA)))) == 4


def test_only_replicas_of_the_moves_that_exist_and_are_not_in_sync() -> None:
    now = remaining(0.0, 100)
    (partition,) = now.partitions
    in_sync = now.partitions[partition]._replace(isr=(0, 2))
    assert EarlyUnthrottling(MOVES).due(now) == [(partition, 2)]
    assert EarlyUnthrottling({}).due(now) == []
    assert EarlyUnthrottling(MOVES).due(replace(now, partitions={partition: in_sync})) == []
    assert EarlyUnthrottling(MOVES).due(replace(now, sizes={0: now.sizes[0]})) == []


def test_what_was_not_unthrottled_is_tried_again() -> None:
    early = EarlyUnthrottling(MOVES)
    assert early.due(remaining(0.0, 100)) == early.due(remaining(1.0, 100)) == [replica(0)]


def test_close_is_what_may_arrive_before_the_next_look() -> None:
    early = EarlyUnthrottling(MOVES)
    quota = 1_000_000
    assert early.pause_s(remaining(0.0, FETCH_BYTES + quota, quota=quota)) < 1.0
    assert early.pause_s(remaining(0.0, FETCH_BYTES + quota + 1, quota=quota)) == 1.0
    let_go(early, remaining(0.0, 0))
    assert early.pause_s(remaining(0.0, 0)) == 1.0


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.lists(st.integers(0, 2 * FETCH_BYTES), max_size=30)),
        max_size=20,
    ),
    st.integers(2 * FETCH_BYTES, 10**9),
)
def test_never_more_than_the_share_of_the_quota(looks, quota) -> None:
    """What is let go in any time is the share in it, and what was saved before."""
    early = EarlyUnthrottling(MOVES)
    at = total = 0.0
    for passed, sizes in looks:
        at += passed
        found = remaining(at, *sizes, quota=quota)
        total += sum(sizes[partition.partition] for partition, _ in let_go(early, found))
        # One that is more than can be saved may take more, once all is saved.
        assert total <= SHARE * quota * (2.5 + at) + FETCH_BYTES
