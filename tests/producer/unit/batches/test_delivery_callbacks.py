"""Deliveries: done callbacks, and the producer's ``on_delivery``."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.producer.unit.batches.delivery_support import (
    LOST,
    Unseen,
    offset_of,
    result_of,
    split_into,
)

if TYPE_CHECKING:
    from kafkaclient.producer.batches.delivery import Delivery


async def test_cancelling_many_callbacks_looks_at_each_once() -> None:
    batch_result, deliveries = result_of(2000)
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


async def test_callbacks_run_from_the_loop() -> None:
    batch_result, (delivery,) = result_of(1)
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


async def test_a_callback_without_a_hash() -> None:
    @dataclass
    class Noted:
        seen: list[int] = field(default_factory=list)

        def __call__(self, delivery: Delivery) -> None:
            self.seen.append(delivery.result().offset)

    batch_result, (first, _) = result_of(2)
    noted = Noted()
    first.add_done_callback(noted)
    batch_result.resolve(5)
    await asyncio.sleep(0)
    assert noted.seen == [5]


async def test_callbacks_are_taken_back_one_delivery_at_a_time() -> None:
    called: list[Delivery] = []
    batch_result, (first, second) = result_of(2)
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
    batch_result, (delivery,) = result_of(1)

    async def callback(_: Delivery) -> None: ...

    for wrong in (callback, "callback", None):
        with pytest.raises(TypeError, match="plain function"):
            delivery.add_done_callback(wrong)  # type: ignore[arg-type]
    assert not batch_result.waiting


async def test_a_callback_that_fails_strands_no_other() -> None:
    batch_result, (delivery,) = result_of(1)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(_: Delivery) -> None:
        raise RuntimeError("a defect of the application")

    delivery.add_done_callback(fail)
    task = asyncio.create_task(offset_of(delivery))
    await asyncio.sleep(0)
    batch_result.resolve(7)
    assert await asyncio.wait_for(task, 1) == 7
    assert [str(context["exception"]) for context in reported] == ["a defect of the application"]


async def test_a_program_that_is_told_to_end_may_go_on() -> None:
    batch_result, (delivery,) = result_of(1)
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


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="empty")


async def test_settled_calls_come_in_an_empty_context_and_look_at_no_outcome() -> None:
    unseen, called = Unseen(), []
    batch_result, deliveries = result_of(3, unseen)
    VARIABLE.set("a request's")

    def note(target: object) -> None:
        called.append((target, VARIABLE.get()))

    for n, delivery in enumerate(deliveries):
        delivery.when_settled(note, n)
    left, right = split_into(batch_result, 0, 2)
    assert [d.batch_result for d in deliveries] == [left, left, right]
    left.fail(LOST)
    await asyncio.sleep(0)
    assert called == [(0, "empty"), (1, "empty")]
    right.resolve(7)
    await asyncio.sleep(0)
    deliveries[2].when_settled(note, "late")
    assert len(called) == 3
    await asyncio.sleep(0)
    assert called[2:] == [(2, "empty"), ("late", "empty")]
    assert [d.peek() for d in deliveries] == [("t", 3, -1, LOST)] * 2 + [("t", 3, 7, None)]
    del delivery
    deliveries.clear()
    assert unseen.total == 2


async def test_a_batch_does_not_linger_for_a_record_that_is_awaited() -> None:
    ended: list[int] = []
    for awaited in (False, True):
        batch_result, (delivery,) = result_of(1)
        batch_result.on_only_record_awaited = partial(ended.append, awaited)
        delivery.when_settled(id, None, awaited)
    assert ended == [True]


async def test_on_delivery_is_called_for_each_record_in_order() -> None:
    called: list[Delivery] = []
    batch_result, deliveries = result_of(3, hook=called.append)
    batch_result.resolve(0)
    assert called == []
    await asyncio.sleep(0)
    assert called == deliveries
    assert batch_result.hooked == []


async def test_on_delivery_sees_failures_so_that_they_are_not_unseen() -> None:
    unseen, called = Unseen(), []
    batch_result, deliveries = result_of(2, unseen, hook=called.append)
    deliveries.clear()
    batch_result.fail(LOST)
    await asyncio.sleep(0)
    assert [d.exception() for d in called] == [LOST, LOST]
    called.clear()
    assert unseen.reports == []


async def test_on_delivery_keeps_its_order_through_splits_of_splits() -> None:
    called: list[Delivery] = []
    batch_result, deliveries = result_of(10, hook=called.append)
    left, right = split_into(batch_result, 0, 5)
    inner = split_into(right, 0, 3)
    assert [len(part.hooked) for part in (left, *inner)] == [5, 3, 2]
    assert batch_result.hooked == right.hooked == []
    for offset, part in ((0, left), (5, inner[0]), (8, inner[1])):
        part.resolve(offset)
    await asyncio.sleep(0)
    assert called == deliveries
    assert [d.result().offset for d in called] == list(range(10))
