"""Deliveries: awaited any number of times, led on through splits, and missed when nobody looks."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import traceback
import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import BrokerConnectionError, KafkaError
from kafkaclient.producer.batches.delivery import BatchResult, Delivery

LOST = BrokerConnectionError("lost")


def told(outcomes: list[Any]) -> list[Any]:
    """Each caller gets an error of its own."""
    return [str(o) if isinstance(o, BrokerConnectionError) else o for o in outcomes]


class Unseen:
    def __init__(self) -> None:
        self.reports: list[tuple[KafkaError, int]] = []

    def __call__(self, batch_result: BatchResult, error: KafkaError, count: int) -> None:
        self.reports.append((error, count))

    @property
    def total(self) -> int:
        return sum(count for _, count in self.reports)


def receipt_of(
    count: int, unseen: Any = None, hook: Any = None
) -> tuple[BatchResult, list[Delivery]]:
    batch_result = BatchResult("t", unseen)
    batch_result.partition, batch_result.on_delivery = 3, hook
    deliveries = []
    for n in range(count):
        batch_result.count += 1
        deliveries.append(batch_result.delivery_for_last(1000 + n))
    return batch_result, deliveries


def split_into(batch_result: BatchResult, *firsts: int) -> list[BatchResult]:
    ends = [*firsts[1:], batch_result.count]
    parts = []
    for first, end in zip(firsts, ends, strict=True):
        part = BatchResult(batch_result.topic, batch_result.on_unseen)
        part.partition, part.count = batch_result.partition, end - first
        parts.append(part)
    batch_result.split_into(list(firsts), parts)
    return parts


def test_results() -> None:
    batch_result, (first, second) = receipt_of(2)
    assert not first.done()
    assert "pending" in repr(first)
    with pytest.raises(asyncio.InvalidStateError):
        first.result()
    batch_result.resolve(40)
    assert first.done()
    assert first.exception() is None
    assert first.result() == ("t", 3, 40, 1000)
    assert second.result() == ("t", 3, 41, 1001)
    assert repr(second) == "<Delivery t-3 offset=41>"


def test_the_brokers_time_and_an_unknown_offset() -> None:
    batch_result, (first, second) = receipt_of(2)
    batch_result.resolve(-1, log_append_time=77)
    assert first.result() == second.result() == ("t", 3, -1, 77)
    assert not first.result().has_offset


def test_failures() -> None:
    batch_result, (first, second) = receipt_of(2)
    culprit = broker_error(87)
    batch_result.fail(LOST, {1: culprit})
    assert first.exception() is LOST
    with pytest.raises(type(culprit)):
        second.result()
    assert second.exception() is culprit
    assert "failed: lost" in repr(first)


async def test_awaited_by_many_and_many_times() -> None:
    batch_result, (first, second) = receipt_of(2)

    async def wait(delivery: Delivery) -> int:
        return (await delivery).offset

    tasks = [asyncio.create_task(wait(d)) for d in (first, first, second)]
    await asyncio.sleep(0)
    batch_result.resolve(5)
    assert await asyncio.gather(*tasks) == [5, 5, 6]
    assert (await first).offset == (await first).offset == 5
    assert [m.offset for m in await asyncio.gather(first, second)] == [5, 6]
    assert (await asyncio.wait_for(second, 1)).offset == 6


async def test_failures_reach_every_awaiter() -> None:
    batch_result, deliveries = receipt_of(2)
    gathered = asyncio.gather(*deliveries, return_exceptions=True)
    await asyncio.sleep(0)
    batch_result.fail(LOST)
    assert told(await gathered) == ["lost", "lost"]
    with pytest.raises(BrokerConnectionError):
        await deliveries[0]


async def test_an_error_gathers_no_frames() -> None:
    """One error is shared by all records of a batch; see also asyncio.Future."""
    batch_result, deliveries = receipt_of(50)
    batch_result.fail(KafkaError("refused"))
    for delivery in deliveries:
        with pytest.raises(KafkaError):
            await delivery
    assert batch_result.error is not None
    assert sum(1 for _ in traceback.walk_tb(batch_result.error.__traceback__)) < 5


async def test_cancelling_one_awaiter_disturbs_no_other() -> None:
    batch_result, (delivery,) = receipt_of(1)

    async def wait() -> int:
        return (await delivery).offset

    cancelled, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0.001)
    assert not delivery.done()
    assert batch_result.waiting == 1, "cancelled waiters are forgotten"
    batch_result.resolve(9)
    assert await patient == 9
    assert cancelled.cancelled()


async def test_cancelling_many_callbacks_looks_at_each_once() -> None:
    batch_result, deliveries = receipt_of(2000)
    compared = 0

    class Callback:
        def __call__(self, _: Delivery) -> None: ...

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = object.__hash__

    callbacks = [Callback() for _ in deliveries]
    for delivery, callback in zip(deliveries, callbacks, strict=True):
        delivery.add_done_callback(callback)
    assert batch_result.waiting == 2000
    for delivery, callback in zip(deliveries, callbacks, strict=True):
        assert delivery.remove_done_callback(callback) == 1
    assert compared < 2000
    assert not batch_result.waiting


async def test_cancelled_in_the_turn_of_the_answer() -> None:
    batch_result, (delivery,) = receipt_of(1)

    async def wait() -> int:
        return (await delivery).offset

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    batch_result.resolve(9)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert delivery.result().offset == 9


async def test_callbacks_run_from_the_loop() -> None:
    batch_result, (delivery,) = receipt_of(1)
    called: list[Delivery] = []
    delivery.add_done_callback(called.append)
    batch_result.resolve(1)
    assert called == []
    await asyncio.sleep(0)
    assert called == [delivery]
    delivery.add_done_callback(called.append)
    assert called == [delivery]
    await asyncio.sleep(0)
    assert called == [delivery] * 2


async def test_asyncio_wait() -> None:
    batch_result, deliveries = receipt_of(3)
    done, pending = await asyncio.wait(deliveries, timeout=0.001)
    assert (done, pending) == (set(), set(deliveries))
    assert not batch_result.waiting, "the callbacks are taken back"
    asyncio.get_running_loop().call_soon(batch_result.resolve, 5)
    done, pending = await asyncio.wait(deliveries)
    assert (done, pending) == (set(deliveries), set())
    assert not any(d.cancelled() for d in done)
    assert [await first for first in asyncio.as_completed(deliveries[:1])] == [("t", 3, 5, 1000)]
    assert (await asyncio.ensure_future(deliveries[2])).offset == 7


async def test_a_callback_without_a_hash() -> None:
    @dataclass
    class Noted:
        seen: list[int] = field(default_factory=list)

        def __call__(self, delivery: Delivery) -> None:
            self.seen.append(delivery.result().offset)

    batch_result, (first, _) = receipt_of(2)
    noted = Noted()
    first.add_done_callback(noted)
    batch_result.resolve(5)
    await asyncio.sleep(0)
    assert noted.seen == [5]


async def test_a_failure_keeps_nobody_alive() -> None:
    """What the callers hold in their variables goes with them, not with the error."""

    class Local:
        pass

    held: list[weakref.ref[Local]] = []

    async def wait(delivery: Delivery) -> None:
        local = Local()
        held.append(weakref.ref(local))
        await delivery

    batch_result, deliveries = receipt_of(2)
    tasks = [asyncio.ensure_future(wait(delivery)) for delivery in deliveries]
    await asyncio.sleep(0)
    cause = OSError("cut")
    lost = BrokerConnectionError("lost")
    lost.__cause__ = cause
    batch_result.fail(lost)
    (error, _) = await asyncio.gather(*tasks, return_exceptions=True)
    assert error is not lost
    assert isinstance(error, BrokerConnectionError)
    assert error.__cause__ is cause
    del tasks, error, _
    await asyncio.sleep(0)  # this step of the task has the gathered outcomes
    gc.collect()
    assert [ref() for ref in held] == [None, None]
    assert lost.__traceback__ is None


async def test_callbacks_are_taken_back_one_delivery_at_a_time() -> None:
    called: list[Delivery] = []
    batch_result, (first, second) = receipt_of(2)
    for delivery in (first, first, second):
        delivery.add_done_callback(called.append)
    left, _ = split_into(batch_result, 0, 1)
    assert left.waiting == 2
    assert first.remove_done_callback(called.append) == 2
    assert first.remove_done_callback(called.append) == 0
    for part in (left, second._batch_result.resolve_index(1)[0]):
        part.resolve(0)
    await asyncio.sleep(0)
    assert called == [second]


async def test_a_callback_that_cannot_be_called_is_refused() -> None:
    batch_result, (delivery,) = receipt_of(1)

    async def callback(_: Delivery) -> None: ...

    for wrong in (callback, "callback", None):
        with pytest.raises(TypeError, match="plain function"):
            delivery.add_done_callback(wrong)  # type: ignore[arg-type]
    assert not batch_result.waiting


async def test_a_callback_that_fails_strands_no_other() -> None:
    batch_result, (delivery,) = receipt_of(1)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(_: Delivery) -> None:
        raise RuntimeError("a defect of the application")

    delivery.add_done_callback(fail)
    task = asyncio.create_task(_offset(delivery))
    await asyncio.sleep(0)
    batch_result.resolve(7)
    assert await asyncio.wait_for(task, 1) == 7
    assert [str(context["exception"]) for context in reported] == ["a defect of the application"]


async def test_a_program_that_is_told_to_end_may_go_on() -> None:
    batch_result, (delivery,) = receipt_of(1)
    loop = asyncio.get_running_loop()

    class Scheduler:
        """A loop that hands over what it is to call."""

        def __init__(self) -> None:
            self.scheduled: list[tuple[Any, ...]] = []

        def call_soon(self, *call: Any) -> None:
            self.scheduled.append(call)

    called: list[Delivery] = []

    def interrupted(_: Delivery) -> None:
        raise KeyboardInterrupt

    scheduler = Scheduler()
    asyncio._set_running_loop(scheduler)  # type: ignore[arg-type]
    try:
        delivery.add_done_callback(interrupted)
        delivery.add_done_callback(called.append)
    finally:
        asyncio._set_running_loop(loop)
    batch_result.resolve(7)
    [(wake, waiters)] = scheduler.scheduled
    with pytest.raises(KeyboardInterrupt):
        wake(waiters)
    _, (wake, rest) = scheduler.scheduled
    wake(rest)
    assert called == [delivery]


async def test_what_has_an_outcome_or_was_split_holds_nothing() -> None:
    """A delivery that is kept for long must not keep the batch's bytes."""
    for end in (lambda r: r.resolve(1), lambda r: r.fail(LOST), lambda r: split_into(r, 0, 1)):
        batch_result, _ = receipt_of(2)
        batch_result.awaited = lambda: None
        end(batch_result)
        assert batch_result.awaited is None


