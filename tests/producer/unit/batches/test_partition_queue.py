"""The transitions of a partition's queue assert the invariants of docs/project/architecture.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import BrokerConnectionError

if TYPE_CHECKING:
    from kafkaclient.producer.batches.batch import ProducerBatch
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")


def in_flight(b: Bench, batches: int) -> list[ProducerBatch]:
    made = b.put_batches(0, batches)
    for _ in made:
        b.drain(0)
    assert b.queue(0).in_flight == batches
    return made


def test_a_retry_is_sent_only_while_it_is_the_oldest(bench: type[Bench]) -> None:
    b = bench()
    _, second = in_flight(b, 2)
    b.incomplete.retry(second, LOST, 0.0, 0.0)
    with pytest.raises(AssertionError, match="only the oldest unacknowledged batch"):
        b.queue(0).begin_flight(second, b.identity)


def test_a_new_batch_is_not_sent_before_a_retry(bench: type[Bench]) -> None:
    b = bench()
    first, _ = in_flight(b, 2)
    b.incomplete.retry(first, LOST, 0.0, 0.0)
    (new,) = b.put_batches(0)
    new.seal()
    with pytest.raises(AssertionError, match="a retry goes before a new batch"):
        b.queue(0).begin_flight(new, b.identity)


def test_a_lane_changes_with_nothing_on_the_wire(bench: type[Bench]) -> None:
    b = bench()
    in_flight(b, 1)
    b.queue(0).set_target_lane(1)
    with pytest.raises(AssertionError, match="nothing on the wire"):
        b.queue(0).change_lane()


def test_a_batch_that_was_sent_keeps_its_partition(bench: type[Bench]) -> None:
    b = bench()
    (batch,) = in_flight(b, 1)
    with pytest.raises(AssertionError, match="never sent"):
        batch.bind(b.queue(1))
    with pytest.raises(AssertionError, match="in its order"):
        b.queue(0).enqueue(batch)


def test_only_a_batch_on_the_wire_lands_and_only_once(bench: type[Bench]) -> None:
    b = bench()
    (batch,) = in_flight(b, 1)
    b.incomplete.complete(batch, 0, -1, 0.0)
    with pytest.raises(AssertionError, match="lands"):
        b.queue(0).complete(batch)


def test_only_a_sealed_batch_is_sent(bench: type[Bench]) -> None:
    b = bench()
    (batch,) = b.put_batches(0)
    with pytest.raises(AssertionError, match="sealed"):
        b.queue(0).begin_flight(batch, b.identity)


def test_records_go_to_the_last_batch_only(bench: type[Bench]) -> None:
    b = bench(linger=1.0)
    b.put(0)
    first = b.queue(0).batches[-1]
    b.put(1)
    other = b.queue(1).batches[-1]
    other.bind(b.queue(0))
    b.queue(0).enqueue(other)
    assert first.closed
    assert not other.closed
