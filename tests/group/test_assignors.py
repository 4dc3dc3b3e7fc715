"""The assignors of classic groups."""

from __future__ import annotations

import pytest

from kafkaclient.group.assignors import ASSIGNORS, AssignedMember, without_conflicts
from kafkaclient.types import TopicPartition


def numbers(found: dict[str, set[TopicPartition]]) -> dict[str, list[int]]:
    return {name: sorted(p.partition for p in partitions) for name, partitions in found.items()}


@pytest.mark.parametrize(
    ("assignor", "expected"),
    [
        ("range", {"b": [0, 1, 2], "a": [3, 4]}),
        ("roundrobin", {"b": [0, 2, 4], "a": [1, 3]}),
        ("sticky", {"b": [0, 2, 4], "a": [1, 3]}),
    ],
)
def test_members_are_served_in_their_order(assignor: str, expected: dict[str, list[int]]) -> None:
    members = {name: AssignedMember(["t"]) for name in "ba"}
    assert numbers(ASSIGNORS[assignor](members, {"t": 5})) == expected


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_each_partition_has_one_member_that_subscribes_to_it(assignor: str) -> None:
    members = {"a": AssignedMember(["t"]), "b": AssignedMember(["t", "u"]), "c": AssignedMember([])}
    found = ASSIGNORS[assignor](members, {"t": 3, "u": 2})
    assigned = [p for partitions in found.values() for p in partitions]
    assert sorted(assigned) == [*(("t", n) for n in range(3)), ("u", 0), ("u", 1)]
    assert not found["c"]
    assert all(p.topic == "t" for p in found["a"])


def test_sticky_moves_as_little_as_possible() -> None:
    had = {"a": range(4), "b": range(4, 6)}
    members = {
        name: AssignedMember(["t"], [TopicPartition("t", n) for n in numbers])
        for name, numbers in had.items()
    }
    members["c"] = AssignedMember(["t"])
    found = numbers(ASSIGNORS["sticky"](members, {"t": 6}))
    assert [len(found[name]) for name in "abc"] == [2, 2, 2]
    assert set(found["a"]) < set(range(4))
    assert found["b"] == [4, 5]


def test_the_latest_claim_counts() -> None:
    p = TopicPartition("t", 0)
    assert without_conflicts({"a": ([p], 3), "b": ([p], 4)}) == {"b": [p]}
    assert without_conflicts({"a": ([p], 4), "b": ([p], 4)}) == {}
