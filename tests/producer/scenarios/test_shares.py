"""One broker holds its share of the buffer: leaders that move, large records, bulk calls."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BufferFullError
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import virtual_time
from tests.producer.support import one_topic, warm

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import Delivery, Producer
    from tests.producer.support import StartProducer

OPTIONS = {"buffer_memory": 400_000, "max_block_ms": 600_000, "metadata_max_age_ms": 1000}


def cluster() -> FakeCluster:
    """Partition n, and n + 3, is led by broker n."""
    return one_topic(6)


def fill(producer: Producer) -> list[Delivery]:
    """Send to the stalled broker until its share of the buffer is full."""
    deliveries = []
    while True:
        try:
            deliveries.append(producer.send_nowait("t", bytes(300), partition=0))
        except BufferFullError:
            return deliveries


@virtual_time
async def test_what_is_at_the_former_leader_is_not_charged_to_the_new_one(
    producing: StartProducer,
) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        sends = [
            asyncio.create_task(producer.send("t", bytes(3000), partition=partition))
            for _ in range(300)
            for partition in (0, 3)
        ]
        await asyncio.sleep(3)
        fake.move_leader("t", 3, 1)
        for _ in range(10):
            await asyncio.sleep(3)
            for partition in (1, 2):  # BufferFullError if others hold the memory
                await producer.send_nowait("t", bytes(3000), partition=partition)
        fake.resume_broker(0)
        await asyncio.gather(*[await sent for sent in sends])


@virtual_time
async def test_a_send_follows_its_partition_to_the_new_leader(producing: StartProducer) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        deliveries = fill(producer)
        first = asyncio.create_task(producer.send_and_wait("t", bytes(3000), partition=0))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(producer.send_and_wait("t", bytes(3000), partition=3))
        await asyncio.sleep(0.01)
        fake.move_leader("t", 3, 1)
        await asyncio.sleep(5)
        assert (first.done(), second.done()) == (False, True)
        fake.resume_broker(0)
        await asyncio.gather(first, *deliveries)


@virtual_time
async def test_a_record_larger_than_what_is_free_waits_alone(producing: StartProducer) -> None:
    """What it waits for is at a broker that takes nothing."""
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        fill(producer)
        large = asyncio.create_task(producer.send_and_wait("t", bytes(100_000), partition=1))
        for _ in range(20):
            await asyncio.sleep(0.2)
            await asyncio.wait_for(producer.send_and_wait("t", b"", partition=2), 1)
        producer.send_nowait("t", b"", partition=2)
        assert not large.done()
        fake.resume_broker(0)
        await large


@pytest.mark.parametrize("partition", [1, None])
@virtual_time
async def test_many_small_rows_need_no_more_than_what_is_left(
    producing: StartProducer, partition: int | None
) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS | {"buffer_memory": 100_000}) as producer:
        await warm(producer)
        fake.stall_broker(0)
        fill(producer)
        rows = [bytes(100)] * 2000
        async with asyncio.timeout(2):  # in this task: nothing has been sent to the broker yet
            await (await producer.send_many("t", rows, partition=partition))
        fake.resume_broker(0)


@virtual_time
async def test_claims_of_many_partitions_follow_their_leaders(producing: StartProducer) -> None:
    fake = FakeCluster(brokers=2)
    fake.create_topic("t", 1500)
    async with producing(fake, **OPTIONS) as producer:
        await producer.send_and_wait("t", b"", partition=0)
        await producer.send_and_wait("t", b"", partition=1)
        fake.stall_broker(0)
        fill(producer)
        sends = [
            asyncio.create_task(producer.send_and_wait("t", bytes(300), partition=partition))
            for partition in range(2, 1500, 2)
        ]
        await asyncio.sleep(0.1)
        for partition in range(2, 1500, 2):
            fake.move_leader("t", partition, 1)
        await asyncio.wait_for(asyncio.gather(*sends), 20)
        fake.resume_broker(0)


async def after_a_moment(value: bytes) -> bytes:
    return value


@pytest.mark.parametrize("serializer", [None, after_a_moment])
@virtual_time
async def test_a_burst_takes_no_more_than_its_share(
    producing: StartProducer, serializer: Callable[[bytes], Any] | None
) -> None:
    """Sends that have waited together, for metadata or for serializers, go on in one pass of the
    event loop. A large record for another broker finds room all the same."""
    fake = cluster()
    fake.create_topic("new", 6)
    async with producing(fake, **OPTIONS, value_serializer=serializer) as producer:
        await warm(producer)
        fake.stall_broker(0)
        sends = [
            asyncio.create_task(producer.send("new", bytes(3000), partition=0)) for _ in range(300)
        ]
        await asyncio.sleep(0.1)
        await asyncio.wait_for(producer.send_and_wait("t", bytes(20_000), partition=1), 1)
        fake.resume_broker(0)
        await asyncio.gather(*[await sent for sent in sends])


@virtual_time
async def test_thousands_of_sends_wait_and_get_room_at_once(producing: StartProducer) -> None:
    """Each of them lets the next one of its partition claim room, while claims are granted."""
    fake = FakeCluster(brokers=1)
    fake.create_topic("t", 4)
    placed: list[list[tuple[int, int]]] = [[] for _ in range(4)]

    async def send(producer: Producer, number: int) -> None:
        at = await producer.send_and_wait("t", bytes(100), partition=number % 4)
        placed[at.partition].append((at.offset, number))

    async with producing(fake, **OPTIONS) as producer:
        for partition in range(4):
            await producer.send_and_wait("t", b"", partition=partition)
        fake.stall_broker(0)
        sends = [asyncio.create_task(send(producer, number)) for number in range(4000)]
        await asyncio.sleep(3)
        fake.resume_broker(0)
        await asyncio.wait_for(asyncio.gather(*sends), 1)
    for number, records in enumerate(placed):
        assert [sent for _offset, sent in sorted(records)] == list(range(number, 4000, 4))


def send_until_refused(producer: Producer) -> None:
    for _ in range(1000):
        producer.send_nowait("t", b"", partition=0)


@virtual_time
async def test_a_refused_record_tells_of_its_own_broker(producing: StartProducer) -> None:
    """Another broker holds more; but the record waits behind one that its own broker holds up."""
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        for node in (0, 1):
            fake.stall_broker(node)
        sends = []
        for size, partition in [(3000, 1), (9000, 0)]:
            sends += [
                asyncio.create_task(producer.send("t", bytes(size), partition=partition))
                for _ in range(300)
            ]
            await asyncio.sleep(1)
        with pytest.raises(BufferFullError, match="bytes wait for broker 0") as refused:
            send_until_refused(producer)
        own, most = re.findall(r"(\d+) bytes wait for broker", refused.value.holder)
        assert int(own) < int(most)
        assert f"; most of the buffer, {most} bytes wait for broker 1, whose" in str(refused.value)
        for node in (0, 1):
            fake.resume_broker(node)
        await asyncio.wait_for(asyncio.gather(*sends), 60)
