"""Where queues stand: every Place reached and left, timers, and leaders that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.producer.batches import batch as batch_module
from kafkaclient.producer.batches.partition_queue import QueueState

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")


def test_idle_ready_idle(bench: type[Bench]) -> None:
    b = bench()
    queue = b.queue(0)
    assert queue.state is QueueState.IDLE
    b.put(0)
    assert queue.state is QueueState.READY
    assert min(b.woken) == 0.0
    b.drain()
    assert queue.state is QueueState.IDLE
    assert not b.lines.ready[0]


def test_linger_until_its_time(bench: type[Bench]) -> None:
    b = bench(linger=1.0)
    b.put(0, now=5.0)
    assert b.queue(0).state is QueueState.LINGER
    assert min(b.woken) == 6.0
    assert b.lines.next_timer() == 6.0
    b.lines.run_timers(5.999)
    assert b.queue(0).state is QueueState.LINGER
    b.lines.run_timers(6.0)
    assert b.queue(0).state is QueueState.READY
    assert b.lines.next_timer() is None


def test_linger_ends_when_the_batch_is_full(bench: type[Bench]) -> None:
    b = bench(linger=1.0)
    b.put_batches(0, 1)
    assert b.queue(0).state is QueueState.READY
    assert b.lines.next_timer() is None, "its timer is stale"


def test_linger_ends_when_a_second_batch_is_behind(bench: type[Bench]) -> None:
    b = bench(linger=1.0, batch_size=100)
    b.put(0, bytes(50))
    assert b.queue(0).state is QueueState.LINGER
    b.put(0, bytes(50))
    assert b.queue(0).state is QueueState.READY


def test_a_stale_timer_does_not_move_a_later_batch(bench: type[Bench]) -> None:
    b = bench(linger=1.0)
    b.put_batches(0, 1, now=0.0)
    b.drain(now=0.1)
    b.put(0, now=0.5)
    b.lines.run_timers(1.0)
    assert b.queue(0).state is QueueState.LINGER
    assert b.lines.next_timer() == 1.5
    b.lines.run_timers(1.5)
    assert b.queue(0).state is QueueState.READY


def test_back_off_until_its_time(bench: type[Bench]) -> None:
    b = bench()
    b.put(0)
    (batch,) = b.drain()
    b.incomplete.retry(batch, LOST, 3.0, 1.0)
    assert b.queue(0).state is QueueState.BACKOFF
    assert b.woken[-1] == 3.0
    assert b.drain(now=2.9) == []
    assert b.drain(now=3.0) == [batch]


def test_a_ready_queue_whose_new_head_backs_off_leaves_the_line(bench: type[Bench]) -> None:
    b = bench()
    b.put_batches(0, 2)
    (batch,) = b.drain()
    b.incomplete.retry(batch, LOST, 3.0, 0.0)
    assert b.queue(0).state is QueueState.READY, "drain looks again"
    assert b.drain() == []
    assert b.queue(0).state is QueueState.BACKOFF
    assert b.drain(now=3.0) == [batch]


def test_blocked_by_a_batch_on_the_wire(bench: type[Bench]) -> None:
    b = bench(one_in_flight=True)
    b.put_batches(0, 2)
    (batch,) = b.drain()
    assert b.queue(0).state is QueueState.BLOCKED
    b.incomplete.complete(batch, 0, -1, 0.0)
    assert b.queue(0).state is QueueState.READY


def test_blocked_until_there_is_a_producer_id(bench: type[Bench]) -> None:
    b = bench(idempotent=True)
    b.identity.assign(-1, -1)
    b.put(0)
    assert b.queue(0).state is QueueState.BLOCKED
    b.identity.assign(1, 0)
    b.incomplete.reschedule(0.0)
    assert b.queue(0).state is QueueState.READY


def test_leaderless_and_back(bench: type[Bench]) -> None:
    b = bench(leaders=(-1, 0))
    b.put(0)
    assert b.queue(0).state is QueueState.LEADERLESS
    assert list(b.lines.leaderless) == [b.queue(0)]
    assert min(b.woken) == 0.0, "metadata must be asked for"
    assert b.ready() == set()
    b.lead(0, 3)
    assert b.queue(0).state is QueueState.READY
    assert not b.lines.leaderless
    assert b.ready() == {3}


@pytest.mark.parametrize("leader", [1, -1])
def test_a_ready_queue_changes_lines_with_its_leader(bench: type[Bench], leader: int) -> None:
    b = bench(leaders=(0, 0))
    b.put(0)
    b.put(1)
    b.lead(0, leader)
    assert list(b.lines.ready[0]) == [b.queue(1)]
    assert b.ready() == {0, leader} - {-1}
    assert b.queue(0).state is (QueueState.LEADERLESS if leader < 0 else QueueState.READY)


def test_the_same_leader_again_changes_nothing(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 0))
    for partition in (0, 1):
        b.put(partition)
    b.lead(0, 0, epoch=0)
    assert list(b.lines.ready[0]) == [b.queue(0), b.queue(1)], "it keeps its turn"


def test_a_lingering_queue_lingers_on_under_a_new_leader(bench: type[Bench]) -> None:
    b = bench(linger=1.0)
    b.put(0)
    b.lead(0, 1, now=0.5)
    assert b.queue(0).state is QueueState.LINGER
    assert b.ready(0.9) == set()
    assert b.ready(1.0) == {1}


def test_on_the_wire_while_the_leader_changes(bench: type[Bench]) -> None:
    b = bench(linger=0.0)
    b.put(0)
    (batch,) = b.drain(0)
    b.lead(0, 1)
    b.incomplete.retry(batch, LOST, 0.0, 0.0)
    assert b.ready() == {1}


def test_nothing_goes_to_a_new_leader_before_the_old_one_has_answered(bench: type[Bench]) -> None:
    b = bench()
    b.put_batches(0, 2)
    (first,) = b.drain(0)
    b.lead(0, 1)
    assert b.ready() == set(), "the second batch would come before the first"
    b.incomplete.retry(first, LOST, 0.0, 0.0)
    assert b.drain(1) == [first]
    b.incomplete.complete(first, 0, -1, 0.0)
    assert len(b.drain(1)) == 1


def test_a_retry_waits_as_well_while_the_old_leader_owes_answers(bench: type[Bench]) -> None:
    b = bench()
    b.put_batches(0, 2)
    (first,), (second,) = b.drain(0), b.drain(0)
    b.lead(0, 1)
    b.incomplete.retry(first, LOST, 0.0, 0.0)
    assert b.ready() == set()
    b.incomplete.retry(second, LOST, 0.0, 0.0)
    assert b.drain(1) == [first]


def test_a_partition_that_is_gone_has_no_leader(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 0))
    b.put(1)
    b.leaders.pop()
    b.accumulator.update_topic(b.view(), 0.0)
    assert b.queue(1).state is QueueState.LEADERLESS


def test_an_abandoned_batch_leaves_its_place(bench: type[Bench]) -> None:
    for leaders, place in (((-1,), QueueState.LEADERLESS), ((0,), QueueState.LINGER)):
        b = bench(leaders=leaders, linger=1.0)
        b.put(0)
        queue = b.queue(0)
        assert queue.state is place
        b.incomplete.fail_without_answer(queue.batches[0], LOST, 0.0)
        assert queue.state is QueueState.IDLE
        assert not b.lines.leaderless
        assert b.lines.next_timer() is None


def test_an_abandoned_batch_in_line_is_stepped_over(bench: type[Bench]) -> None:
    b = bench(leaders=(0, 0))
    b.put(0)
    b.put(1)
    b.incomplete.fail_without_answer(b.queue(0).batches[0], LOST, 0.0)
    assert [batch.queue.partition for batch in b.drain()] == [1]
    assert b.queue(0).state is QueueState.IDLE


def test_put_back_keeps_the_order_of_first_sending(bench: type[Bench]) -> None:
    b = bench()
    batches = b.put_batches(0, 4)
    sent = [b.drain()[0] for _ in range(3)]
    queue = b.queue(0)
    for batch in (sent[2], sent[0], sent[1]):
        b.incomplete.retry(batch, LOST, 9.0, 0.0)
        waiting = [one for one in sent if not one.in_flight]
        assert list(queue.batches) == [*waiting, batches[3]]
    assert list(queue.unacked) == sent


@pytest.mark.parametrize("late", [False, True])
def test_a_ready_queue_whose_batches_expire_leaves_its_line(late: bool, bench: type[Bench]) -> None:
    b = bench(late=late)
    queue = b.topic.unbound if late else b.queue(0)
    b.put(None if late else 0)
    b.put_batches(1)
    assert queue.state is QueueState.READY
    b.incomplete.fail_without_answer(queue.batches[0], LOST, 0.0)
    assert queue.state is QueueState.IDLE
    assert not b.lines.unbound
    assert list(b.lines.ready[0]) == [b.queue(1)]


def test_a_queue_whose_only_batch_fails_in_drain_takes_no_other_along(
    bench: type[Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench()
    b.put_batches(0)
    (good,) = b.put_batches(1)
    pack, packed = batch_module.pack, []

    def failing(*args: Any) -> bytearray | None:
        packed.append(args)
        if len(packed) == 1:
            raise RuntimeError("codec")
        return pack(*args)

    monkeypatch.setattr(batch_module, "pack", failing)
    assert b.drain(0) == [good]
    assert [b.queue(p).state for p in (0, 1)] == [QueueState.IDLE, QueueState.IDLE]
    assert not b.lines.ready[0]