async def test_the_parts_of_a_split_lead_their_records_on() -> None:
    batch_result, deliveries = receipt_of(10)
    awaited = [asyncio.ensure_future(_offset(d)) for d in deliveries]
    await asyncio.sleep(0)
    left, right = split_into(batch_result, 0, 5)
    left.resolve(100)
    inner_left, inner_right = split_into(right, 0, 3)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [d.done() for d in deliveries] == [True] * 5 + [False] * 5
    inner_right.resolve(300)
    inner_left.fail(LOST)
    assert told(await asyncio.gather(*awaited, return_exceptions=True)) == [
        100, 101, 102, 103, 104, "lost", "lost", "lost", 300, 301,
    ]  # fmt: skip
    assert deliveries[9].result() == ("t", 3, 301, 1009)


async def test_records_that_change_places_are_led_on() -> None:
    """Some of a batch's records fail, the others go on together."""
    batch_result, deliveries = receipt_of(7)
    awaited = [asyncio.ensure_future(_offset(d)) for d in deliveries]
    await asyncio.sleep(0)
    good, bad = BatchResult("t"), BatchResult("t")
    good.count, bad.count = 5, 2
    batch_result.split_into([0, 2, 3, 5, 6], [good, bad, good, bad, good], [0, 0, 2, 1, 4])
    runs = [(r is good, at, run) for r, at, run in map(batch_result.run_at, range(7))]
    assert runs == [
        (True, 0, 2), (True, 1, 1), (False, 0, 1), (True, 2, 2), (True, 3, 1), (False, 1, 1),
        (True, 4, 1),
    ]  # fmt: skip
    assert [batch_result.resolve_index(n) for n in range(7)] == [
        batch_result.run_at(n)[:2] for n in range(7)
    ]
    bad.fail(LOST)
    left, right = split_into(good, 0, 3)
    assert batch_result.run_at(3) == (left, 2, 1)
    assert good.run_at(0) == (left, 0, 3)
    right.resolve(300)
    left.resolve(100)
    assert told(await asyncio.gather(*awaited, return_exceptions=True)) == [
        100, 101, "lost", 102, 300, "lost", 301,
    ]  # fmt: skip


