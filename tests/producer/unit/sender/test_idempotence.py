"""Faults that need several things to come together, told step by step against a leader's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import BrokerConnectionError
from kafkaclient.testing.fake.log import PartitionLog, RefusedError

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")


class Leader:
    """The leader of partition 0, and the client's judgement of its answers."""

    def __init__(self, bench: type[Bench]) -> None:
        self.bench = bench
        self.log = PartitionLog()
        self.bench.put(0, b"first")
        (batch,) = self.bench.drain()
        self.take(batch)

    def write(self, batch: Any) -> int:
        """Append as a leader does; the error code of its answer, 0 for success."""
        try:
            self.log.append(bytes(batch.buffer()), 1 << 20)
        except RefusedError as refused:
            return int(refused.code)
        return 0

    def take(self, batch: Any, *, answer: int | None = None) -> None:
        """Write, and let the client know; ``answer`` is told instead of success."""
        code = self.write(batch) or answer or 0
        self.tell(batch, code)

    def tell(self, batch: Any, code: int) -> None:
        incomplete, error = self.bench.incomplete, broker_error(code)
        if code == 0:
            incomplete.complete(batch, -1, -1, 0.0)
        elif code == 45:
            incomplete.resequence(batch, error, 0.0, 0.0)
        else:
            if code in {7, 20}:
                batch.mark_uncertain()
            incomplete.retry(batch, error, 0.0, 0.0)

    def lose(self, batch: Any) -> None:
        batch.mark_uncertain()
        self.bench.incomplete.retry(batch, LOST, 0.0, 0.0)

    def send(self, *values: bytes) -> list[Any]:
        """Batches of one record each, all on the wire."""
        batches = []
        for value in values:
            self.bench.put(0, value)
            batches += self.bench.drain()
        assert len(batches) == len(values)
        return batches

    def settle(self) -> None:
        while batches := self.bench.drain():
            for batch in batches:
                self.take(batch)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.log.records()][1:]


@pytest.fixture
def leader(bench: type[Bench]) -> Leader:
    return Leader(bench(leaders=(0,), idempotent=True))


def test_the_acknowledgement_is_lost(leader: Leader) -> None:
    batches = leader.send(b"a", b"b", b"c")
    for batch in batches:
        leader.write(batch)
        leader.lose(batch)
    leader.settle()
    assert leader.values == [b"a", b"b", b"c"]
    assert leader.bench.identity.epoch == 0


def test_the_requests_are_lost(leader: Leader) -> None:
    for batch in leader.send(b"a", b"b", b"c"):
        leader.lose(batch)
    leader.settle()
    assert leader.values == [b"a", b"b", b"c"]
    assert leader.bench.identity.epoch == 0


def test_one_batch_is_missing_and_those_after_it_are_out_of_order(leader: Leader) -> None:
    a, b, c = leader.send(b"a", b"b", b"c")
    leader.tell(a, 19)
    leader.take(b)
    leader.take(c)
    leader.settle()
    assert leader.values == [b"a", b"b", b"c"]
    assert leader.bench.identity.epoch == 0, "the missing one came first"


def test_a_refused_batch_leaves_no_gap_behind(leader: Leader) -> None:
    a, b, c = leader.send(b"a", b"b", b"c")
    leader.bench.incomplete.fail(a, broker_error(87), 0.0)
    leader.take(b)
    assert leader.bench.drain() == [], "c is still on the wire"
    leader.take(c)
    leader.settle()
    assert leader.values == [b"b", b"c"]
    assert leader.bench.identity.epoch == 1


def test_an_appended_batch_before_a_refused_one_is_not_written_twice(leader: Leader) -> None:
    """KAFKA-14034: a restart must not number a batch anew that may be in the log."""
    a, b, c = leader.send(b"a", b"b", b"c")
    leader.take(a, answer=20)
    leader.bench.incomplete.fail(b, broker_error(87), 0.0)
    leader.take(c)
    leader.settle()
    assert leader.values == [b"a", b"c"]


def test_a_batch_out_of_retries_that_was_written_does_not_repeat_the_next(leader: Leader) -> None:
    a, b = leader.send(b"a", b"b")
    leader.write(a)
    leader.write(b)
    a.mark_uncertain()
    leader.bench.incomplete.fail(a, LOST, 0.0)
    leader.lose(b)
    leader.settle()
    assert leader.values == [b"a", b"b"]
    assert leader.bench.identity.epoch == 0


