"""From the first call to the last: start, stop and what may be called when."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from kafkaclient.errors import ProducerClosedError, ProducerStateError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster


def now() -> float:
    return asyncio.get_running_loop().time()


def one_topic(partitions: int = 3, brokers: int = 3) -> FakeCluster:
    fake = FakeCluster(brokers=brokers)
    fake.create_topic("t", partitions)
    return fake


@virtual_time
async def test_stop_ends_a_start_under_way() -> None:
    fake = one_topic(brokers=1)
    fake.stall_broker(0)
    producer = Producer(fake.bootstrap, dialer=fake)
    start = asyncio.create_task(producer.start())
    await asyncio.sleep(0.1)
    with pytest.raises(ProducerStateError, match="is being started"):
        await producer.send("t", b"v")
    with pytest.raises(ProducerStateError, match="is being started"):
        await producer.start()
    before = now()
    assert await asyncio.gather(producer.stop(), producer.stop()) == [0, 0]
    with pytest.raises(ProducerClosedError):
        await start
    assert now() - before < 0.1
    assert repr(producer).endswith("is stopped>")
    assert asyncio.all_tasks() == {asyncio.current_task()}


@virtual_time
async def test_stop_at_every_moment_of_a_start() -> None:
    """Whichever comes first, the two agree."""
    fake = one_topic(brokers=1)
    fake.round_trip_s = 0.002
    for turns in range(40):
        producer = Producer(fake.bootstrap, dialer=fake)
        start = asyncio.create_task(producer.start())
        for _ in range(turns):
            await asyncio.sleep(0 if turns % 2 else 0.0002)
        assert await asyncio.wait_for(producer.stop(), 1) == 0
        (outcome,) = await asyncio.gather(start, return_exceptions=True)
        assert outcome is None or isinstance(outcome, ProducerStateError)
        assert repr(producer).endswith("is stopped>")
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("stopped", [False, True])
@virtual_time
async def test_calls_without_a_start(stopped: bool) -> None:
    producer = Producer("localhost:9092")
    if stopped:
        assert await producer.stop() == 0
    calls: list[Any] = [
        producer.metrics,
        producer.load,
        producer.flush,
        lambda: producer.partitions_for("t"),
        lambda: producer.send("t", b"v"),
        lambda: producer.send_nowait("t", b"v"),
    ]
    for call in calls:
        with pytest.raises(ProducerStateError) as caught:
            await call()
        assert isinstance(caught.value, ProducerClosedError) == stopped


def test_a_producer_that_was_never_made_says_nothing_at_its_end() -> None:
    with pytest.raises(TypeError):
        Producer("a:9092", "b:9092")  # type: ignore[call-arg]


@virtual_time
async def test_a_fatal_error_gathers_no_frames(producing: Any) -> None:
    async with producing(one_topic()) as producer:
        producer._core.die(fatal := ProducerClosedError("defect"))
        for _ in range(50):
            with pytest.raises(ProducerClosedError, match="defect"):
                await producer.send("t", b"v")
        assert sum(1 for _ in traceback.walk_tb(fatal.__traceback__)) < 8


async def test_the_wrong_event_loop(producing: Any) -> None:
    """From a thread with another loop, or with none."""
    async with producing(one_topic()) as producer:
        await producer.send_and_wait("t", b"v")

        def without_loop() -> None:
            producer.send_nowait("t", b"v")

        async def send() -> None:
            await producer.send("t", b"v")

        for call in (without_loop, lambda: asyncio.run(send())):
            with pytest.raises(ProducerStateError, match="event loop"):
                await asyncio.to_thread(call)
