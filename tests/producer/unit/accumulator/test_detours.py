"""Which lane a partition goes by, and which partitions are better left, when brokers are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.cluster.view import PartitionView, TopicView
from kafkaclient.producer.settings import node_of, side_of

if TYPE_CHECKING:
    from tests.producer.support import Bench

NODES = st.integers(0, 5)


def view(name: str, *replicas: list[int]) -> TopicView:
    """A topic's partitions by their in-sync replicas, the first of which leads."""
    return TopicView(
        name,
        None,
        tuple(
            PartitionView(n, (isr or [-1])[0], 1, isr, isr)
            for n, isr in enumerate(map(tuple, replicas))
        ),
    )


@given(st.integers(0, 2**31 - 3))
def test_a_side_lane_is_nobody_elses(node: int) -> None:
    assert node_of(node) == node == node_of(side_of(node))
    assert side_of(node) < -1
    assert node_of(-1) == -1


def test_what_needs_a_dead_broker_goes_by_the_side(bench: type[Bench]) -> None:
    b = bench(late=True)
    b.accumulator.update_topic(view("test", [0, 1], [0, 2], [1, 2], [2, 0]), 0.0)
    queues = [b.topic.queue(n) for n in range(4)]
    b.accumulator.detours.set_dead_brokers(frozenset({2}), 0.0)
    # 1 and 2 need broker 2. The leader of 1 answers for 0 as well, that of 2 for nothing else.
    assert [queue.lane for queue in queues] == [0, side_of(0), 1, 2]
    assert b.topic.avoided == {1, 2, 3}
    assert set(b.topic.fair_share.lanes) == {0}
    assert b.accumulator.detours.side_lanes == {side_of(0)}
    b.accumulator.detours.set_dead_brokers(frozenset(), 0.0)
    assert [queue.lane for queue in queues] == [0, 0, 1, 2]
    assert not b.topic.avoided
    assert set(b.topic.fair_share.lanes) == {0, 1, 2}
    assert not b.accumulator.detours.side_lanes


def test_a_partition_changes_its_lane_with_nothing_on_the_wire(bench: type[Bench]) -> None:
    b = bench(late=True)
    b.accumulator.update_topic(view("test", [0, 1], [0, 2]), 0.0)
    first, second = b.put(1, b"first"), b.put(1, b"second")
    [batch] = b.drain(0, max_bytes=1000)
    third = b.put(1, b"third")
    b.accumulator.detours.set_dead_brokers(frozenset({2}), 0.0)
    queue = b.topic.queue(1)
    assert (queue.lane, queue.target_lane) == (0, side_of(0))
    assert not b.drain(0, max_bytes=1000), "else there would always be something on the wire"
    b.incomplete.complete(batch, 0, -1, 0.0)
    assert queue.lane == side_of(0)
    assert b.lines.lanes_with_work() == {side_of(0)}
    [after] = b.drain(side_of(0), max_bytes=1000)
    b.incomplete.complete(after, 2, -1, 0.0)
    assert all(delivery.done() for delivery in (first, second, third))


def test_where_everything_needs_it_nothing_goes_another_way(bench: type[Bench]) -> None:
    b = bench(late=True)
    b.accumulator.update_topic(view("test", [0, 2], [1, 2], [2, 0]), 0.0)
    b.accumulator.detours.set_dead_brokers(frozenset({2}), 0.0)
    assert not b.topic.side_lane_of
    assert not b.topic.avoided
    assert set(b.topic.fair_share.lanes) == {0, 1, 2}


def test_a_new_leader_and_a_smaller_isr_are_followed(bench: type[Bench]) -> None:
    b = bench(late=True)
    b.accumulator.update_topic(view("test", [0, 1], [0, 2], [2, 1]), 0.0)
    queues = [b.topic.queue(n) for n in range(3)]
    b.accumulator.detours.set_dead_brokers(frozenset({2}), 0.0)
    b.accumulator.update_topic(view("test", [0, 1], [0], [1]), 1.0)
    b.accumulator.detours.update({"test"}, 1.0)
    assert [queue.lane for queue in queues] == [0, 0, 1]
    assert not b.topic.avoided
    assert set(b.topic.fair_share.lanes) == {0, 1}


