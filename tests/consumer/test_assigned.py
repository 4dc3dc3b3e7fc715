"""Partitions assigned by hand: records, batches, positions, resets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kafkaclient import Producer
from kafkaclient.errors import (
    ConsumerStateError,
    LogTruncatedError,
    NoOffsetError,
    PartitionOutOfRangeError,
    UnreadableBatchError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from kafkaclient.consumer import Consumer
    from kafkaclient.testing.fake import FakeCluster
    from tests.consumer.conftest import Tools

P = [TopicPartition("t", number) for number in range(4)]


async def offsets(consumer: Consumer, count: int) -> list[int]:
    """The offsets of the next records; the last one is finished."""
    found = []
    if not count:
        return found
    async for record in consumer:
        found.append(record.offset)
        if len(found) == count:
            record.done()
            break
    return found


@virtual_time
async def test_records_come_in_order_with_all_they_have(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        records = []
        async for record in consumer:
            records.append(record)
            assert consumer.position(P[0]) == record.offset + 1
            if len(records) == 10:
                break
        assert [r.offset for r in records] == list(range(10))
        assert [(r.key, r.value) for r in records[:2]] == [(b"k0", b"0"), (b"k1", b"1")]
        assert (records[3].timestamp, records[3].headers) == (1003, (("h", b"x"),))
        assert consumer.lag() == {P[0]: 0}
        assert "t-0 offset 9" in repr(records[9])


@virtual_time
async def test_a_new_loop_begins_with_the_record_in_hand(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([P[0]])
        async for record in consumer:
            if record.offset == 4:
                break
        async for record in consumer:
            assert record.offset == 4
            record.done()
            break
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                async for record in consumer:
                    assert record.offset == 5
                    await asyncio.sleep(2)
        async for batch in consumer.batches():  # the rest is fetched again
            assert batch.base_offset == 5
            break
        async for record in consumer:
            assert record.offset == 5
            await consumer.commit()
            break
        assert tools.committed(fake, P[0]) == 6
        assert await offsets(consumer, 2) == [6, 7]
    assert tools.committed(fake, P[0]) == 8


@virtual_time
async def test_what_is_in_hand_is_not_committed_at_the_end(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([P[0]])
        async for record in consumer:
            if record.offset == 4:
                break
    assert tools.committed(fake, P[0]) == 4
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([P[0]])
        assert await offsets(consumer, 1) == [4]


@virtual_time
async def test_commits_by_the_clock_never_have_what_is_in_hand(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g", auto_commit_interval_ms=100) as consumer:
        consumer.assign([P[0]])
        async for record in consumer:
            await asyncio.sleep(0.25)
            assert tools.committed(fake, P[0]) == record.offset
            if record.offset == 9:
                break


@virtual_time
async def test_without_auto_commit_only_the_application_commits(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P[0]])
        await offsets(consumer, 5)
        await asyncio.sleep(20)
    assert tools.committed(fake, P[0]) is None
    async with tools.consumer(fake, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P[0]])
        await offsets(consumer, 5)
        await consumer.commit({P[0]: 3})
        assert await consumer.committed([P[0], P[1]]) == {P[0]: 3, P[1]: None}
        with pytest.raises(ConsumerStateError, match="t-1 is not assigned"):
            await consumer.commit({P[1]: 3})


@virtual_time
async def test_tracked_records_commit_the_lowest_unfinished_offset(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([P[0]])
        taken = []
        async for record in consumer.tracked():
            taken.append(record)
            if len(taken) == 6:
                break
        for index, finished in ((1, 0), (0, 2), (3, 2), (2, 4), (5, 4)):
            taken[index].done()
            taken[index].done()
            await consumer.commit()
            assert tools.committed(fake, P[0]) == finished
        assert consumer.position(P[0]) == 6
        stream = consumer.tracked()
        assert (await anext(stream)).offset == 6
        assert (await anext(stream)).offset == 7
    assert tools.committed(fake, P[0]) == 4


@virtual_time
async def test_seek_pause_and_resume(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)
    tools.fill(fake, 1, 10)
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        assert await offsets(consumer, 2) == [0, 1]
        consumer.seek(P[0], 7)
        assert consumer.position(P[0]) == 7
        assert await offsets(consumer, 2) == [7, 8]
        await consumer.seek_to("earliest")
        assert await offsets(consumer, 1) == [0]
        await consumer.seek_to(1004)
        assert await offsets(consumer, 1) == [4]
        consumer.pause(P[0])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await offsets(consumer, 1)
        consumer.resume(P[0])
        assert await offsets(consumer, 2) == [5, 6]
        with pytest.raises(ConsumerStateError, match="t-1 is not assigned"):
            consumer.seek(P[1], 0)
        consumer.assign([P[1]])
        assert await offsets(consumer, 1) == [0]
        assert consumer.assignment == {P[1]}
        assert await consumer.offsets([P[1]], 1005) == {P[1]: 5}
        assert await consumer.offsets([P[1]], 2000) == {P[1]: None}


@virtual_time
async def test_where_partitions_begin(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)
    for reset, wall_s, first in (
        ("earliest", 0.0, 0),
        ("latest", 0.0, 10),
        ("by_duration:PT1S", 2.0065, 6),
        ("by_duration:PT1S", 90.0, 10),
    ):
        async with tools.consumer(
            fake, auto_offset_reset=reset, wall_clock=lambda at=wall_s: at
        ) as consumer:
            consumer.assign([P[0]])
            await tools.until(lambda: consumer.position(P[0]) is not None)
            assert consumer.position(P[0]) == first
    async with tools.consumer(fake, auto_offset_reset="none", group_id="g") as consumer:
        consumer.assign([P[0]])
        with pytest.raises(NoOffsetError, match="t-0: group 'g' has no offset"):
            await offsets(consumer, 1)
        with pytest.raises(NoOffsetError):
            await consumer.wait_position(P[0])
        consumer.seek(P[0], 9)
        assert await offsets(consumer, 1) == [9]


@virtual_time
async def test_a_truncated_log_is_told(
    fake: FakeCluster, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the log is as long again: its records are others."""
    tools.fill(fake, 0, 12)
    for reset in ("latest", "none"):
        async with tools.consumer(fake, auto_offset_reset=reset) as consumer:
            consumer.assign([P[0]])
            consumer.seek(P[0], 0)
            stream = aiter(consumer)
            assert [(await anext(stream)).offset for _ in range(12)] == [*range(12)]
            waits = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(1)
            fake.truncate("t", 0, 6, 1)
            tools.fill(fake, 0, 9)
            if reset == "none":
                with pytest.raises(LogTruncatedError, match=r"t-0.*truncated at offset 6") as found:
                    await waits
                assert (found.value.truncated_to, found.value.offset) == (6, 12)
                consumer.seek(P[0], 14)
                assert (await anext(stream)).offset == 14
            else:
                assert (await waits).offset == 6
                assert [(await anext(stream)).offset for _ in range(8)] == [*range(7, 15)]
                assert "truncated at offset 6" in caplog.text
        fake.truncate("t", 0, 12, 0)


