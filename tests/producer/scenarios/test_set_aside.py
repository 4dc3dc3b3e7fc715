"""Rows of ``send_many`` and ``send_arrow`` whose broker takes nothing: the others pass them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kafkaclient.errors import (
    BufferFullError,
    BulkDeliveryError,
    KafkaError,
    ProducerClosedError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import RecordMetadata
from tests.producer.support import one_topic, warm

if TYPE_CHECKING:
    from kafkaclient import BulkDelivery, Producer
    from kafkaclient.testing import FakeCluster
    from tests.producer.support import StartProducer

OPTIONS = {"buffer_memory": 400_000, "max_block_ms": 600_000, "metadata_max_age_ms": 1000}
KEYS = [f"key {n}".encode() for n in range(40)]


def cluster() -> FakeCluster:
    """Partition n, and n + 3, is led by broker n."""
    return one_topic(6)


async def send_all(producer: Producer, rows: list[tuple[bytes, bytes]], way: str) -> BulkDelivery:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    if way == "arrow":
        return await producer.send_arrow("t", pa.table({"key": keys, "value": values}))
    return await producer.send_many("t", values, keys=keys)


def written(fake: FakeCluster) -> dict[int, list[tuple[bytes, bytes]]]:
    """The keyed records by partition."""
    found = {}
    for partition in range(6):
        records = fake.log("t", partition)
        found[partition] = [(r.key, r.value) for r in records if r.key is not None]
    return found


def rows_of(number: int, count: int, size: int) -> list[tuple[bytes, bytes]]:
    """Rows of the call ``number`` with keys at random; their values count up."""
    draw = Random(number)
    return [
        (draw.choice(KEYS), f"{number:03} {n:05}".encode().ljust(size, b".")) for n in range(count)
    ]


def assert_in_order(fake: FakeCluster, calls: list[list[tuple[bytes, bytes]]]) -> None:
    """Each key has its rows once, in the order of the calls, and of the rows in a call."""
    expected, found = defaultdict(list), defaultdict(list)
    numbers = {rows[0][1][:3] for rows in calls}
    for call in calls:
        for key, value in call:
            expected[key].append(value)
    for records in written(fake).values():
        for key, value in records:
            if value[:3] in numbers:
                found[key].append(value)
    assert found == expected


def assert_no_holes(fake: FakeCluster, rows: list[tuple[bytes, bytes]]) -> None:
    """Of each key the first rows are there, however many."""
    there = {value for records in written(fake).values() for _, value in records}
    missing = set[bytes]()
    for key, value in rows:
        if value not in there:
            missing.add(key)
        assert value not in there or key not in missing, value


@pytest.mark.parametrize(("way", "size"), [("many", 50), ("many", 1500), ("arrow", 1500)])
@virtual_time
async def test_rows_for_brokers_that_are_well_are_delivered_meanwhile(
    producing: StartProducer, way: str, size: int
) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        calls = [rows_of(number, 1_200_000 // 8 // size, size) for number in range(8)]
        sends = [asyncio.create_task(send_all(producer, rows, way)) for rows in calls]
        await asyncio.sleep(1)
        there = written(fake)
        well = sum(len(there[partition]) for partition in (1, 2, 4, 5))
        fake.resume_broker(0)
        deliveries = await asyncio.wait_for(asyncio.gather(*sends), 60)
        outcomes = [await delivery for delivery in deliveries]
        assert [outcome.records for outcome in outcomes] == [len(rows) for rows in calls]
        there = written(fake)
        assert well == sum(len(there[partition]) for partition in (1, 2, 4, 5))
        assert sum(len(there[partition]) for partition in (0, 3)) > 100_000 // size
        for rows in calls:  # the calls wait at the same time: only the order in each is promised
            assert_in_order(fake, [rows])


@virtual_time
async def test_other_ways_of_sending_keep_their_order_with_rows_that_were_set_aside(
    producing: StartProducer,
) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        calls = [rows_of(number, 400, 500) for number in range(4)]
        sends: list[asyncio.Task[object]] = []
        for number, rows in enumerate(list(calls)):
            sends.append(asyncio.create_task(send_all(producer, rows, "many")))
            await asyncio.sleep(0.3)
            single = rows_of(100 + number, 20, 30)
            for key, value in single:
                sends.append(asyncio.create_task(producer.send("t", value, key=key)))
                await asyncio.sleep(0)
            calls.append(single)
        calls.sort(key=lambda rows: (int(rows[0][1][:3]) % 100, rows[0][1]))
        await asyncio.sleep(3)
        fake.resume_broker(0)
        await asyncio.wait_for(asyncio.gather(*sends), 60)
        await producer.flush()
        assert_in_order(fake, calls)


@virtual_time
async def test_rows_that_find_no_room_in_time_end_the_call(producing: StartProducer) -> None:
    fake = cluster()
    options = OPTIONS | {"max_block_ms": 2000, "delivery_timeout_ms": 600_000}
    async with producing(fake, **options) as producer:
        await warm(producer)
        fake.stall_broker(0)
        rows = rows_of(1, 4000, 500)
        with pytest.raises(BufferFullError, match=r"broker 0.*records of the call were") as caught:
            await asyncio.wait_for(send_all(producer, rows, "many"), 30)
        delivery = caught.value.delivery
        assert delivery is not None
        assert 2500 < delivery.records < 4000
        assert_no_holes(fake, rows)
        fake.resume_broker(0)
        assert (await asyncio.wait_for(delivery, 30)).records == delivery.records
        metadata = await producer.send_and_wait("t", b"", partition=0)
        assert isinstance(metadata, RecordMetadata), "the partition waits for nobody"


@pytest.mark.parametrize("after", [0.0, 0.05, 0.1, 0.1001, 0.5, 2.0])
@virtual_time
async def test_a_call_that_is_canceled_leaves_nothing_behind(
    producing: StartProducer, after: float
) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        sending = asyncio.create_task(send_all(producer, rows_of(1, 4000, 500), "many"))
        await asyncio.sleep(after)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        fake.resume_broker(0)
        for partition in range(6):
            await asyncio.wait_for(producer.send_and_wait("t", b"", partition=partition), 10)
        await producer.flush()
        assert producer.metrics().producer["waiting-threads"] == 0
        assert producer.metrics().producer["buffer-available-bytes"] == OPTIONS["buffer_memory"]


@virtual_time
async def test_a_stop_ends_calls_with_rows_set_aside(producing: StartProducer) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        sending = asyncio.create_task(send_all(producer, rows_of(1, 4000, 500), "many"))
        await asyncio.sleep(1)
        await producer.stop(timeout=1)
        with pytest.raises(ProducerClosedError, match="records of the call were handed over"):
            await asyncio.wait_for(sending, 1)


@virtual_time
async def test_two_calls_that_wait_for_the_same_brokers_go_on(producing: StartProducer) -> None:
    """A turn at one partition is no turn at another one."""
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stall_broker(0)
        calls = [rows_of(number, 4000, 500) for number in range(2)]
        sends = [asyncio.create_task(send_all(producer, rows, "many")) for rows in calls]
        await asyncio.sleep(2)
        fake.resume_broker(0)
        await asyncio.wait_for(asyncio.gather(*sends), 60)
        await producer.flush()
        for rows in calls:
            assert_in_order(fake, [rows])


@virtual_time
async def test_a_broker_that_stops_and_comes_back(producing: StartProducer) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS) as producer:
        await warm(producer)
        fake.stop_broker(0)
        rows = rows_of(1, 4000, 500)
        sending = asyncio.create_task(send_all(producer, rows, "many"))
        await asyncio.sleep(1)
        well = sum(len(written(fake)[partition]) for partition in (1, 2, 4, 5))
        fake.start_broker(0)
        await (await asyncio.wait_for(sending, 60))
        assert well == sum(len(written(fake)[partition]) for partition in (1, 2, 4, 5))
        assert_in_order(fake, [rows])


@virtual_time
async def test_partitions_that_are_added_meanwhile_do_not_change_the_order(
    producing: StartProducer,
) -> None:
    """Rows of a key that are set aside may belong to another partition afterwards: no later row
    of the key goes there before them."""
    fake = cluster()
    async with producing(fake, **OPTIONS | {"metadata_max_age_ms": 500}) as producer:
        await warm(producer)
        for node in (0, 1):
            fake.stall_broker(node)
        rows = rows_of(1, 4000, 500)
        sending = asyncio.create_task(send_all(producer, rows, "many"))
        await asyncio.sleep(0.05)
        fake.add_partitions("t", 9)
        await asyncio.sleep(2)
        for node in (0, 1):
            fake.resume_broker(node)
        assert (await (await asyncio.wait_for(sending, 60))).records == len(rows)
        for partition in range(9):
            last: dict[bytes | None, bytes] = {}
            for record in fake.log("t", partition):
                if record.key is not None and record.value is not None:
                    assert record.value > last.get(record.key, b""), "passed"
                    last[record.key] = record.value


class ByKey:
    """A custom partitioner."""

    def partition(self, _t: str, key: bytes | None, _v: object, _c: object, _l: object) -> int:
        return int((key or b"0").split()[-1]) % 6


@pytest.mark.parametrize("partitioner", ["kip794", ByKey()], ids=["kip794", "custom"])
@virtual_time
async def test_other_partitioners_keep_the_order(
    producing: StartProducer, partitioner: object
) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS, partitioner=partitioner) as producer:
        await warm(producer)
        fake.stall_broker(0)
        calls = [rows_of(number, 1500, 500) for number in range(2)]
        sends = [asyncio.create_task(send_all(producer, rows, "many")) for rows in calls]
        await asyncio.sleep(1)
        explicit = await producer.send_many("t", [b"x"] * 10, partition=1)
        assert (await asyncio.wait_for(explicit, 1)).records == 10
        fake.resume_broker(0)
        await asyncio.wait_for(asyncio.gather(*sends), 60)
        await producer.flush()
        for rows in calls:
            assert_in_order(fake, [rows])


@virtual_time
async def test_a_transaction_has_all_rows_or_none(producing: StartProducer) -> None:
    fake = cluster()
    async with producing(fake, **OPTIONS, transactional_id="tx") as producer:
        for commits in (False, True):
            rows = rows_of(int(commits), 4000, 500)
            await producer.begin_transaction()
            await warm(producer)
            fake.stall_broker(0)
            sending = asyncio.create_task(send_all(producer, rows, "many"))
            await asyncio.sleep(0.5)
            asyncio.get_running_loop().call_later(0.5, fake.resume_broker, 0)
            if commits:
                await asyncio.wait_for(sending, 60)
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
                with pytest.raises(KafkaError, match="records of the call were handed over"):
                    await asyncio.wait_for(sending, 60)
        committed = [r.value for p in range(6) for r in fake.committed_log("t", p) if r.key]
        assert sorted(filter(None, committed)) == sorted(value for _, value in rows)


@virtual_time
async def test_rows_take_the_place_of_batches_that_expire(producing: StartProducer) -> None:
    fake = cluster()
    times = {"linger_ms": 0, "request_timeout_ms": 1000, "delivery_timeout_ms": 1500}
    async with producing(fake, **OPTIONS | times) as producer:
        await warm(producer)
        fake.stall_broker(0)
        rows = rows_of(1, 4000, 500)
        delivery = await asyncio.wait_for(send_all(producer, rows, "many"), 60)
        with pytest.raises(BulkDeliveryError) as caught:
            await delivery
        well = sum(len(written(fake)[partition]) for partition in (1, 2, 4, 5))
        assert well + caught.value.failed == len(rows)
        fake.resume_broker(0)


@pytest.mark.parametrize("size", [1_000, 5_000, 12_000])
@virtual_time
async def test_calls_that_waited_for_metadata_take_no_more_than_their_share(
    producing: StartProducer, size: int
) -> None:
    """Each call has one row. Those for the broker that takes nothing are admitted in one pass of
    the event loop with the others, and leave them what they need."""
    fake = cluster()
    async with producing(fake, **OPTIONS | {"buffer_memory": 64_000}) as producer:
        await warm(producer)
        fake.create_topic("new", 6)
        fake.stall_broker(0)
        sends = [
            asyncio.create_task(
                producer.send_many("new", [bytes(100 if n % 6 else size)], partition=n % 6)
            )
            for n in range(1, 600)
        ]
        await asyncio.sleep(2)
        there = sum(len(fake.log("new", partition)) for partition in (1, 2, 4, 5))
        assert there == sum(n % 3 > 0 for n in range(1, 600))
        fake.resume_broker(0)
        await asyncio.gather(*[await sent for sent in sends])