def test_a_partition_that_had_no_leader_when_the_dead_broker_returned(bench: type[Bench]) -> None:
    b = bench(late=True)
    b.accumulator.update_topic(view("test", [0], [2], [1]), 0.0)
    b.accumulator.detours.set_dead_brokers(frozenset({2}), 0.0)
    b.accumulator.update_topic(view("test", [0], [], [1]), 1.0)
    b.accumulator.detours.update({"test"}, 1.0)
    assert b.topic.avoided == {1}
    b.accumulator.detours.set_dead_brokers(frozenset(), 2.0)
    b.accumulator.update_topic(view("test", [0], [2], [1]), 3.0)
    b.accumulator.detours.update({"test"}, 3.0)
    assert not b.topic.avoided, "records without key go to it again"
    assert set(b.topic.fair_share.lanes) == {0, 1, 2}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
@given(
    st.lists(st.lists(NODES, min_size=0, max_size=3, unique=True), min_size=1, max_size=8),
    st.lists(st.frozensets(NODES), max_size=4),
)
def test_every_partition_has_one_way_and_comes_back_to_its_own(
    bench: type[Bench], replicas: list[list[int]], deaths: list[frozenset[int]]
) -> None:
    b = bench(late=True)
    b.accumulator.update_topic(view("test", *replicas), 0.0)
    queues = [b.topic.queue(n) for n in range(len(replicas))]
    for dead in deaths:
        b.accumulator.detours.set_dead_brokers(dead, 0.0)
        for queue, isr in zip(queues, replicas, strict=True):
            led = bool(isr) and isr[0] not in dead
            clean = led and dead.isdisjoint(isr)
            assert node_of(queue.lane) == queue.leader
            assert queue.lane == queue.leader or (led and not clean)
            assert not (clean and queue.partition in b.topic.avoided)
        if any(isr and isr[0] not in dead for isr in replicas):
            assert set(b.topic.fair_share.lanes)
    b.accumulator.detours.set_dead_brokers(frozenset(), 0.0)
    assert [queue.lane for queue in queues] == [queue.leader for queue in queues]
    assert set(b.topic.fair_share.lanes) == {isr[0] for isr in replicas if isr}


ISRS = st.lists(st.lists(NODES, min_size=0, max_size=3, unique=True), min_size=1, max_size=4)
VIEWS = st.dictionaries(st.sampled_from(["a", "b", "c"]), ISRS, min_size=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
@given(VIEWS, st.lists(st.one_of(st.frozensets(NODES, max_size=2), VIEWS), max_size=5))
def test_to_look_at_changed_topics_alone_is_enough(
    bench: type[Bench], first: dict[str, list[list[int]]], events: list[object]
) -> None:
    """Brokers die and return, and leaders change: the outcome is that of a look at everything."""
    b = bench(late=True)
    detours, views, dead = b.accumulator.detours, dict(first), frozenset[int]()
    for event in [first, *events]:
        if isinstance(event, frozenset):
            dead = event
            detours.set_dead_brokers(dead, 0.0)
            continue
        assert isinstance(event, dict)
        views |= event
        for name, isrs in event.items():
            b.accumulator.topic(name)
            b.accumulator.update_topic(view(name, *isrs), 0.0)
        detours.update(event, 0.0)
    other = bench(late=True)
    for name, isrs in views.items():
        other.accumulator.topic(name)
        other.accumulator.update_topic(view(name, *isrs), 0.0)
    other.accumulator.detours.set_dead_brokers(dead, 0.0)
    for name in views:
        mine, theirs = b.accumulator.topic(name), other.accumulator.topic(name)
        assert mine.side_lane_of == theirs.side_lane_of
        assert mine.avoided == theirs.avoided
    assert detours.side_lanes == other.accumulator.detours.side_lanes