async def _offset(delivery: Delivery) -> int:
    return (await delivery).offset


async def test_a_waiter_cancelled_after_a_split_is_forgotten() -> None:
    batch_result, deliveries = receipt_of(2)
    task = asyncio.create_task(_offset(deliveries[1]))
    await asyncio.sleep(0)
    _, right = split_into(batch_result, 0, 1)
    assert right.waiting
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not right.waiting


def test_failures_that_nobody_holds_are_reported_at_once() -> None:
    unseen = Unseen()
    batch_result, deliveries = receipt_of(5, unseen)
    kept = deliveries[0]
    deliveries.clear()
    batch_result.fail(LOST)
    assert unseen.reports == [(LOST, 4)]
    assert kept.exception() is LOST
    del kept
    assert unseen.total == 4


def test_failures_that_are_dropped_without_a_look_are_reported_then() -> None:
    unseen = Unseen()
    batch_result, deliveries = receipt_of(3, unseen)
    culprit = broker_error(87)
    batch_result.fail(LOST, {1: culprit})
    assert unseen.reports == []
    deliveries[0].done()
    deliveries[2].exception()
    deliveries.clear()
    assert sorted(map(str, (e for e, _ in unseen.reports))) == sorted([str(LOST), str(culprit)])


def test_success_is_never_reported() -> None:
    unseen = Unseen()
    batch_result, deliveries = receipt_of(3, unseen)
    batch_result.resolve(0)
    deliveries.clear()
    assert unseen.reports == []


