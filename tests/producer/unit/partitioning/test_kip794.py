"""The built-in partitioner against Java's BuiltInPartitionerTest; random draws count up from 0."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.cluster.view import Broker, PartitionView, TopicView
from kafkaclient.producer.partitioning.kip794 import BuiltInPartitioner, LoadTable, load_table
from kafkaclient.producer.partitioning.partitioners import Rack


def topic(*leaders: int) -> TopicView:
    return TopicView("t", None, tuple(PartitionView(p, node) for p, node in enumerate(leaders)))


def make(sticky_bytes: int) -> BuiltInPartitioner:
    return BuiltInPartitioner(sticky_bytes, count().__next__)


def test_sticky_partitioning() -> None:
    partitioner, view = make(3), topic(0, 1, 2, 0)
    first = partitioner.current(view)
    assert not partitioner.update(1, view, all_full=True)
    assert partitioner.current(view) is first
    assert not partitioner.update(1, view, all_full=True)
    assert partitioner.current(view) is first
    assert partitioner.update(1, view, all_full=True)
    assert partitioner.current(view).partition != first.partition
    assert partitioner.switches == 1


def test_single_partition_is_kept_but_starts_from_no_bytes() -> None:
    partitioner, view = make(3), topic(0)
    for _ in range(7):
        before = partitioner.current(view)
        assert before.partition == 0
        if partitioner.update(3, view, all_full=True):
            assert partitioner.current(view) is not before
            assert partitioner.current(view).produced == 0
    assert partitioner.switches == 7


def test_switch_waits_for_the_batch_boundary_up_to_twice_the_bytes() -> None:
    partitioner, view = make(100), topic(0, 0)
    partitioner.current(view)
    assert not partitioner.update(150, view, all_full=False)
    assert not partitioner.update(49, view, all_full=False)
    assert partitioner.update(1, view, all_full=False)
    partitioner.current(view)
    assert not partitioner.update(100, view, all_full=False)
    assert partitioner.update(0, view, all_full=True)


def test_nothing_is_accounted_before_a_partition_was_chosen() -> None:
    partitioner = make(3)
    assert not partitioner.update(100, topic(0), all_full=True)


def test_huge_sticky_bytes_do_not_overflow() -> None:
    """Java doubles them as an int32 and switches at every append from 2^30 on."""
    partitioner, view = make(2**30), topic(0, 0)
    partitioner.current(view)
    assert not partitioner.update(2**30 - 1, view, all_full=True)


def test_a_leaderless_partition_is_not_chosen() -> None:
    partitioner, view = make(1), topic(0, -1, 1)
    seen = set()
    for _ in range(100):
        seen.add(partitioner.current(view).partition)
        partitioner.update(1, view, all_full=True)
    assert 1 not in seen
    assert len(seen) >= 2


def test_the_only_partition_with_a_leader_is_chosen() -> None:
    partitioner, view = make(1), topic(-1, 0, -1)
    for _ in range(10):
        assert partitioner.current(view).partition == 1
        partitioner.update(1, view, all_full=True)


def test_without_any_leader_any_partition_is_chosen() -> None:
    assert make(1).current(topic(-1)).partition == 0
    partitioner, view = make(1), topic(-1, -1, -1)
    assert [partitioner.next_partition(view) for _ in range(4)] == [0, 1, 2, 0]


def test_adaptive_frequencies_are_exact() -> None:
    partitioner, view = make(1), topic(0, 1, 2, 3, 0)
    table = load_table([5, 0, 3, 0, 1], range(5), 5)
    assert table is not None
    assert table.cumulative[-1] == 21
    partitioner.load = table
    chosen = Counter(partitioner.next_partition(view) for _ in range(42))
    assert [chosen[p] for p in range(5)] == [2, 12, 6, 12, 10]


def test_the_example_of_the_specification() -> None:
    table = load_table([0, 3, 1], [0, 1, 2], 3)
    assert table == LoadTable((4, 5, 8), (0, 1, 2))
    assert table
    assert [table.pick(draw) for draw in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("sizes", "partitions", "count_of_all"),
    [
        pytest.param([3], [0], 1, id="one partition"),
        pytest.param([], [], 3, id="no partition may be chosen"),
        pytest.param([0, 0, 0], [0, 1, 2], 3, id="all empty"),
        pytest.param([4, 4], [0, 1], 2, id="all alike"),
    ],
)
def test_no_table_where_there_is_nothing_to_weigh(
    sizes: list[int], partitions: list[int], count_of_all: int
) -> None:
    assert load_table(sizes, partitions, count_of_all) is None


def test_equal_queues_still_need_a_table_when_a_partition_is_left_out() -> None:
    assert load_table([0, 0], [0, 2], 3) == LoadTable((1, 2), (0, 2))


def test_sticky_bytes_must_be_more_than_zero() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make(0)


# --- racks (KIP-1123): partitions led in r0, r1, r0, r1; the client is in r0 ---------------------


def test_rack_aware_uniform() -> None:
    """BuiltInPartitionerTest, rack-aware: the exact draws."""
    rack = Rack("r0")
    partitioner, chosen = BuiltInPartitioner(1, count().__next__, near=rack.near), []

    def look(*racks: str | None) -> None:
        rack.update(Broker(node, "h", 1, name) for node, name in enumerate(racks))

    def switch(view: TopicView, times: int) -> list[int]:
        for _ in range(times):
            partitioner.update(1, view, all_full=True)
            chosen.append(partitioner.current(view).partition)
        return chosen[-times:]

    look("r0", "r1", "r0", "r1")
    everyone = topic(0, 1, 2, 3)
    assert partitioner.current(everyone).partition == 0
    assert switch(everyone, 2) == [2, 0]
    assert switch(topic(0, 1, -1, 3), 2) == [0, 0]
    assert switch(topic(-1, 1, -1, 3), 1) == [3]
    assert switch(everyone, 1) == [0]
    look(None, None, None, None)
    assert switch(everyone, 5) == [3, 0, 1, 2, 3]


def test_rack_aware_adaptive() -> None:
    """BuiltInPartitionerTest, rack-aware: weights by the rack's own maximum, the exact draws."""
    partitioner, view, near = make(1), topic(0, 1, 2, 3), {0, 2}
    partitioner.load = load_table([5, 0, 3, 0], range(4), 4, near)
    chosen = Counter(partitioner.next_partition(view) for _ in range(8))
    assert [chosen[p] for p in range(4)] == [2, 0, 6, 0]
    partitioner.load = load_table([1, 2, 3], [0, 1, 3], 4, near)
    assert {partitioner.next_partition(view) for _ in range(5)} == {0}
    partitioner.load = load_table([1, 2], [1, 3], 4, near)
    assert [partitioner.next_partition(view) for _ in range(2)] == [1, 3]


