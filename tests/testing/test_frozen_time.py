"""Clients in tests that freeze the time with freezegun or time-machine."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import as_completed
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import aiokafka
import pytest
import time_machine
from freezegun import freeze_time

from kafkaclient import Producer, SyncProducer
from kafkaclient.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WHEN = 1577836800
_FREEZERS = [
    pytest.param(partial(freeze_time, "2020-01-01"), id="freezegun"),
    pytest.param(partial(freeze_time, "2020-01-01", real_asyncio=True), id="real_asyncio"),
    pytest.param(partial(time_machine.travel, _WHEN, tick=False), id="time-machine"),
]


async def _use(producer: Producer) -> None:
    deliveries = [await producer.send("t", b"v") for _ in range(5)]  # a batch that lingers
    for delivery in deliveries:
        await delivery
    assert await producer.healthy()
    await producer.send("t", b"v")
    await producer.flush()
    await asyncio.sleep(0.001)
    assert time.time() == _WHEN


@pytest.mark.parametrize("freeze", _FREEZERS)
@pytest.mark.parametrize("started", ["before", pytest.param("inside", marks=pytest.mark.full)])
def test_a_producer_over_tcp(
    freeze: Callable[[], Any], started: str, fake_kafka: FakeCluster
) -> None:
    async def service() -> None:
        async with AsyncExitStack() as stack:
            producer = Producer(fake_kafka.bootstrap, linger_ms=5)
            if started == "before":
                await stack.enter_async_context(producer)
            stack.enter_context(freeze())
            if started == "inside":
                await stack.enter_async_context(producer)
            await _use(producer)

    asyncio.run(service())
    assert fake_kafka.end_offset("t", 0) == 6


@pytest.mark.parametrize("freeze", _FREEZERS)
def test_a_producer_in_memory(freeze: Callable[[], Any], real_loop_time: None) -> None:
    async def service() -> None:
        fake = FakeCluster(1)
        async with Producer(fake.bootstrap, dialer=fake, linger_ms=5) as producer:
            with freeze():
                await _use(producer)

    asyncio.run(service())


@pytest.mark.parametrize("freeze", _FREEZERS)
def test_a_sync_producer(freeze: Callable[[], Any], fake_kafka: FakeCluster) -> None:
    with freeze(), SyncProducer(fake_kafka.bootstrap) as producer:
        for future in [producer.send("t", b"v") for _ in range(5)]:
            future.result(20)
    assert [record.timestamp for record in fake_kafka.log("t", 0)] == [_WHEN * 1000] * 5


@pytest.fixture
def unsent(fake_kafka: FakeCluster) -> Iterator[SyncProducer]:
    """A producer whose next record has no outcome until the test is over."""
    with SyncProducer(fake_kafka.bootstrap, linger_ms=3_600_000) as producer:
        producer.send("t", b"v")
        producer.flush()
        yield producer


@pytest.mark.timeout(60)
@pytest.mark.parametrize("freeze", _FREEZERS)
@pytest.mark.parametrize(
    "wait",
    [
        lambda future: future.result(0.01),
        lambda future: future.exception(0.01),
        lambda future: list(as_completed([future], 0.01)),
    ],
    ids=["result", "exception", "as_completed"],
)
def test_a_thread_waits_for_a_record_as_long_as_it_says(
    freeze: Callable[[], Any], wait: Callable[[Any], object], unsent: SyncProducer
) -> None:
    future = unsent.send("t", b"v")
    with freeze(), pytest.raises(TimeoutError):
        wait(future)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("freeze", _FREEZERS)
def test_a_coroutine_waits_for_a_record_as_long_as_it_says(
    freeze: Callable[[], Any], fake_kafka: FakeCluster
) -> None:
    async def service() -> None:
        producer = Producer(fake_kafka.bootstrap)
        await producer.start()
        for node_id in range(3):
            fake_kafka.stall_broker(node_id)
        with freeze():
            delivery = producer.send_nowait("t", b"v")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(delivery, 0.01)
            await producer.stop(0.01)

    asyncio.run(service())


@pytest.mark.parametrize("freeze", _FREEZERS)
def test_a_consumer_of_aiokafka(freeze: Callable[[], Any], fake_kafka: FakeCluster) -> None:
    async def service() -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(freeze())
            async with Producer(fake_kafka.bootstrap) as producer:
                await producer.send("t", b"v")
            options = {"bootstrap_servers": fake_kafka.bootstrap, "auto_offset_reset": "earliest"}
            consumer = aiokafka.AIOKafkaConsumer("t", **options, group_id="g")
            await stack.enter_async_context(consumer)
            assert (await consumer.getone()).value == b"v"

    asyncio.run(service())


def test_a_frozen_loop_is_what_hangs_without_the_fixture() -> None:
    """The premise: if this fails, freezegun leaves loops alone, and ``real_loop_time`` can go."""

    async def tell() -> float:
        with freeze_time("2020-01-01"):
            return asyncio.BaseEventLoop.time(cast("Any", asyncio.get_running_loop()))

    assert asyncio.run(tell()) == _WHEN


def test_records_follow_the_frozen_time_of_a_wall_clock(fake_kafka: FakeCluster) -> None:
    async def service() -> None:
        async with Producer(fake_kafka.bootstrap, wall_clock=lambda: time.time()) as producer:  # noqa: PLW0108 - looked up at each call
            with freeze_time("2020-01-01"):
                for _ in range(5):
                    await producer.send_and_wait("t", b"v")

    asyncio.run(service())
    assert {record.timestamp for record in fake_kafka.log("t", 0)} == {_WHEN * 1000}
