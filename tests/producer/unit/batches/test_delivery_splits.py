"""Deliveries of batches that are split, and of held records that get their batch."""

from __future__ import annotations

import asyncio

from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from tests.producer.unit.batches.delivery_support import (
    LOST,
    Unseen,
    offset_of,
    result_of,
    split_into,
    told,
)


async def test_the_parts_of_a_split_lead_their_records_on() -> None:
    batch_result, deliveries = result_of(10)
    awaited = [asyncio.ensure_future(offset_of(d)) for d in deliveries]
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
    assert deliveries[9].result() == ("t", 3, 301, 1009, 0, -1)


async def test_records_that_change_places_are_led_on() -> None:
    """Some of a batch's records fail, the others go on together."""
    batch_result, deliveries = result_of(7)
    awaited = [asyncio.ensure_future(offset_of(d)) for d in deliveries]
    await asyncio.sleep(0)
    good, bad = BatchResult("t"), BatchResult("t")
    good.count, bad.count = 5, 2
    batch_result.split_into([0, 2, 3, 5, 6], [good, bad, good, bad, good], [0, 0, 2, 1, 4])
    runs = [(r is good, at, run) for r, at, run in map(batch_result.run_at, range(7))]
    assert runs == [
        (True, 0, 2), (True, 1, 1), (False, 0, 1), (True, 2, 2), (True, 3, 1), (False, 1, 1),
        (True, 4, 1),
    ]  # fmt: skip
    places = [(r is good, at) for r, at in map(batch_result.resolve_index, range(7))]
    assert places == [run[:2] for run in runs]
    bad.fail(LOST)
    left, right = split_into(good, 0, 3)
    assert batch_result.run_at(3) == (left, 2, 1)
    assert good.run_at(0) == (left, 0, 3)
    right.resolve(300)
    left.resolve(100)
    assert told(await asyncio.gather(*awaited, return_exceptions=True)) == [
        100, 101, "lost", 102, 300, "lost", 301,
    ]  # fmt: skip


async def test_a_waiter_cancelled_after_a_split_is_forgotten() -> None:
    batch_result, deliveries = result_of(2)
    task = asyncio.create_task(offset_of(deliveries[1]))
    await asyncio.sleep(0)
    _, right = split_into(batch_result, 0, 1)
    assert right.waiting
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not right.waiting


async def test_a_parked_delivery_moves_to_its_batch() -> None:
    unseen, called = Unseen(), []
    parked, (held,) = result_of(1, unseen, hook=called.append)
    task = asyncio.create_task(offset_of(held))
    await asyncio.sleep(0)
    batch_result, deliveries = result_of(1, unseen, hook=called.append)
    batch_result.count += 1
    held.move_to(delivery_for_last(batch_result, 1001))
    assert (parked.live_deliveries, batch_result.live_deliveries) == (0, 2)
    batch_result.resolve(70)
    assert await task == 71
    await asyncio.sleep(0)
    assert called == [deliveries[0], held]
    assert held.result() == ("t", 3, 71, 1000, 0, -1)
