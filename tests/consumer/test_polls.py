"""``getone`` and ``getmany``: records of chosen partitions, in hand until the next call."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from kafkaclient.consumer import RebalanceListener
from kafkaclient.errors import ConfigError, ConsumerStateError, UnreadableBatchError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from kafkaclient.consumer import Consumer
    from kafkaclient.consumer.records import Record
    from kafkaclient.testing.fake import FakeCluster
    from tests.consumer.conftest import Tools

P = [TopicPartition("t", number) for number in range(4)]


def offsets(found: Mapping[TopicPartition, list[Record]]) -> dict[TopicPartition, list[int]]:
    return {where: [record.offset for record in records] for where, records in found.items()}


@virtual_time
async def test_records_of_all_partitions(fake: FakeCluster, tools: Tools) -> None:
    for number in (0, 1, 2):
        tools.fill(fake, number, 5)
    async with tools.consumer(fake) as consumer:
        consumer.assign(P)
        assert await consumer.getmany() == {}
        found: dict[TopicPartition, list[int]] = {}
        while sum(map(len, found.values())) < 15:
            for where, some in offsets(await consumer.getmany(timeout_ms=1000)).items():
                found.setdefault(where, []).extend(some)
        assert found == {where: list(range(5)) for where in P[:3]}
        asked_at = asyncio.get_running_loop().time()
        assert await consumer.getmany(timeout_ms=2000) == {}
        assert asyncio.get_running_loop().time() - asked_at == pytest.approx(2, abs=0.1)


@virtual_time
async def test_max_records(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 10)
    async with tools.consumer(fake, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P[0]])
        assert offsets(await consumer.getmany(timeout_ms=1000, max_records=4)) == {
            P[0]: [0, 1, 2, 3]
        }
        assert consumer.position(P[0]) == 4
        assert (await consumer.getone()).offset == 4
        consumer.seek(P[0], 4)
        assert offsets(await consumer.getmany(timeout_ms=1000, max_records=1)) == {P[0]: [4]}
        assert offsets(await consumer.getmany(timeout_ms=1000)) == {P[0]: [5, 6, 7, 8, 9]}
        consumer.seek(P[0], 4)
        assert (await consumer.getone()).offset == 4
        async for record in consumer:  # the record in hand comes again
            assert record.offset == 4
            break
        assert (await consumer.getone()).offset == 4
        await consumer.commit()
        assert fake.committed_offset("g", *P[0]) == 5


@virtual_time
async def test_each_task_has_partitions_of_its_own(fake: FakeCluster, tools: Tools) -> None:
    """A task that waits for an empty partition holds up no other one."""
    tools.fill(fake, 1, 20)
    async with tools.consumer(fake) as consumer:
        consumer.assign(P)

        async def take(where: TopicPartition, count: int) -> list[int]:
            return [(await consumer.getone(where)).offset for _ in range(count)]

        empty = asyncio.create_task(take(P[0], 3))
        assert await take(P[1], 20) == list(range(20))
        assert not empty.done()
        tools.fill(fake, 0, 3)
        assert await empty == [0, 1, 2]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(take(P[2], 1), 1)
        tools.fill(fake, 2, 1)
        assert await take(P[2], 1) == [0]


@virtual_time
async def test_what_is_in_hand_is_not_committed(fake: FakeCluster, tools: Tools) -> None:
    for number in (0, 1):
        tools.fill(fake, number, 6)
    async with tools.consumer(fake, group_id="g", auto_commit_interval_ms=100) as consumer:
        consumer.assign(P[:2])
        for where in P[:2]:
            assert (await consumer.getone(where)).offset == 0
        await asyncio.sleep(1)
        assert [fake.committed_offset("g", *where) for where in P[:2]] == [0, 0]
        assert (await consumer.getone(P[0])).offset == 1  # finishes the one before, of P[0] alone
        await asyncio.sleep(1)
        assert [fake.committed_offset("g", *where) for where in P[:2]] == [1, 0]
        record = (await consumer.getmany(P[1], max_records=1))[P[1]][0]
        thread = Thread(target=record.done)
        thread.start()
        thread.join()
        await asyncio.sleep(1)
        assert [fake.committed_offset("g", *where) for where in P[:2]] == [1, 2]


@virtual_time
async def test_seek_and_pause_between_calls(fake: FakeCluster, tools: Tools) -> None:
    for number in (0, 1):
        tools.fill(fake, number, 9)
    async with tools.consumer(fake) as consumer:
        consumer.assign(P[:2])
        assert (await consumer.getone(P[0])).offset == 0
        consumer.seek(P[0], 7)
        assert offsets(await consumer.getmany(P[0], timeout_ms=500)) == {P[0]: [7, 8]}
        consumer.seek(P[0], 3)
        assert (await consumer.getone(P[0])).offset == 3
        consumer.pause(P[0])
        assert consumer.paused == {P[0]}
        assert set(await consumer.getmany(timeout_ms=500)) == {P[1]}
        assert await consumer.getmany(P[0], timeout_ms=500) == {}
        consumer.resume(P[0])
        assert (await consumer.getone(P[0])).offset == 4


@virtual_time
async def test_the_end_of_a_consumer_ends_its_calls(fake: FakeCluster, tools: Tools) -> None:
    async with tools.consumer(fake) as consumer:
        consumer.assign(P)
        one = asyncio.create_task(consumer.getone())
        many = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        await asyncio.sleep(1)
    assert await many == {}
    with pytest.raises(ConsumerStateError, match="closed"):
        await one


@virtual_time
async def test_a_damaged_batch_raises_until_it_is_passed(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 9)
    damaged = bytearray(tools.batch(3, 6))
    damaged[-1] ^= 0xFF
    fake.damage("t", 0, 1, bytes(damaged))
    async with tools.consumer(fake) as consumer:
        consumer.assign([P[0]])
        assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(UnreadableBatchError) as raised:
                await consumer.getone()
        assert raised.value.next_offset is not None
        consumer.seek(P[0], raised.value.next_offset)
        assert (await consumer.getone()).offset == 6


@virtual_time
async def test_what_is_known_of_a_partition(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 4)
    async with tools.consumer(fake, wall_clock=lambda: 2000.0) as consumer:
        consumer.assign([P[0]])
        assert consumer.last_fetch(P[0]) is None
        assert await consumer.wait_position(P[0]) == 0
        await consumer.getone()
        last = consumer.last_fetch(P[0])
        assert last is not None
        assert last[:2] == (4, 4)
        assert last.timestamp == pytest.approx(2_000_000, abs=10)
        for no_time in (-1, -2, 2**63, 1.5, None):  # Kafka's -1 is "latest", -2 is "earliest"
            with pytest.raises(ConfigError):
                await consumer.offsets_for_times({P[0]: no_time})  # type: ignore[dict-item]
            with pytest.raises(ConfigError):
                await consumer.seek_to(no_time)  # type: ignore[arg-type]
        found = await consumer.offsets_for_times({P[0]: 1002, P[1]: 0})
        assert found == {P[0]: (2, 1002), P[1]: None}
        assert [view.partition for view in await consumer.partitions_for("t")] == [0, 1, 2, 3]
        assert len(consumer.known_partitions("t") or ()) == 4
        assert consumer.known_partitions("other") is None
        assert set(await consumer.list_topics()) == {"t"}


@virtual_time
async def test_unsubscribe(fake: FakeCluster, tools: Tools) -> None:
    """It gives up the partitions at once, commits, leaves the group; then partitions of the same
    group can be assigned by hand, and topics subscribed to."""
    tools.fill(fake, 0, 6)
    async with tools.consumer(fake, group_id="g", topics=["t"]) as consumer:
        assert await consumer.wait_assigned() == set(P)
        for _ in range(3):
            await consumer.getone()
        consumer.unsubscribe()
        assert (consumer.assignment, consumer.subscription) == (frozenset(), frozenset())
        assert not consumer.has_assignment
        consumer.assign([P[0]])
        assert await consumer.wait_assigned() == {P[0]}
        assert await consumer.wait_position(P[0]) == 2  # the third one was in hand
        assert (await consumer.getone()).offset == 2
        await consumer.commit()
        assert fake.committed_offset("g", *P[0]) == 3
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        assert await consumer.wait_assigned() == set(P)
        assert await consumer.wait_position(P[0]) == 3
        consumer.unsubscribe()


async def _unsubscribe_soon(consumer: Consumer) -> None:
    consumer.subscribe(["t"])
    await asyncio.sleep(0.001)
    consumer.unsubscribe()


@virtual_time
async def test_unsubscribe_before_the_group_has_answered(fake: FakeCluster, tools: Tools) -> None:
    async with tools.consumer(fake, group_id="g") as consumer:
        for _ in range(3):
            await _unsubscribe_soon(consumer)


@virtual_time
async def test_internal_topics_by_pattern(fake: FakeCluster, tools: Tools) -> None:
    fake.create_topic("__consumer_offsets", 1)
    for exclude, topics in ((True, {"t"}), (False, {"t", "__consumer_offsets"})):
        async with tools.consumer(
            fake,
            group_id=f"g-{exclude}",
            pattern=".*",
            group_protocol="classic",
            exclude_internal_topics=exclude,
        ) as consumer:
            await consumer.wait_assigned()
            assert consumer.subscription == topics


@virtual_time
async def test_waiting_for_a_group_raises_what_it_refuses(fake: FakeCluster, tools: Tools) -> None:
    async with tools.consumer(fake, group_id="g") as consumer:
        waits = asyncio.create_task(consumer.wait_assigned())
        await asyncio.sleep(1)
    with pytest.raises(ConsumerStateError, match="closed"):
        await waits


@virtual_time
async def test_a_classic_member_without_partitions_is_told(fake: FakeCluster, tools: Tools) -> None:
    told: list[Set[TopicPartition]] = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions: Set[TopicPartition]) -> None:
            told.append(partitions)

    fake.create_topic("one", 1)
    options = {"group_id": "g", "group_protocol": "classic", "topics": ["one"]}
    async with tools.consumer(fake, **options) as first:
        assert await first.wait_assigned() == {("one", 0)}
        async with tools.consumer(fake, **options, listener=Listener()) as second:
            assert await second.wait_assigned() == frozenset()
            assert told[0] == frozenset()


@virtual_time
async def test_records_are_polled_once_after_a_loop_and_a_seek(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 3)
    async with tools.consumer(fake, group_id="g", topics=["t"]) as consumer:
        async for record in consumer:
            if record.offset == 2:
                break
        consumer.seek(("t", 0), 0)
        assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]


@virtual_time
async def test_a_call_that_waits_for_an_idle_partition_holds_up_no_other_one(
    fake: FakeCluster, tools: Tools
) -> None:
    """The partition of the other call cannot be fetched where it is, and is reset."""
    tools.fill(fake, 1, 3)
    async with tools.consumer(fake, group_id="g") as consumer, asyncio.timeout(60):
        consumer.assign(P[:2])
        await consumer.wait_position(P[1])
        idle = asyncio.create_task(consumer.getone(P[0]))
        await asyncio.sleep(1)
        consumer.seek(P[1], 100)
        assert (await consumer.getone(P[1])).offset == 0
        idle.cancel()