@pytest.mark.parametrize("dropped_first", [False, True])
def test_unseen_failures_after_a_split(dropped_first: bool) -> None:
    unseen = Unseen()
    batch_result, deliveries = receipt_of(6, unseen)
    if dropped_first:
        deliveries.clear()
    left, right = split_into(batch_result, 0, 3)
    inner = split_into(right, 0, 1)
    left.fail(LOST)
    for part in inner:
        part.fail(LOST)
    deliveries.clear()
    assert unseen.total == 6


@given(data=st.data(), count=st.integers(1, 12))
def test_each_failure_is_seen_or_told(data: st.DataObject, count: int) -> None:
    """However batches are taken apart, and whenever deliveries are looked at or dropped."""
    unseen, seen = Unseen(), 0
    batch_result, made = receipt_of(count, unseen)
    held = dict(enumerate(made))
    made.clear()
    open_parts = [batch_result]

    def drop_some() -> None:
        for n in data.draw(st.lists(st.sampled_from(range(count)), unique=True), "dropped"):
            held.pop(n, None)

    for _ in range(data.draw(st.integers(0, 3), "splits")):
        drop_some()
        part = open_parts.pop(data.draw(st.integers(0, len(open_parts) - 1), "part"))
        firsts = data.draw(st.sets(st.integers(1, max(1, part.count - 1)), max_size=3), "firsts")
        open_parts += split_into(part, 0, *sorted(f for f in firsts if f < part.count))
    drop_some()
    failed = 0
    for part in data.draw(st.permutations(open_parts), "order"):
        if data.draw(st.booleans(), "fails"):
            part.fail(LOST)
            failed += part.count
        else:
            part.resolve(0)
        drop_some()
    for n in list(held):
        if data.draw(st.booleans(), "looked at"):
            seen += held[n].exception() is not None
        del held[n]
    assert unseen.total + seen == failed


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_a_delivery_cannot_be_copied(how: Any) -> None:
    """Its copy would count as another record's."""
    for done in (False, True):
        batch_result, (delivery,) = receipt_of(1)
        if done:
            batch_result.resolve(0)
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            how(delivery)
        assert batch_result.live_deliveries == 1


