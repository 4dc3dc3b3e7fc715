"""The event loop is blocked, or the process suspended: later records have their full time, and an
answer that lay in the socket counts."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    TransactionTimeoutError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP_ANSWER, FakeCluster, delay_answer
from kafkaclient.time_limit import time_limit, wait_within
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.producer.support import StartProducer


def block(seconds: float) -> None:
    """As code that computes for so long without awaiting."""
    loop: Any = asyncio.get_running_loop()
    loop._now += seconds


HOW: dict[str, Callable[[Producer], Awaitable[Any]]] = {
    "send_nowait": lambda p: p.send_nowait("t", b"b"),
    "send": lambda p: p.send_and_wait("t", b"b"),
    "keyed": lambda p: p.send_and_wait("t", b"b", key=b"k"),
    "partition": lambda p: p.send_and_wait("t", b"b", partition=0, timestamp_ms=7),
    "send_many": lambda p: many(p, [b"b"]),
}


async def many(producer: Producer, values: list[bytes]) -> None:
    await (await producer.send_many("t", values))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("stall", [2.0, 9.0, 30.0])
@virtual_time
async def test_a_record_after_a_stall_has_its_full_time(
    how: str, stall: float, producing: StartProducer
) -> None:
    """It joins no batch that is older than 10 % of delivery.timeout.ms."""
    fake = one_topic(1)
    options = {"linger_ms": 500, "delivery_timeout_ms": 10_000, "request_timeout_ms": 2_000}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"0")
        old = [producer.send_nowait("t", b"a", key) for key in (None, None, b"k", b"k")]
        for broker in range(3):
            fake.stop_broker(broker, elect=False)
        block(stall)
        began = now()
        with pytest.raises(Exception, match="not acknowledged within"):
            await HOW[how](producer)
        assert 10 <= now() - began <= 10.1
        for delivery in old:
            assert isinstance(delivery.exception(), DeliveryTimeoutError)


@virtual_time
async def test_a_record_after_a_stall_of_healthy_brokers_is_delivered(
    producing: StartProducer,
) -> None:
    fake = one_topic(1)
    fake.round_trip_s = 0.02
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"0")
        old = producer.send_nowait("t", b"a")
        block(130)
        assert (await producer.send_nowait("t", b"b")).offset >= 1
        assert old.done()


# --- answers in the socket --------------------------------------------------------------------


def test_metadata_that_lay_in_the_socket_counts() -> None:
    """Real sockets: only there an answer waits unread."""

    async def main() -> None:
        async with Producer(fake.bootstrap, max_block_ms=500) as producer:
            await producer.send_and_wait("t", b"0")
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "a": lambda: producer.send_and_wait("a", b"1"),
                "b": lambda: producer.partitions_for("b"),
                "c": producer.refresh_metadata,
            }
            for name, call in calls.items():
                fake.create_topic(name, 1)
                fake.control(ApiKey.METADATA, delay_answer(0.03))
                task = asyncio.ensure_future(call())
                await asyncio.sleep(0.01)
                time.sleep(0.7)  # noqa: ASYNC251 - it blocks the event loop
                await task

    with FakeCluster(1).serve() as fake:
        fake.create_topic("t", 1)
        asyncio.run(main())


async def limited(seconds: float, blocked: float, work: float) -> None:
    async with time_limit(seconds) as limit:
        try:
            block(blocked)
            await asyncio.sleep(work)
        finally:
            assert limit.when() is not None, "it ended by its time"


@virtual_time
async def test_a_time_limit_is_patient_once() -> None:
    """As long as the event loop was blocked, from 20 ms to 1 s; it is punctual otherwise."""
    for blocked, late in ((0.0, 0.0), (0.4, 0.0), (0.505, 0.02), (0.8, 0.3), (5.0, 1.0)):
        began = now()
        with pytest.raises(TimeoutError):
            await limited(0.5, blocked, 100)
        assert now() - began == pytest.approx(max(0.5, blocked) + late)
    async with time_limit(None):
        await asyncio.sleep(100)
    with pytest.raises(TimeoutError):
        await limited(-1, 0, 0.001)
    task = asyncio.create_task(asyncio.sleep(3))
    assert not await wait_within(task, 2)
    assert await wait_within(task, 2)


@virtual_time
async def test_an_answer_within_the_patience_counts(producing: StartProducer) -> None:
    fake = one_topic(1)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"0")
        fake.control(ApiKey.PRODUCE, delay_answer(1.0))
        producer.send_nowait("t", b"1")
        flushing = asyncio.create_task(producer.flush(0.5))
        await asyncio.sleep(0.01)
        block(0.9)
        await flushing
        fake.control(ApiKey.PRODUCE, delay_answer(3.0))
        producer.send_nowait("t", b"2")
        with pytest.raises(FlushTimeoutError):
            await producer.flush(0.5)


# --- start and stop -----------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1])
@virtual_time
async def test_stop_ends_in_time_though_bytes_cannot_be_written(acks: int) -> None:
    fake = one_topic(3)
    producer = Producer(fake.bootstrap, dialer=fake, acks=acks, enable_idempotence=False)
    await producer.start()
    await producer.send_and_wait("t", b"0")
    for broker in range(3):
        fake.stall_broker(broker)
    with suppress(BufferFullError):
        while True:
            producer.send_nowait("t", bytes(10_000))
    await asyncio.sleep(0.1)
    began = now()
    assert await producer.stop(0.5) > 0
    assert now() - began <= 0.61


@virtual_time
async def test_a_transactional_producer_starts_within_max_block_ms() -> None:
    fake = FakeCluster()
    fake.control(ApiKey.METADATA, delay_answer(6.0))
    fake.control(ApiKey.INIT_PRODUCER_ID, DROP_ANSWER, keep=True)
    producer = Producer(fake.bootstrap, dialer=fake, transactional_id="x", max_block_ms=10_000)
    with pytest.raises(TransactionTimeoutError):
        await producer.start()
    assert now() == pytest.approx(10, abs=0.1)


@virtual_time
async def test_a_batch_that_expires_in_a_stall_is_not_sent(producing: StartProducer) -> None:
    """So its error is certain: it has not been written, and may be sent again."""
    fake = one_topic(1)
    async with producing(fake, delivery_timeout_ms=300, request_timeout_ms=200) as producer:
        await producer.send_and_wait("t", b"first")
        delivery = producer.send_nowait("t", b"late")
        block(1.0)
        with pytest.raises(DeliveryTimeoutError) as caught:
            await delivery
    assert not caught.value.maybe_written
    assert [record.value for record in fake.log("t", 0)] == [b"first"]


@pytest.mark.parametrize("linger_ms", [0, 5])
@virtual_time
async def test_a_timer_that_passed_during_a_standstill_speaks_before_the_sender(
    producing: StartProducer, linger_ms: int
) -> None:
    """What a program wanted to send before it stood still may be out of date: it gives it up in
    time, as tasks do that wait in a time limit of their own."""
    fake = one_topic(1)

    async def send_and_forget(producer: Producer) -> None:
        try:
            async with asyncio.timeout(1.0):
                producer.send_nowait("t", b"old")
                block(9.0)
                await producer.flush()
        except TimeoutError:
            await producer.stop(0)
            raise

    async with producing(fake, linger_ms=linger_ms) as producer:
        await producer.send_and_wait("t", b"0")
        with pytest.raises(TimeoutError):
            await send_and_forget(producer)
    assert [record.value for record in fake.log("t", 0)] == [b"0"]


@virtual_time
async def test_after_a_standstill_records_are_sent_soon(producing: StartProducer) -> None:
    fake = one_topic(1)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")
        delivery = producer.send_nowait("t", b"1")
        block(9.0)
        began = now()
        await delivery
        assert now() - began < 0.1
