"""The partitioners of before KIP-794 against Java's tests of them (KIP-480 specification, 2.6)."""

from __future__ import annotations

from collections import Counter
from itertools import count, pairwise
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.cluster.view import ClusterView, PartitionView, TopicView
from kafkaclient.producer.partitioning.partitioners import (
    Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    named_partitioner,
)
from kafkaclient.wire.murmur2 import partition_for_key

LOAD: Any = None  # none of these looks at the load


def cluster(**leaders: tuple[int, ...]) -> ClusterView:
    """``cluster(a=(0, -1))``: topic a has two partitions, the second one without leader."""
    topics = {
        name: TopicView(name, None, tuple(PartitionView(p, node) for p, node in enumerate(nodes)))
        for name, nodes in leaders.items()
    }
    return ClusterView(topics=MappingProxyType(topics))


def random31() -> Any:
    rng = Random(480)
    return lambda: rng.getrandbits(31)


def sticky(**options: Any) -> StickyPartitioner:
    return StickyPartitioner(random31(), **options)


def ask(partitioner: Partitioner, topic: str, view: ClusterView, key: bytes | None = None) -> int:
    return partitioner.partition(topic, key, b"value", view, LOAD)


def counts(
    partitioner: Partitioner, topic: str, view: ClusterView, times: int, key: bytes | None = None
) -> Counter[int]:
    return Counter(ask(partitioner, topic, view, key) for _ in range(times))


# --- sticky: StickyPartitionCacheTest ----------------------------------------------------------


def test_sticky_partition_cache() -> None:
    """testStickyPartitionCache: moves from where it is, not on old news; one partition stays."""
    partitioner, view = sticky(), cluster(a=(0, 1, 2), b=(0,))
    first = ask(partitioner, "a", view)
    assert ask(partitioner, "a", view) == first
    only = ask(partitioner, "b", view)
    assert ask(partitioner, "b", view) == only == 0

    partitioner.on_new_batch("a", view, first)
    partitioner.on_new_batch("b", view, only)
    second = ask(partitioner, "a", view)
    assert second != first
    assert ask(partitioner, "b", view) == only

    partitioner.on_new_batch("a", view, first)  # it has been left already
    assert ask(partitioner, "a", view) == second


def test_unavailable_partitions() -> None:
    """unavailablePartitionsTest: A never its leaderless 1, B always its only led 1, C its 0."""
    partitioner, view = sticky(), cluster(a=(0, -1, 2), b=(-1, 0, -1), c=(-1,))
    for topic, never, always in (("a", 1, None), ("b", None, 1), ("c", None, 0)):
        seen = []
        for _ in range(100):
            seen.append(ask(partitioner, topic, view))
            partitioner.on_new_batch(topic, view, seen[-1])
        assert never not in seen
        assert always is None or set(seen) == {always}
        assert always is not None or all(before != after for before, after in pairwise(seen))


def test_without_any_leader_every_partition_may_be_it() -> None:
    partitioner, view = sticky(), cluster(a=(-1, -1, -1))
    seen = set()
    for _ in range(50):
        seen.add(ask(partitioner, "a", view))
        partitioner.on_new_batch("a", view, ask(partitioner, "a", view))
    assert seen == {0, 1, 2}


# --- uniform sticky: UniformStickyPartitionerTest ----------------------------------------------


def test_uniform_sticky_with_unavailable_partitions() -> None:
    """testRoundRobinWithUnavailablePartitions: 50 calls, a new batch, 50 calls: equal counts."""
    partitioner, view = sticky(ignore_keys=True), cluster(a=(0, -1, 2))
    seen = counts(partitioner, "a", view, 50)
    (first,) = seen
    partitioner.on_new_batch("a", view, first)
    seen += counts(partitioner, "a", view, 50)
    assert seen == {0: 50, 2: 50}


@pytest.mark.parametrize("key", [b"key", None])
def test_uniform_sticky_with_and_without_key(key: bytes | None) -> None:
    """testRoundRobinWithKeyBytes and WithNullKeyBytes: 30 calls, a new batch, 30, news of the
    old batch, 30: 30 on the old partition, 60 on the new one; another topic changes nothing."""
    partitioner, view = sticky(ignore_keys=True), cluster(a=(0, 1, 2), b=(0, 1))

    def thirty() -> Counter[int]:
        seen: Counter[int] = Counter()
        for n in range(30):
            seen[ask(partitioner, "a", view, key)] += 1
            if n % 5 == 0:
                ask(partitioner, "b", view, key)
        return seen

    old = thirty()
    (first,) = old
    partitioner.on_new_batch("a", view, first)
    new = thirty()
    (second,) = new
    partitioner.on_new_batch("a", view, first)
    new += thirty()
    assert first != second
    assert (old, new) == ({first: 30}, {second: 60})


# --- round robin: RoundRobinPartitionerTest ----------------------------------------------------