def test_a_batch_out_of_retries_that_was_not_written(leader: Leader) -> None:
    a, b = leader.send(b"a", b"b")
    a.mark_uncertain()
    leader.bench.incomplete.fail(a, LOST, 0.0)
    leader.lose(b)
    leader.settle()
    assert leader.values == [b"b"]
    assert leader.bench.identity.epoch == 1


@pytest.mark.parametrize("written", [True, False])
def test_expired_on_the_wire_then_lost(leader: Leader, written: bool) -> None:
    a, b = leader.send(b"a", b"b")
    if written:
        leader.write(a)
        leader.write(b)
    leader.bench.incomplete.fail_without_answer(a, LOST, 0.0)
    leader.lose(a)
    leader.lose(b)
    leader.bench.put(0, b"c")
    leader.settle()
    assert leader.values == [b"a", b"b", b"c"][0 if written else 1 :]


def test_expired_before_its_retry_with_later_ones_out(leader: Leader) -> None:
    a, b, c = leader.send(b"a", b"b", b"c")
    leader.lose(a)
    leader.bench.incomplete.fail_without_answer(a, LOST, 0.0)
    leader.take(b)
    leader.take(c)
    leader.bench.put(0, b"d")
    leader.settle()
    assert leader.values == [b"b", b"c", b"d"]
    assert leader.bench.identity.epoch == 1


def test_a_batch_that_timed_out_twice_is_still_known(leader: Leader) -> None:
    """With five later ones written in between the broker would have forgotten it."""
    (a, *rest) = leader.send(b"a", b"b", b"c", b"d", b"e")
    leader.take(a, answer=7)
    for batch in rest:
        leader.take(batch)
    for value in (b"f", b"g", b"h", b"i"):
        leader.bench.put(0, value)
        leader.bench.queue(0).batches[-1].close()
    out = [batch for _ in range(5) for batch in leader.bench.drain()]
    for batch in out:
        leader.take(batch, answer=7 if batch is a else None)
    leader.settle()
    assert leader.values == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"]


def test_the_first_batch_of_a_new_partition_is_refused_for_a_moment(bench: type[Bench]) -> None:
    """KAFKA-15591, KAFKA-14359: Java's second batch is taken instead, and the first never."""
    b = bench(leaders=(0,), idempotent=True)
    leader = Leader.__new__(Leader)
    leader.bench, leader.log = b, PartitionLog()
    b.put(0, b"a")
    (first,) = b.drain()
    b.put(0, b"b")
    second = b.drain()
    leader.tell(first, 6)
    for batch in second:
        leader.take(batch)
    leader.settle()
    assert [record.value for record in leader.log.records()] == [b"a", b"b"]


def test_a_log_that_lost_its_tail_goes_on(leader: Leader) -> None:
    """acks=1 and a leader that died: the next batch finds a gap, and starts over."""
    (a,) = leader.send(b"a")
    leader.tell(a, 0)
    leader.bench.put(0, b"b")
    leader.settle()
    assert leader.values == [b"b"]
    assert leader.bench.identity.epoch == 1


def test_unknown_producer_goes_on(leader: Leader) -> None:
    (a,) = leader.send(b"a")
    leader.log.forget_producers()
    leader.bench.incomplete.resequence(a, broker_error(59), 0.0, 0.0)
    leader.settle()
    assert leader.values == [b"a"]


def test_halves_of_a_split_batch_keep_the_numbers_of_their_records(leader: Leader) -> None:
    b = leader.bench
    for n in range(5):
        b.put(0, b"%d" % n)
    (batch,) = b.drain()
    later = leader.send(b"later")[0]
    b.incomplete.split(batch, 0.0)
    leader.tell(later, 45)
    assert [(part.base_sequence, part.count) for part in b.queue(0).batches] == [
        (1, 3), (4, 2), (6, 1),
    ]  # fmt: skip
    leader.settle()
    assert leader.values == [b"0", b"1", b"2", b"3", b"4", b"later"]
    assert b.identity.epoch == 0