@pytest.mark.parametrize("policy", ["asyncio", "uvloop"])
@pytest.mark.parametrize("way", ["await", "callback", "on_delivery", "parked"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_waits_in_a_loop_that_ends_is_freed(way: str, policy: str) -> None:
    """Nobody tells those who wait any more; the garbage collector finds all of them."""
    new_loop = asyncio.new_event_loop
    if policy == "uvloop":
        new_loop = pytest.importorskip("uvloop").new_event_loop

    class Mark:
        pass

    async def main(mark: Mark) -> None:
        batch_result, (delivery,) = receipt_of(
            1, hook=[mark].count if way == "on_delivery" else None
        )
        batch_result.loop = asyncio.get_running_loop()
        if way == "await":
            mark.task = asyncio.create_task(wait_for(delivery, mark))
        elif way == "callback":
            delivery.add_done_callback([mark, delivery].count)
        elif way == "on_delivery":
            mark.delivery = delivery
        else:
            mark.task = asyncio.create_task(wait_for(delivery, mark))
            await asyncio.sleep(0)
            batch = receipt_of(1, hook=[mark].count)[0]
            batch.count += 1
            delivery.move_to(batch.delivery_for_last(0))
        await asyncio.sleep(0)

    async def wait_for(delivery: Delivery, _mark: Mark) -> None:
        await delivery

    marks = []
    for _ in range(3):
        mark, loop = Mark(), new_loop()
        marks.append(weakref.ref(mark))
        loop.run_until_complete(main(mark))
        loop.close()
        del mark, loop
    gc.collect()
    gc.collect()
    assert [ref() for ref in marks] == [None] * 3


async def test_on_delivery_is_called_for_each_record_in_order() -> None:
    called: list[Delivery] = []
    batch_result, deliveries = receipt_of(3, hook=called.append)
    batch_result.resolve(0)
    assert called == []
    await asyncio.sleep(0)
    assert called == deliveries
    assert batch_result.hooked == []


async def test_on_delivery_sees_failures_so_that_they_are_not_unseen() -> None:
    unseen, called = Unseen(), []
    batch_result, deliveries = receipt_of(2, unseen, hook=called.append)
    deliveries.clear()
    batch_result.fail(LOST)
    await asyncio.sleep(0)
    assert [d.exception() for d in called] == [LOST, LOST]
    called.clear()
    assert unseen.reports == []


async def test_on_delivery_keeps_its_order_through_splits_of_splits() -> None:
    called: list[Delivery] = []
    batch_result, deliveries = receipt_of(10, hook=called.append)
    left, right = split_into(batch_result, 0, 5)
    inner = split_into(right, 0, 3)
    assert [len(part.hooked) for part in (left, *inner)] == [5, 3, 2]
    assert batch_result.hooked == right.hooked == []
    for offset, part in ((0, left), (5, inner[0]), (8, inner[1])):
        part.resolve(offset)
    await asyncio.sleep(0)
    assert called == deliveries
    assert [d.result().offset for d in called] == list(range(10))


async def test_a_parked_delivery_moves_to_its_batch() -> None:
    unseen, called = Unseen(), []
    parked, (held,) = receipt_of(1, unseen, hook=called.append)
    task = asyncio.create_task(_offset(held))
    await asyncio.sleep(0)
    batch_result, deliveries = receipt_of(1, unseen, hook=called.append)
    batch_result.count += 1
    held.move_to(batch_result.delivery_for_last(1001))
    assert (parked.live_deliveries, batch_result.live_deliveries) == (0, 2)
    batch_result.resolve(70)
    assert await task == 71
    await asyncio.sleep(0)
    assert called == [deliveries[0], held]
    assert held.result() == ("t", 3, 71, 1000)


def test_a_parked_delivery_nobody_holds_is_unseen_in_its_batch() -> None:
    unseen = Unseen()
    _, (held,) = receipt_of(1, unseen)
    batch_result = BatchResult("t", unseen)
    batch_result.count = 1
    held.move_to(batch_result.delivery_for_last(0))
    assert batch_result.live_deliveries == 1
    del held
    assert batch_result.live_deliveries == 0
    batch_result.fail(LOST)
    assert unseen.reports == [(LOST, 1)]
