"""Deliveries: failures that no caller looks at are reported, each of them once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.broker_errors import broker_error
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import Delivery, delivery_for_last
from tests.producer.unit.batches.delivery_support import LOST, Unseen, result_of, split_into


def test_failures_that_nobody_holds_are_reported_at_once() -> None:
    unseen = Unseen()
    batch_result, deliveries = result_of(5, unseen)
    kept = deliveries[0]
    deliveries.clear()
    batch_result.fail(LOST)
    assert unseen.reports == [(LOST, 4)]
    assert kept.exception() is LOST
    del kept
    assert unseen.total == 4


def test_failures_that_are_dropped_without_a_look_are_reported_then() -> None:
    unseen = Unseen()
    batch_result, deliveries = result_of(3, unseen)
    culprit = broker_error(87)
    batch_result.fail(LOST, {1: culprit})
    assert unseen.reports == []
    deliveries[0].done()
    deliveries[2].exception()
    deliveries.clear()
    assert sorted(map(str, (e for e, _ in unseen.reports))) == sorted([str(LOST), str(culprit)])


def test_success_is_never_reported() -> None:
    unseen = Unseen()
    batch_result, deliveries = result_of(3, unseen)
    batch_result.resolve(0)
    deliveries.clear()
    assert unseen.reports == []


@pytest.mark.parametrize("dropped_first", [False, True])
def test_unseen_failures_after_a_split(dropped_first: bool) -> None:
    unseen = Unseen()
    batch_result, deliveries = result_of(6, unseen)
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
    batch_result, made = result_of(count, unseen)
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


async def test_failures_that_only_a_span_has_seen_are_reported_from_garbage() -> None:
    """The garbage collector could clear the batch's result before it frees the deliveries."""
    unseen = Unseen()
    batch_result, deliveries = result_of(6, unseen)
    for delivery in deliveries:
        delivery.when_settled(Delivery.peek, delivery)  # as a span does
    garbage: list[Any] = [deliveries]
    garbage.append(garbage)
    batch_result.fail(LOST)
    await asyncio.sleep(0)
    del batch_result, deliveries, delivery, garbage
    gc.collect()
    assert unseen.total == 6


async def test_deliveries_of_a_split_batch_in_garbage_are_freed() -> None:
    """The garbage collector may empty the lists that were given to split_into first."""
    firsts, parts, garbage = [0, 2], list[BatchResult](), list[Any]()
    batch_result, deliveries = result_of(4, Unseen())
    for delivery in deliveries:
        delivery.add_done_callback(id)
    for _ in firsts:
        parts.append(BatchResult("t"))
        parts[-1].count = 2
    batch_result.split_into(firsts, parts)
    garbage += [garbage, firsts, parts, deliveries]
    del batch_result, deliveries, delivery, firsts, parts, garbage
    gc.collect()  # an error in __dealloc__ is a warning, and fails the test


def test_a_parked_delivery_nobody_holds_is_unseen_in_its_batch() -> None:
    unseen = Unseen()
    _, (held,) = result_of(1, unseen)
    batch_result = BatchResult("t", unseen)
    batch_result.count = 1
    held.move_to(delivery_for_last(batch_result, 0))
    assert batch_result.live_deliveries == 1
    del held
    assert batch_result.live_deliveries == 0
    batch_result.fail(LOST)
    assert unseen.reports == [(LOST, 1)]
