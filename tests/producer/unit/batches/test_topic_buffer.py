"""What the partitioner is shown of a topic's queues (RecordAccumulatorTest, and two deviations)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.producer.partitioning.kip794 import LoadTable

if TYPE_CHECKING:
    from tests.producer.support import Bench


def fill(accumulator: Any, *batches: int) -> None:
    for partition, number in enumerate(batches):
        accumulator.put_batches(partition, number)


def test_queue_lengths_count_batches_open_ones_too(bench: type[Bench]) -> None:
    b = bench(batch_size=1024, linger=1.0)
    fill(b, 0, 3, 0)
    b.put(2)
    b.refresh_load()
    assert b.topic.strategy.partitioner.load == LoadTable((4, 5, 8), (0, 1, 2))


def test_batches_on_the_wire_do_not_count(bench: type[Bench]) -> None:
    b = bench()
    fill(b, 1, 1, 1)
    assert len(b.drain(0)) == 2
    b.refresh_load()
    assert b.topic.strategy.partitioner.load == LoadTable((2, 4, 5), (0, 1, 2))


def test_a_partition_never_used_counts_as_empty(bench: type[Bench]) -> None:
    """Java switches adaptivity off until every partition was used (quirk c)."""
    b = bench()
    b.put_batches(0, 3)
    b.refresh_load()
    assert b.topic.strategy.partitioner.load == LoadTable((1, 5, 9), (0, 1, 2))
    assert list(b.topic.queues) == [0], "looking must not create queues"


def test_an_unavailable_broker_is_left_out_even_with_nothing_queued(bench: type[Bench]) -> None:
    """Java forgets the exclusion when the queue runs empty (quirk a, KAFKA-10888's follow-up)."""
    b = bench()
    b.refresh_load(0)
    assert b.topic.strategy.partitioner.load == LoadTable((1,), (2,))
    b.put_batches(2, 4)
    b.refresh_load(0)
    assert b.topic.strategy.partitioner.load == LoadTable((1,), (2,))


def test_an_empty_queue_does_not_inherit_an_excluded_ones_length(bench: type[Bench]) -> None:
    """Java reuses the slot of the excluded partition (quirk b)."""
    b = bench(leaders=(0, 1, 1))
    fill(b, 7, 0, 2)
    b.refresh_load(0)
    assert b.topic.strategy.partitioner.load == LoadTable((3, 4), (1, 2))


def test_leaderless_partitions_are_left_out(bench: type[Bench]) -> None:
    b = bench(leaders=(0, -1, 1))
    fill(b, 0, 5, 0)
    b.refresh_load()
    assert b.topic.strategy.partitioner.load == LoadTable((1, 2), (0, 2))


@pytest.mark.parametrize("leaders", [(-1, -1), (0,)])
def test_nothing_to_weigh(bench: type[Bench], leaders: tuple[int, ...]) -> None:
    b = bench(leaders=leaders)
    b.put_batches(0, 3)
    b.refresh_load()
    assert b.topic.strategy.partitioner.load is None


def test_all_unavailable_means_all_alike(bench: type[Bench]) -> None:
    b = bench()
    b.refresh_load(0, 1)
    assert b.topic.strategy.partitioner.load is None


def test_a_topic_that_grows_is_seen_at_once(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 1))
    fill(b, 1, 1)
    b.leaders.append(2)
    b.epochs.append(0)
    b.accumulator.update_topic(b.view(), 0.0)
    b.refresh_load()
    assert b.topic.strategy.partitioner.load == LoadTable((1, 2, 4), (0, 1, 2))


def test_no_metadata_no_change(bench: type[Bench]) -> None:
    b = bench()
    fill(b, 1)
    b.refresh_load()
    before = b.topic.strategy.partitioner.load
    b.topic.view = None
    b.refresh_load()
    assert b.topic.strategy.partitioner.load is before


def test_uniform_built_in_partitioner(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testUniformBuiltInPartitioner, with its exact draws."""
    b = bench(batch_size=1024)
    chosen, draws = [], []
    for size in (5, 1024, 1024, 1024, 1024):
        delivery = b.put(None, bytes(size))
        chosen.append(delivery._batch_result.partition)
        draws.append(b.draws)
    assert chosen == [0, 0, 1, 2, 0]
    assert draws == [1, 1, 2, 3, 4]


def test_adaptive_built_in_partitioner(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testAdaptiveBuiltInPartitioner: queues 1, 7, 2 give 14, 2, 12 of 28."""
    b = bench(batch_size=128)
    for partition, batches in enumerate((1, 7, 2)):
        for _ in range(batches):
            b.put(partition, bytes(128))
        assert len(b.queue(partition).batches) == batches
    b.refresh_load()
    assert b.topic.strategy.partitioner.load.cumulative[-1] == 14

    b.put(None, bytes(128))
    chosen = Counter(b.put(None, bytes(128))._batch_result.partition for _ in range(28))
    assert [chosen[p] for p in range(3)] == [14, 2, 12]

    b.refresh_load(0)  # node 0, the leader of 0 and 1, takes nothing any more
    b.put(None, bytes(128))
    assert {b.put(None, bytes(128))._batch_result.partition for _ in range(10)} == {2}


def test_fractional_batches(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testBuiltInPartitionerFractionalBatches (KAFKA-14156)."""
    b = bench(batch_size=512, linger=0.010)
    now, partitions = 0.0, []
    for _ in range(10):
        for _ in range(10):
            b.put(None, bytes(32), now=now)
        now += 0.010
        ready = b.ready(now)
        assert len(ready) == 1
        batches = b.drain(ready.pop(), now)
        assert [batch.size for batch in batches] == [451]
        partitions.append(batches[0].queue.partition)
    assert partitions == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1]


def test_queue_lengths_are_looked_at_once_per_pass_and_only_to_draw(bench: type[Bench]) -> None:
    b = bench(batch_size=100)
    b.put_batches(1, 3)
    b.accumulator.end_pass(())
    for _ in range(10):
        b.put(0, key=b"key")
    assert b.topic.strategy.partitioner.load is None, "nothing was drawn"
    b.put(None, bytes(100))
    first = b.topic.strategy.partitioner.load
    assert first is not None
    b.put(None, bytes(100))
    assert b.topic.strategy.partitioner.load is first
    b.accumulator.end_pass({0})
    b.put(None, bytes(100))
    b.put(None, bytes(100))
    assert b.topic.strategy.partitioner.load == LoadTable((1,), (2,))