def test_round_robin_with_unavailable_partitions() -> None:
    """testRoundRobinWithUnavailablePartitions: 100 calls on two led partitions of three."""
    partitioner, view = RoundRobinPartitioner(), cluster(a=(0, -1, 2))
    assert counts(partitioner, "a", view, 100) == {0: 50, 2: 50}


@pytest.mark.parametrize("key", [b"key", None])
def test_round_robin_with_and_without_key(key: bytes | None) -> None:
    """testRoundRobinWithKeyBytes and WithNullKeyBytes: 10 each, every topic by itself."""
    partitioner, view = RoundRobinPartitioner(), cluster(a=(0, 1, 2), b=(0, 1))
    seen, others = [], []
    for n in range(30):
        seen.append(ask(partitioner, "a", view, key))
        if n % 5 == 0:
            others.append(ask(partitioner, "b", view, key))
    assert seen == [0, 1, 2] * 10
    assert others == [0, 1, 0, 1, 0, 1]


def test_round_robin_without_any_leader() -> None:
    assert counts(RoundRobinPartitioner(), "a", cluster(a=(-1, -1)), 10) == {0: 5, 1: 5}


# --- keys: DefaultPartitionerTest --------------------------------------------------------------


def test_key_partition_is_stable() -> None:
    """testKeyPartitionIsStable; the hash goes over all partitions, with a leader or without."""
    view = cluster(a=(0, -1, -1, -1, -1))
    for partitioner in (sticky(), RandomPartitioner(random31())):
        for key in (b"key", b"", "žluťoučký".encode()):
            assert counts(partitioner, "a", view, 5, key) == {partition_for_key(key, 5): 5}


def test_a_new_batch_of_a_keyed_record_moves_on_only_from_the_sticky_partition() -> None:
    partitioner, view = sticky(), cluster(a=(0, 1, 2, 3))
    at = ask(partitioner, "a", view)
    for other in {0, 1, 2, 3} - {at}:
        partitioner.on_new_batch("a", view, other)
    assert ask(partitioner, "a", view) == at
    partitioner.on_new_batch("a", view, at)
    assert ask(partitioner, "a", view) != at


def test_random_is_even_among_partitions_with_a_leader() -> None:
    counting = count()
    partitioner = RandomPartitioner(counting.__next__)
    assert counts(partitioner, "a", cluster(a=(0, -1, 2, 3)), 300) == {0: 100, 2: 100, 3: 100}
    assert set(counts(partitioner, "a", cluster(a=(-1, -1)), 10)) == {0, 1}
    ignoring = RandomPartitioner(counting.__next__, ignore_keys=True)
    assert set(counts(ignoring, "a", cluster(a=(0, 1)), 10, b"key")) == {0, 1}


# --- what changes under them -------------------------------------------------------------------


def test_a_sticky_partition_that_is_gone_or_lost_its_leader_is_left_at_once() -> None:
    """Java goes on with it until the next batch."""
    partitioner = StickyPartitioner(iter([2, 0, 0, 1]).__next__)
    assert ask(partitioner, "a", cluster(a=(0, 1, 2))) == 2
    assert ask(partitioner, "a", cluster(a=(0, 1, -1))) == 0
    assert ask(partitioner, "a", cluster(a=(-1, 1))) == 1
    assert ask(partitioner, "a", cluster(a=(-1, -1))) == 1, "nobody is better off"
    assert ask(partitioner, "a", cluster(a=(-1,))) == 0


@given(
    views=st.lists(st.lists(st.integers(-1, 2), min_size=1, max_size=6), min_size=1, max_size=10),
    seed=st.integers(0, 1000),
    name=st.sampled_from(["sticky", "uniform-sticky", "round-robin", "random"]),
)
def test_never_a_partition_without_leader_while_another_has_one(
    views: list[list[int]], seed: int, name: str
) -> None:
    """Whatever moves, shrinks and grows; and new batches in a row differ while they can."""
    rng = Random(seed)
    partitioner = named_partitioner(name, lambda: rng.getrandbits(31))
    assert partitioner is not None
    on_new_batch = getattr(partitioner, "on_new_batch", None)
    for leaders in views:
        view = cluster(a=tuple(leaders))
        available = view.topics["a"].available
        for _ in range(4):
            at = ask(partitioner, "a", view)
            assert 0 <= at < len(leaders)
            assert at in available or not available
            if on_new_batch is not None:
                assert ask(partitioner, "a", view) == at
                on_new_batch("a", view, at)
                assert ask(partitioner, "a", view) != at or len(available) < 2


@given(partitions=st.integers(1, 9), rounds=st.integers(1, 5))
def test_round_robin_is_even_after_every_round(partitions: int, rounds: int) -> None:
    view = cluster(a=tuple(range(partitions)))
    seen = counts(RoundRobinPartitioner(), "a", view, partitions * rounds)
    assert set(seen.values()) == {rounds}
    assert len(seen) == partitions


def test_names() -> None:
    mine = RoundRobinPartitioner()
    assert named_partitioner(mine, random31()) is mine
    for built_in in ("late", "kip794"):
        assert named_partitioner(built_in, random31()) is None
