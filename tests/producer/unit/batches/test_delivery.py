"""Deliveries: their outcome, awaited any number of times, and what they keep in memory."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import traceback
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import BrokerConnectionError, KafkaError
from kafkaclient.producer.batches.delivery import delivery_for_last
from tests.producer.unit.batches.delivery_support import LOST, result_of, split_into, told

if TYPE_CHECKING:
    from kafkaclient.producer.batches.delivery import Delivery


def test_results() -> None:
    batch_result, (first, second) = result_of(2)
    assert not first.done()
    assert "pending" in repr(first)
    with pytest.raises(asyncio.InvalidStateError):
        first.result()
    batch_result.resolve(40)
    assert first.done()
    assert first.exception() is None
    assert first.result() == ("t", 3, 40, 1000, 0, -1)
    assert second.result() == ("t", 3, 41, 1001, 0, -1)
    assert repr(second) == "<Delivery t-3 offset=41>"


def test_the_brokers_time_and_an_unknown_offset() -> None:
    batch_result, (first, second) = result_of(2)
    batch_result.resolve(-1, log_append_time=77)
    assert first.result() == second.result() == ("t", 3, -1, 77, 1, -1)
    assert not first.result().has_offset


def test_what_the_broker_does_not_say() -> None:
    for answer, (timestamp_type, log_start) in (
        ((-1,), (-1, -1)),  # acks=0, or a duplicate that the broker no longer remembers
        ((40, -1, -1), (0, -1)),  # before Produce version 5
        ((40, -1, 12), (0, 12)),
        ((40, 77, 12), (1, 12)),
    ):
        batch_result, (delivery,) = result_of(1)
        batch_result.resolve(*answer)
        metadata = delivery.result()
        assert (metadata.timestamp_type, metadata.log_start_offset) == (timestamp_type, log_start)


def test_failures() -> None:
    batch_result, (first, second) = result_of(2)
    culprit = broker_error(87)
    batch_result.fail(LOST, {1: culprit})
    assert first.exception() is LOST
    with pytest.raises(type(culprit)):
        second.result()
    assert second.exception() is culprit
    assert "failed: lost" in repr(first)


async def test_awaited_by_many_and_many_times() -> None:
    batch_result, (first, second) = result_of(2)

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
    batch_result, deliveries = result_of(2)
    gathered = asyncio.gather(*deliveries, return_exceptions=True)
    await asyncio.sleep(0)
    batch_result.fail(LOST)
    assert told(await gathered) == ["lost", "lost"]
    with pytest.raises(BrokerConnectionError):
        await deliveries[0]


async def test_an_error_gathers_no_frames() -> None:
    """One error is shared by all records of a batch; see also asyncio.Future."""
    batch_result, deliveries = result_of(50)
    batch_result.fail(KafkaError("refused"))
    for delivery in deliveries:
        with pytest.raises(KafkaError):
            await delivery
    assert batch_result.error is not None
    assert sum(1 for _ in traceback.walk_tb(batch_result.error.__traceback__)) < 5


async def test_cancelling_one_awaiter_disturbs_no_other() -> None:
    batch_result, (delivery,) = result_of(1)

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


async def test_cancelled_in_the_turn_of_the_answer() -> None:
    batch_result, (delivery,) = result_of(1)

    async def wait() -> int:
        return (await delivery).offset

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    batch_result.resolve(9)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert delivery.result().offset == 9


async def test_asyncio_wait() -> None:
    batch_result, deliveries = result_of(3)
    done, pending = await asyncio.wait(deliveries, timeout=0.001)
    assert (done, pending) == (set(), set(deliveries))
    assert not batch_result.waiting, "the callbacks are taken back"
    asyncio.get_running_loop().call_soon(batch_result.resolve, 5)
    done, pending = await asyncio.wait(deliveries)
    assert (done, pending) == (set(deliveries), set())
    assert not any(d.cancelled() for d in done)
    assert [await first for first in asyncio.as_completed(deliveries[:1])] == [
        ("t", 3, 5, 1000, 0, -1)
    ]
    assert (await asyncio.ensure_future(deliveries[2])).offset == 7


async def test_a_failure_keeps_nobody_alive() -> None:
    """What the callers hold in their variables goes with them, not with the error."""

    class Local:
        pass

    held: list[weakref.ref[Local]] = []

    async def wait(delivery: Delivery) -> None:
        local = Local()
        held.append(weakref.ref(local))
        await delivery

    batch_result, deliveries = result_of(2)
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


async def test_what_has_an_outcome_or_was_split_holds_nothing() -> None:
    """A delivery that is kept for long must not keep the batch's bytes."""
    for end in (lambda r: r.resolve(1), lambda r: r.fail(LOST), lambda r: split_into(r, 0, 1)):
        batch_result, _ = result_of(2)
        batch_result.on_only_record_awaited = lambda: None
        end(batch_result)
        assert batch_result.on_only_record_awaited is None


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_a_delivery_cannot_be_copied(how: Any) -> None:
    """Its copy would count as another record's."""
    for done in (False, True):
        batch_result, (delivery,) = result_of(1)
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
        batch_result, (delivery,) = result_of(
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
            batch = result_of(1, hook=[mark].count)[0]
            batch.count += 1
            delivery.move_to(delivery_for_last(batch, 0))
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