def test_all_alike_is_asked_of_all_racks() -> None:
    """As Java: the rack's own queues may be all alike, and are weighed nevertheless."""
    assert load_table([2, 2, 2], range(3), 3, {0, 1}) is None
    assert load_table([2, 2, 5], range(3), 3, {0, 1}) == LoadTable((1, 2), (0, 1))


@given(
    sizes=st.lists(st.integers(0, 20), min_size=2, max_size=8),
    left_out=st.sets(st.integers(0, 7)),
)
def test_every_choosable_partition_has_its_weight_and_no_other_any(
    sizes: list[int], left_out: set[int]
) -> None:
    partitions = [p for p in range(len(sizes)) if p not in left_out]
    table = load_table([sizes[p] for p in partitions], partitions, len(sizes))
    if table is None:
        return
    longest = max(sizes[p] for p in partitions)
    drawn = Counter(table.pick(draw) for draw in range(table.cumulative[-1]))
    assert drawn == {p: longest + 1 - sizes[p] for p in partitions}


@given(
    leaders=st.lists(st.lists(st.integers(-1, 2), min_size=1, max_size=6), min_size=1, max_size=8),
    sticky_bytes=st.integers(1, 50),
)
def test_it_rotates_and_stays_valid_while_topics_shrink_and_grow(
    leaders: list[list[int]], sticky_bytes: int
) -> None:
    partitioner = make(sticky_bytes)
    for nodes in leaders:
        view = topic(*nodes)
        partitioner.update(2 * sticky_bytes, view, all_full=False)
        for _ in range(3):
            at = partitioner.current(view).partition
            assert 0 <= at < len(nodes)
            assert nodes[at] >= 0 or not view.available
            assert partitioner.update(sticky_bytes, view, all_full=True)