@virtual_time
async def test_an_offset_that_is_gone_is_reset(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign([P[0]])
        consumer.seek(P[0], 50)
        assert await offsets(consumer, 1) == [0]


@virtual_time
async def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g", auto_offset_reset="latest") as consumer:
        consumer.assign([P[0]])
        await consumer.seek_to("earliest")
        await offsets(consumer, 10)
        fake.delete_topic("t")
        fake.create_topic("t", 4)
        tools.fill(fake, 0, 3)
        assert await offsets(consumer, 3) == [0, 1, 2]


@pytest.mark.parametrize(("newest", "begins"), [(10, 2), (9, 0)])
@virtual_time
async def test_a_topic_that_is_created_again_is_read_from_the_offset_of_the_group(
    fake: FakeCluster, tools: Tools, newest: int, begins: int
) -> None:
    """By id it is surely one of the new topic. By name it may be one of the old topic."""
    fake.set_versions(ApiKey.OFFSET_FETCH, 1, newest)
    fake.set_versions(ApiKey.OFFSET_COMMIT, 2, newest)
    tools.fill(fake, 0, 10)
    options = {"group_id": "g", "enable_auto_commit": False}
    async with tools.consumer(fake, **options) as zombie, tools.consumer(fake, **options) as other:
        zombie.assign([P[0]])
        await offsets(zombie, 10)
        fake.delete_topic("t")
        fake.create_topic("t", 4)
        tools.fill(fake, 0, 5)
        other.assign([P[0]])
        await offsets(other, 2)
        await other.commit({P[0]: 2})
        assert await offsets(zombie, 1) == [begins]


@virtual_time
async def test_a_partition_that_does_not_exist(fake: FakeCluster, tools: Tools) -> None:
    async with tools.consumer(fake) as consumer:
        consumer.assign([("t", 9)])
        with pytest.raises(PartitionOutOfRangeError, match="t-9: the topic has 4 partitions"):
            await offsets(consumer, 1)


@virtual_time
async def test_a_damaged_batch_can_be_skipped(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 9)
    batch = bytearray(tools.batch(3, 6))
    batch[-1] ^= 1
    fake.damage("t", 0, 1, bytes(batch))
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        assert await offsets(consumer, 3) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(UnreadableBatchError) as raised:
                await offsets(consumer, 1)
            assert (raised.value.offset, raised.value.next_offset) == (3, 6)
        consumer.seek(P[0], raised.value.next_offset or 0)
        assert await offsets(consumer, 3) == [6, 7, 8]


@virtual_time
async def test_consume_process_produce_in_transactions(fake: FakeCluster, tools: Tools) -> None:
    """A transaction that fails is repeated with the same batch; offsets and records are one."""
    tools.fill(fake, 0, 9)
    fake.create_topic("out", 1)
    async with (
        tools.consumer(fake, group_id="g", topics=["t"], enable_auto_commit=False) as consumer,
        Producer(fake.bootstrap, dialer=fake, transactional_id="x") as producer,
    ):
        fails = True

        async def copy() -> None:
            nonlocal fails
            async for batch in consumer.batches():
                async with producer.transaction():
                    for record in batch:
                        await producer.send("out", record.value)
                    if fails:
                        fails = False
                        raise ZeroDivisionError
                    ends = {batch.topic_partition: OffsetAndMetadata(batch.next_offset)}
                    await producer.send_offsets_to_transaction(ends, consumer.group_metadata)
                if batch.next_offset == 9:
                    return

        with pytest.raises(ZeroDivisionError):
            await copy()
        await copy()
        assert tools.committed(fake, P[0]) == 9
        written = [record.value for record in fake.committed_log("out", 0)]
        assert written == [b"%d" % n for n in range(9)]


@virtual_time
async def test_a_loop_ends_when_another_task_closes_the_consumer(
    fake: FakeCluster, tools: Tools
) -> None:
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        loop = asyncio.create_task(offsets(consumer, 1))
        await asyncio.sleep(1)
        with pytest.raises(ConsumerStateError, match="two tasks"):
            await offsets(consumer, 1)
        await consumer.stop()
        assert await loop == []
        with pytest.raises(ConsumerStateError, match="the consumer is closed"):
            consumer.seek(P[0], 1)


@virtual_time
async def test_a_loop_that_never_waits_lets_other_tasks_run(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 3000)
    async with tools.consumer(fake, max_partition_fetch_bytes=2000) as consumer:
        consumer.assign([P[0]])
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.0001)

        running = asyncio.create_task(other())
        assert await offsets(consumer, 3000) == list(range(3000))
        running.cancel()
        assert turns > 50


@virtual_time
async def test_what_is_assigned_no_more_is_committed(fake: FakeCluster, tools: Tools) -> None:
    """As in Java; and a partition that comes back begins behind it."""
    tools.fill(fake, 0, 4)
    async with tools.consumer(fake, group_id="g") as consumer:
        consumer.assign(P[:2])
        assert await offsets(consumer, 3) == [0, 1, 2]
        consumer.assign([P[1]])
        consumer.assign(P[:2])
        assert await consumer.wait_position(P[0]) == 3
        assert tools.committed(fake, P[0]) == 3
