"""Which batches make up a request: order, fairness, muting and the bound on its size."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import BrokerConnectionError

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")


def partitions(batches: list[Any]) -> list[int]:
    return [batch.queue.partition for batch in batches]


def test_partial_drain(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 0))
    for partition in (0, 1):
        b.put_batches(partition, 1, records=60)
    assert len(b.drain(max_bytes=1024)) == 1


def test_drain_batches_in_turn(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testDrainBatches: no partition is drained twice before another."""
    b = bench(leaders=(0, 0, 1, 1), one_in_flight=True)
    for partition in range(4):
        b.put_batches(partition, 4)

    def round_of(max_bytes: int) -> list[list[int]]:
        drained = [b.drain(node, max_bytes=max_bytes) for node in (0, 1)]
        for batch in drained[0] + drained[1]:
            if batch.queue.partition not in muted:
                b.incomplete.complete(batch, 0, -1, 0.0)
        return [partitions(batches) for batches in drained]

    muted: set[int] = set()
    assert round_of(73) == [[0], [2]]
    muted = {3}
    assert round_of(73) == [[1], [3]]
    assert round_of(73) == [[0], [2]]
    assert round_of(73) == [[1], [2]], "3 is muted: a batch of it is out"
    on_wire = b.queue(3).unacked[0]
    b.incomplete.complete(on_wire, 0, -1, 0.0)
    assert [sorted(round_) for round_ in round_of(1 << 20)] == [[0, 1], [2, 3]]


def test_one_batch_per_partition_and_request(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 0))
    b.put_batches(0, 3)
    assert partitions(b.drain()) == [0]
    assert partitions(b.drain()) == [0]


def test_request_size_bound_and_fairness_over_many_partitions(bench: type[Bench]) -> None:
    """100 partitions of 100 KB: about ten per request, nobody starves (KAFKA-13834)."""
    limit = 1 << 20
    b = bench(leaders=(0,) * 100, batch_size=100_000)
    for _ in range(2):
        for partition in range(100):
            b.put(partition, bytes(100_000))
    drained = []
    while batches := b.drain(max_bytes=limit):
        assert sum(batch.size for batch in batches) <= limit
        assert len(batches) == 10
        drained += partitions(batches)
    assert drained == [*range(100), *range(100)]


def test_a_busy_partition_does_not_starve_the_others(bench: type[Bench]) -> None:
    b = bench(leaders=(0,) * 5, batch_size=1000)
    drained: Counter[int] = Counter()
    for _ in range(50):
        for partition in (0, 0, 0, 1, 2, 3, 4):
            b.put(partition, bytes(1000))
        drained.update(partitions(b.drain(max_bytes=2000)))
    assert max(drained.values()) - min(drained.values()) <= 1


def test_a_lone_batch_larger_than_the_request_is_sent(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 0))
    b.put(0, bytes(3000))
    b.put_batches(1, 1)
    assert partitions(b.drain(max_bytes=1000)) == [0]
    assert partitions(b.drain(max_bytes=1000)) == [1]


def test_the_batch_that_did_not_fit_takes_no_more_records_and_is_first_next_time(
    bench: type[Bench],
) -> None:
    b = bench(leaders=(0, 0))
    b.put(0, bytes(600))
    b.put(1, bytes(600))
    assert partitions(b.drain(max_bytes=1000)) == [0]
    b.put_batches(0, 1)
    b.put(1, b"next")
    assert [batch.count for batch in b.queue(1).batches] == [1, 1]
    assert partitions(b.drain(max_bytes=1000)) == [1, 0]


def test_nothing_for_a_broker_that_leads_nothing(bench: type[Bench]) -> None:
    b = bench()
    b.put_batches(0, 1)
    assert b.drain(7) == []
    assert b.drain(1) == []


def test_muted_partitions_wait_for_their_batch(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testMutedPartitions, by max.in.flight.requests.per.connection=1."""
    b = bench(one_in_flight=True)
    b.put_batches(0, 2)
    (batch,) = b.drain()
    assert b.ready() == set()
    assert b.drain() == []
    b.incomplete.complete(batch, 0, -1, 0.0)
    assert b.ready() == {0}
    assert len(b.drain()) == 1


def test_an_expired_batch_mutes_until_its_answer(bench: type[Bench]) -> None:
    b = bench(one_in_flight=True)
    b.put_batches(0, 2)
    (batch,) = b.drain()
    b.incomplete.fail_without_answer(batch, LOST, 0.0)
    assert b.drain() == []
    b.incomplete.retry(batch, LOST, 0.0, 0.0)
    assert len(b.drain()) == 1


def test_several_in_flight_per_partition(bench: type[Bench]) -> None:
    b = bench()
    b.put_batches(0, 7)
    drained = [b.drain()[0] for _ in range(7)]
    assert b.queue(0).in_flight == 7
    assert list(b.queue(0).unacked) == drained


def test_retries_go_one_by_one_and_oldest_first(bench: type[Bench]) -> None:
    b = bench()
    batches = b.put_batches(0, 4)
    for _ in range(3):
        b.drain()
    for batch in (batches[1], batches[0], batches[2]):
        b.incomplete.retry(batch, LOST, 0.0, 0.0)
    assert list(b.queue(0).batches) == batches
    for batch in batches[:3]:
        assert b.drain() == [batch]
        if batch is not batches[2]:
            assert b.drain() == [], "the next retry waits for this one"
        b.incomplete.complete(batch, 0, -1, 0.0)
    assert b.drain() == [batches[3]]


def test_fresh_batches_follow_the_last_retry_at_once(bench: type[Bench]) -> None:
    b = bench()
    first, second = b.put_batches(0, 2)
    b.drain()
    b.incomplete.retry(first, LOST, 0.0, 0.0)
    assert b.drain() == [first]
    assert b.drain() == [second]
