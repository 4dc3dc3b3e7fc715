"""Calls that many callers make at the same time."""

from __future__ import annotations

import asyncio
import gc

import pytest

from kafkaclient.admin import Admin
from kafkaclient.admin.session import Shared, gather_outcomes
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey


class Calls:
    def __init__(self) -> None:
        self.begun = self.cancelled = 0

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.begun


@virtual_time
async def test_callers_with_the_same_key_share_a_call() -> None:
    shared, calls = Shared[int](), Calls()
    assert await asyncio.gather(*(shared("a", calls) for _ in range(5))) == [1] * 5
    assert await asyncio.gather(shared("a", calls), shared("b", calls)) == [3, 3]
    assert calls.begun == 3


@virtual_time
async def test_a_call_ends_with_its_last_caller() -> None:
    shared, calls = Shared[int](), Calls()
    first, second = (asyncio.create_task(shared("a", calls)) for _ in range(2))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.1)
    assert calls.cancelled == 0
    second.cancel()
    await asyncio.wait({first, second})
    await asyncio.sleep(0)
    assert calls.cancelled == 1
    assert await shared("a", calls) == 2


@virtual_time
async def test_an_error_is_raised_for_all_callers() -> None:
    shared = Shared[int]()

    async def fails() -> int:
        await asyncio.sleep(1)
        raise ZeroDivisionError

    found = await asyncio.gather(*(shared("a", fails) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in found] == [ZeroDivisionError] * 2
    with pytest.raises(ZeroDivisionError):
        await shared("a", fails)


@virtual_time
async def test_many_calls_for_end_offsets_need_few_metadata_requests() -> None:
    fake = FakeCluster(2)
    fake.create_topic("t", 100)
    fake.round_trip_s = 0.002
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        begin = len(fake.requests)
        await asyncio.gather(*(admin.end_offsets([TopicPartition("t", n)]) for n in range(100)))
        asked = [each.api_key for each in fake.requests[begin:]]
    assert asked.count(ApiKey.METADATA) == 1
    assert asked.count(ApiKey.LIST_OFFSETS) == 100


async def test_jobs_that_are_cancelled_before_they_begin_warn_nobody() -> None:
    """Otherwise Python warns of a coroutine that was never awaited."""
    began: list[int] = []

    async def job() -> None:
        began.append(1)

    task = asyncio.create_task(gather_outcomes({n: job() for n in range(3)}))
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not began
    gc.collect()
