"""Sequence numbers and epochs: the rules one at a time (test_idempotence*: all together)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.producer.batches.idempotence import MAX_EPOCH, ProducerIdentity, advance

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")
MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [
        (0, 1, 1),
        (MAX - 1, 1, MAX),
        (MAX, 1, 0),
        (MAX, 2, 1),
        (MAX - 2, 5, 2),
        (5, MAX, 4),
        (7, 0, 7),
    ],
)
def test_sequences_wrap_to_zero(sequence: int, count: int, expected: int) -> None:
    """DefaultRecordBatch.incrementSequence; not to -2^31."""
    assert advance(sequence, count) == expected


@given(st.integers(0, MAX), st.integers(0, MAX), st.integers(0, MAX))
def test_advancing_adds_up(sequence: int, one: int, two: int) -> None:
    assert 0 <= advance(sequence, one) <= MAX
    assert advance(advance(sequence, one), two) == advance(sequence, one + two)


def test_identity_without_idempotence() -> None:
    identity = ProducerIdentity(False)
    assert identity.valid
    assert not identity.wanted


def test_an_identity_is_wanted_until_it_is_assigned() -> None:
    identity = ProducerIdentity(True)
    assert identity.wanted
    identity.assign(9, 0)
    assert identity.valid
    assert (identity.producer_id, identity.epoch) == (9, 0)


def test_epochs_are_used_up() -> None:
    identity = ProducerIdentity(True)
    identity.assign(9, MAX_EPOCH - 1)
    assert identity.raise_epoch()
    assert identity.epoch == MAX_EPOCH == 32766
    assert not identity.raise_epoch()
    assert identity.wanted


def stamps(batches: list[Any]) -> list[tuple[int, int, int]]:
    return [(batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in batches]


def warm(bench: type[Bench]) -> Any:
    """A bench whose partition 0 has an acknowledged batch of three: the next sequence is 3."""
    b = bench(idempotent=True)
    b.put_batches(0, 1, records=3)
    b.incomplete.complete(b.drain()[0], 0, -1, 0.0)
    return b


def test_batches_are_numbered_as_they_leave(bench: type[Bench]) -> None:
    b = warm(bench)
    batches = b.put_batches(0, 3, records=2)
    assert stamps(batches) == [(-1, -1, -1)] * 3
    for batch in batches:
        assert b.drain() == [batch]
    assert stamps(batches) == [(1, 0, 3), (1, 0, 5), (1, 0, 7)]


def test_a_retry_keeps_its_number(bench: type[Bench]) -> None:
    b = warm(bench)
    (batch,) = b.put_batches(0, 1)
    for _ in range(2):
        assert b.drain() == [batch]
        assert stamps([batch]) == [(1, 0, 3)]
        b.incomplete.retry(batch, LOST, 0.0, 0.0)


def test_a_batch_across_the_wrap(bench: type[Bench]) -> None:
    b = warm(bench)
    sequence = b.queue(0).sequence
    sequence.next, sequence.last_acked = MAX - 1, MAX - 2
    first, second = b.put_batches(0, 2, records=3)
    b.drain()
    b.drain()
    assert (first.base_sequence, second.base_sequence) == (MAX - 1, 1)
    b.incomplete.complete(first, 0, -1, 0.0)
    assert sequence.last_acked == 0
    b.incomplete.complete(second, 0, -1, 0.0)
    assert sequence.last_acked == 3


def test_nothing_leaves_without_a_producer_id(bench: type[Bench]) -> None:
    b = bench(idempotent=True)
    b.identity.assign(-1, -1)
    b.put_batches(0, 1)
    assert b.drain() == []
    b.identity.assign(5, 0)
    b.incomplete.reschedule(0.0)
    assert len(b.drain()) == 1


def test_nothing_follows_the_first_batch_before_it_is_acknowledged(bench: type[Bench]) -> None:
    """KAFKA-15591: a log that does not know the producer takes any sequence as its first."""
    b = bench(idempotent=True)
    first, second = b.put_batches(0, 2)
    assert b.drain() == [first]
    assert b.drain() == []
    b.incomplete.retry(first, LOST, 0.0, 0.0)
    assert b.drain() == [first]
    assert b.drain() == []
    b.incomplete.complete(first, 0, -1, 0.0)
    assert b.drain() == [second]


def test_no_batch_runs_more_than_four_ahead(bench: type[Bench]) -> None:
    """The broker remembers five: the oldest must stay among them, to be known as a duplicate."""
    b = warm(bench)
    batches = b.put_batches(0, 10)
    sent = [b.drain()[0] for _ in range(5)]
    assert sent == batches[:5]
    assert b.drain() == []
    for batch in sent[1:]:
        b.incomplete.complete(batch, 0, -1, 0.0)
    assert b.drain() == [], "the oldest is still out"
    b.incomplete.retry(sent[0], LOST, 0.0, 0.0)
    assert b.drain() == [sent[0]]
    assert b.drain() == []
    b.incomplete.complete(sent[0], 0, -1, 0.0)
    assert b.drain() == [batches[5]]


def test_a_late_acknowledgement_does_not_take_back_later_ones(bench: type[Bench]) -> None:
    b = warm(bench)
    first, second = b.put_batches(0, 2)
    b.drain()
    b.drain()
    b.incomplete.complete(second, 0, -1, 0.0)
    b.incomplete.complete(first, 0, -1, 0.0)
    assert b.queue(0).sequence.last_acked == second.base_sequence


def test_the_epoch_raised_by_one_partition_is_taken_up_by_the_others(bench: type[Bench]) -> None:
    b = warm(bench)
    b.put_batches(1, 1)
    b.incomplete.complete(b.drain()[0], 0, -1, 0.0)
    old = b.put_batches(1, 1)[0]
    assert b.drain() == [old]
    assert b.identity.raise_epoch()
    fresh = b.put_batches(1, 1)[0]
    assert b.drain() == [], "batches of the old epoch come first"
    b.incomplete.complete(old, 0, -1, 0.0)
    assert b.drain() == [fresh]
    assert stamps([old, fresh]) == [(1, 0, 1), (1, 1, 0)]


def test_no_gap_no_restart(bench: type[Bench]) -> None:
    """An expired batch was written after all: a later one of its sequence was accepted."""
    b = warm(bench)
    first, second = b.put_batches(0, 2)
    b.drain()
    b.drain()
    b.incomplete.retry(first, LOST, 9.0, 0.0)
    b.incomplete.fail_without_answer(first, LOST, 1.0)
    third = b.put_batches(0, 1)[0]
    assert b.queue(0).sequence.unresolved
    assert b.drain() == [], "nothing fresh while a gap may be left"
    b.incomplete.complete(second, 0, -1, 0.0)
    assert not b.queue(0).sequence.unresolved
    assert b.drain() == [third]
    assert stamps([third]) == [(1, 0, 5)]


def test_a_gap_is_closed_by_a_new_epoch(bench: type[Bench]) -> None:
    b = warm(bench)
    (lost,) = b.put_batches(0, 1)
    b.drain()
    b.incomplete.retry(lost, LOST, 9.0, 0.0)
    b.incomplete.fail_without_answer(lost, LOST, 1.0)
    (fresh,) = b.put_batches(0, 1)
    assert b.drain() == [fresh]
    assert stamps([fresh]) == [(1, 1, 0)]


def test_used_up_epochs_wait_for_a_new_id(bench: type[Bench]) -> None:
    b = warm(bench)
    b.identity.epoch = b.queue(0).sequence.epoch = MAX_EPOCH
    (refused,) = b.put_batches(0, 1)
    b.drain()
    b.incomplete.fail(refused, LOST, 0.0)
    assert b.identity.wanted
    assert b.woken[-1] == 0.0, "the sender must ask for an id"
    (fresh,) = b.put_batches(0, 1)
    assert b.drain() == []
    b.identity.assign(2, 0)
    b.incomplete.reschedule(0.0)
    assert b.drain() == [fresh]
    assert stamps([fresh]) == [(2, 0, 0)]
