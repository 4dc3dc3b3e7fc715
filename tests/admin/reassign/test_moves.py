"""Upstream: ReassignPartitionsUnitTest.testMoveMap, and KIP-73's question 2."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.plan import (
    Move,
    bootstrap_map,
    follower_replicas,
    leader_replicas,
    move_map,
    moving_brokers,
)
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import OngoingReassignment


def at(text: str) -> TopicPartition:
    topic, _, partition = text.partition("-")
    return TopicPartition(topic, int(partition))


def ongoing(name: str, replicas, adding, removing) -> OngoingReassignment:
    return OngoingReassignment(at(name), tuple(replicas), tuple(adding), tuple(removing))


ACTIVE = {
    move.partition: move
    for move in (
        ongoing("foo-0", [1, 2, 3, 4], [4], [3]),
        ongoing("foo-1", [4, 5, 6, 7, 8], [7, 8], [4, 5]),
        *(ongoing(f"foo-{n}", [1, 2, 3, 4], [3, 4], [1, 2]) for n in (2, 3, 4, 5)),
    )
}
PROPOSED = {
    at("foo-0"): (1, 2, 5),
    at("foo-2"): (3, 4),
    at("foo-3"): (5, 6),
    at("foo-4"): (3,),
    at("foo-5"): (3, 4, 5, 6),
    at("bar-0"): (1, 2, 3),
}
PRESENT = dict.fromkeys(PROPOSED, (1, 2, 3, 4)) | {at("bar-0"): (2, 3, 4)}


def test_move_map() -> None:
    moves = move_map(ACTIVE, PROPOSED, PRESENT)
    assert moves == {
        at("foo-0"): Move(frozenset({1, 2, 3}), frozenset({5})),
        at("foo-1"): Move(frozenset({4, 5, 6}), frozenset({7, 8})),
        at("foo-2"): Move(frozenset({1, 2}), frozenset({3, 4})),
        at("foo-3"): Move(frozenset({1, 2}), frozenset({5, 6})),
        at("foo-4"): Move(frozenset({1, 2}), frozenset({3})),
        at("foo-5"): Move(frozenset({1, 2}), frozenset({3, 4, 5, 6})),
        at("bar-0"): Move(frozenset({2, 3, 4}), frozenset({1})),
    }
    assert {topic: ",".join(each) for topic, each in leader_replicas(moves).items()} == {
        "foo": "0:1,0:2,0:3,1:4,1:5,1:6,2:1,2:2,3:1,3:2,4:1,4:2,5:1,5:2",
        "bar": "0:2,0:3,0:4",
    }
    assert {topic: ",".join(each) for topic, each in follower_replicas(moves).items()} == {
        "foo": "0:5,1:7,1:8,2:3,2:4,3:5,3:6,4:3,5:3,5:4,5:5,5:6",
        "bar": "0:1",
    }
    assert moving_brokers(moves) == set(range(1, 9))


def test_elements_are_sorted_as_text() -> None:
    moves = {at(f"t-{n}"): Move(frozenset({1}), frozenset({2})) for n in (2, 10)}
    assert leader_replicas(moves) == {"t": ("10:1", "2:1")}


def test_partitions_that_stay_where_they_are_are_throttled_at_their_leaders() -> None:
    moves = move_map({}, {at("t-0"): (1, 2)}, {at("t-0"): (2, 1)})
    assert leader_replicas(moves) == {"t": ("0:1", "0:2")}
    assert follower_replicas(moves) == {}


def test_a_broker_that_starts_empty() -> None:
    present = {at("t-0"): (1, 2, 3), at("t-1"): (3, 1), at("t-2"): (1, 2)}
    moves = bootstrap_map([3], present)
    assert leader_replicas(moves) == {"t": ("0:1", "0:2", "1:1")}
    assert follower_replicas(moves) == {"t": ("0:3", "1:3")}


nodes = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple)


@given(st.lists(st.tuples(nodes, nodes), min_size=1, max_size=5))
def test_every_new_replica_is_throttled_on_both_sides(rows) -> None:
    present = {TopicPartition("t", n): old for n, (old, _) in enumerate(rows)}
    proposed = {TopicPartition("t", n): new for n, (_, new) in enumerate(rows)}
    moves = move_map({}, proposed, present)
    followers = set(follower_replicas(moves).get("t", ()))
    leaders = set(leader_replicas(moves)["t"])
    for n, (old, new) in enumerate(rows):
        for node in set(new) - set(old):
            assert f"{n}:{node}" in followers
        for node in old:
            assert f"{n}:{node}" in leaders
            assert f"{n}:{node}" not in followers
