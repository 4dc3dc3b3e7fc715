"""Consumers in groups on real coordinators: both protocols, with aiokafka's and librdkafka's
members, and from one protocol to the other."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer as ConfluentConsumer

from integration.brokers import everywhere
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.consumer import Consumer
from kafkaclient.errors import UnknownTopicError
from kafkaclient.types import TopicPartition
from tests.code_blocks import runs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kafkaclient.testing.cluster import ClusterHandle

    CreateTopic = Callable[..., Awaitable[None]]

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 4


class Loop:
    """A consumer and its loop; the offsets that it has seen, by partition."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, int]] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for record in self.consumer:
            self.seen.append((record.partition, record.offset))

    @property
    def count(self) -> int:
        return len(self.consumer.assignment)


class Group:
    """Consumers of one group, on a topic with four partitions."""

    def __init__(self, cluster: ClusterHandle, topic: str) -> None:
        self.bootstrap = cluster.bootstrap
        self.topic = topic
        self.name = f"g-{topic}"
        self.partitions = {TopicPartition(topic, number) for number in range(PARTITIONS)}

    @asynccontextmanager
    async def consumer(self, **options: Any) -> AsyncIterator[Loop]:
        subscription = {} if "pattern" in options else {"topics": [self.topic]}
        async with Consumer(
            self.bootstrap,
            group_id=self.name,
            **{"auto_offset_reset": "earliest", "heartbeat_interval_ms": 500, **options},
            **subscription,
        ) as consumer:
            loop = Loop(consumer)
            try:
                yield loop
            finally:
                loop.task.cancel()
                await asyncio.wait({loop.task})

    async def produce(self, records: int) -> None:
        async with Producer(self.bootstrap) as producer:
            values = [b"%d" % n for n in range(records)]
            await (await producer.send_many(self.topic, values, keys=values))

    async def until(self, condition: Callable[[], bool], *loops: Loop) -> None:
        async with asyncio.timeout(60):
            while not condition():
                for loop in loops:
                    if loop.task.done():
                        loop.task.result()
                await asyncio.sleep(0.02)

    async def shared(self, first: Loop, second: Loop) -> None:
        await self.until(
            lambda: (
                first.count == second.count == PARTITIONS // 2
                and first.consumer.assignment | second.consumer.assignment == self.partitions
            ),
            first,
            second,
        )


@pytest.fixture
async def group(kafka_cluster: ClusterHandle, topic: str, create_topic: CreateTopic) -> Group:
    await create_topic(topic, PARTITIONS, replication_factor=min(3, len(kafka_cluster.brokers)))
    return Group(kafka_cluster, topic)


@pytest.mark.parametrize(
    "options",
    [
        {"group_protocol": "consumer"},
        pytest.param(
            {"group_protocol": "consumer", "group_remote_assignor": "range"}, marks=pytest.mark.full
        ),
        {"group_protocol": "classic"},
        pytest.param(
            {"group_protocol": "classic", "partition_assignment_strategy": "range"},
            marks=pytest.mark.full,
        ),
    ],
    ids=["consumer", "consumer-range", "cooperative", "range"],
)
async def test_members_share_and_lose_nothing(group: Group, options: dict[str, Any]) -> None:
    await group.produce(100)
    async with group.consumer(**options) as first:
        await group.until(lambda: len(first.seen) == 100, first)
        async with group.consumer(**options) as second:
            await group.shared(first, second)
            await group.produce(100)
            await group.until(lambda: len(first.seen) + len(second.seen) >= 200, first, second)
        await group.until(lambda: first.count == PARTITIONS, first)
        await group.produce(100)
        await group.until(lambda: len(first.seen) + len(second.seen) >= 300, first)
        seen = first.seen + second.seen
        assert len(seen) == len(set(seen)) == 300
    async with group.consumer(**options) as again:
        await group.until(lambda: again.count == PARTITIONS, again)
        committed = await again.consumer.committed(again.consumer.assignment)
        assert sum(offset or 0 for offset in committed.values()) == 300
        assert not again.seen


async def test_auto_uses_the_protocol_of_kip_848_and_patterns(group: Group) -> None:
    await group.produce(50)
    async with group.consumer(pattern=f"{group.topic[:-1]}.") as first:
        await group.until(lambda: len(first.seen) == 50, first)
        assert first.consumer._runtime._membership.protocol == "consumer"


@pytest.mark.full
@pytest.mark.parametrize("instance", [None, "a"])
async def test_a_member_leaves_and_returns(group: Group, instance: str | None) -> None:
    """A member that returns under its instance id, and one that has left."""
    async with group.consumer(group_protocol="consumer", group_instance_id=instance) as first:
        await group.until(lambda: first.count == PARTITIONS, first)
    async with group.consumer(group_protocol="consumer", group_instance_id=instance) as again:
        await group.until(lambda: again.count == PARTITIONS, again)


@pytest.mark.parametrize(
    ("strategy", "assignor"),
    [("range", RangePartitionAssignor), ("sticky", StickyPartitionAssignor)],
    ids=["range", "sticky"],
)
async def test_a_group_with_aiokafkas_member(group: Group, strategy: str, assignor: Any) -> None:
    async with group.consumer(
        group_protocol="classic", partition_assignment_strategy=strategy
    ) as first:
        await group.until(lambda: first.count == PARTITIONS, first)
        other = AIOKafkaConsumer(
            group.topic,
            bootstrap_servers=group.bootstrap,
            group_id=group.name,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(assignor,),
        )
        await other.start()
        try:
            await group.until(lambda: first.count == len(other.assignment()) == 2, first)
            owned = {TopicPartition(*each) for each in other.assignment()}
            assert owned | first.consumer.assignment == group.partitions
        finally:
            await other.stop()
        await group.until(lambda: first.count == PARTITIONS, first)


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.full)])
async def test_a_group_with_librdkafkas_member(group: Group, protocol: str) -> None:
    options: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "classic":
        options["partition.assignment.strategy"] = "cooperative-sticky"
    async with group.consumer(group_protocol=protocol) as first:
        await group.until(lambda: first.count == PARTITIONS, first)
        other = ConfluentConsumer(
            {"bootstrap.servers": group.bootstrap, "group.id": group.name, **options}
        )
        other.subscribe([group.topic])
        try:

            async def shared() -> None:
                while not (first.count == len(other.assignment()) == 2):
                    await asyncio.to_thread(other.poll, 0.1)

            await asyncio.wait_for(shared(), 60)
            owned = {TopicPartition(each.topic, each.partition) for each in other.assignment()}
            assert owned | first.consumer.assignment == group.partitions
        finally:
            await asyncio.to_thread(other.close)
        await group.until(lambda: first.count == PARTITIONS, first)


async def test_a_group_moves_from_the_classic_protocol_to_kip_848(group: Group) -> None:
    await group.produce(100)
    async with group.consumer(group_protocol="classic") as first:
        await group.until(lambda: len(first.seen) == 100, first)
        async with group.consumer(group_protocol="consumer") as second:
            await group.shared(first, second)
            await group.produce(100)
            await group.until(lambda: len(first.seen) + len(second.seen) >= 200, first, second)
            seen = first.seen + second.seen
            assert len(seen) == len(set(seen)) == 200


@pytest.mark.parametrize("how", ["classic", "consumer", "pattern", "by hand"])
async def test_partitions_that_are_added_are_consumed_from_their_beginning(
    group: Group, how: str
) -> None:
    """Though the group would begin at the end; and nothing of the others is skipped."""
    await group.produce(20)  # older than the group
    options: dict[str, Any] = {"auto_offset_reset": "latest", "metadata_max_age_ms": 2000}
    if how == "pattern":
        options["pattern"] = f"{group.topic[:-1]}."
    if how != "by hand":
        protocol = "consumer" if how == "consumer" else "classic"
        async with group.consumer(group_protocol=protocol, **options) as loop:
            await grow(group, loop)
        return
    new = [TopicPartition(group.topic, PARTITIONS + number) for number in (0, 1)]
    async with Consumer(group.bootstrap, **options) as consumer:
        consumer.assign(group.partitions)
        loop = Loop(consumer)

        async def take() -> None:
            consumer.assign([*group.partitions, *new])
            await consumer.seek_to("earliest", new)

        await grow(group, loop, take)
        loop.task.cancel()


async def grow(group: Group, loop: Loop, then: Callable[[], Awaitable[None]] | None = None) -> None:
    """Add partitions, and send to all; each is read from where it ended, or its first record."""
    consumer = loop.consumer
    await group.until(lambda: loop.count == PARTITIONS, loop)
    begins = {where.partition: await consumer.wait_position(where) for where in group.partitions}
    begins |= {PARTITIONS: 0, PARTITIONS + 1: 0}
    async with Admin(group.bootstrap) as admin, Producer(group.bootstrap) as producer:
        await admin.add_partitions(group.topic, len(begins))
        for number in range(20 * len(begins)):
            await producer.send(group.topic, b"%d" % number, partition=number % len(begins))
    if then is not None:
        await then()
    await group.until(lambda: len(loop.seen) >= 20 * len(begins), loop)
    for partition, first in begins.items():
        seen = [offset for number, offset in loop.seen if number == partition]
        assert seen == [*range(first, first + 20)]


@pytest.mark.full
@runs("docs/how-to/consume.md")
async def test_the_examples_of_the_page(group: Group, block: Any) -> None:
    names = {"localhost:9092": group.bootstrap, "orders": group.topic, "billing": group.name}
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", block.text(names))

    async def committed() -> bool:
        async with Admin(group.bootstrap) as admin:
            offsets = await admin.committed_offsets(group.name, group.partitions)
        return any(offsets.values())

    try:
        async with asyncio.timeout(60):
            while not await committed():
                assert running.returncode is None
                await group.produce(20)
                await asyncio.sleep(0.2)
    finally:
        is_ended_by_it = "signal.SIGTERM" in block.source
        running.send_signal(signal.SIGTERM if is_ended_by_it else signal.SIGINT)
        await running.wait()
    assert not is_ended_by_it or running.returncode == 0


async def test_a_topic_that_is_created_again_between_read_and_commit(
    group: Group, create_topic: CreateTopic
) -> None:
    """The commit names the deleted topic by id, and does not reach the new topic."""
    await group.produce(100)
    options: dict[str, Any] = {"group_id": group.name, "enable_auto_commit": False}
    async with (
        Admin(group.bootstrap) as admin,
        Consumer(group.bootstrap, auto_offset_reset="earliest", **options) as consumer,
    ):
        consumer.assign(group.partitions)
        loop = Loop(consumer)
        await group.until(lambda: len(loop.seen) == 100, loop)
        loop.task.cancel()
        deleted = (await admin.describe_topic(group.topic)).topic_id
        await admin.delete_topic(group.topic)
        await create_topic(group.topic, PARTITIONS)
        await everywhere(admin, group.topic, lambda told: told.topic_id != deleted)
        with pytest.raises(UnknownTopicError, match="does not exist"):
            await consumer.commit()
        assert set((await consumer.committed(group.partitions)).values()) == {None}
        await group.produce(10)
        loop = Loop(consumer)
        await group.until(lambda: len(loop.seen) == 10, loop)
        loop.task.cancel()
        await asyncio.wait({loop.task})
        await consumer.commit()
        assert sum(filter(None, (await consumer.committed(group.partitions)).values())) == 10


STOPPED_IN_A_COMMIT = """
import asyncio, os, signal, sys
from kafkaclient import Consumer
from kafkaclient.errors import ConsumerStateError
from kafkaclient.net.pipeline import Pipeline

write, commits = Pipeline.send, []

def writing(self, buffers, request, **options):
    if request is not None and request.api == "OFFSET_COMMIT":
        commits.append(request)
        if len(commits) == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
    return write(self, buffers, request, **options)

Pipeline.send = writing

async def main(bootstrap, topic, group, protocol):
    async with Consumer(
        bootstrap,
        group_id=group,
        topics=[topic],
        group_protocol=protocol,
        session_timeout_ms=6000,
        max_poll_interval_ms=7000,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        async for record in consumer:
            try:
                await consumer.commit()
            except ConsumerStateError as error:
                print("refused", error, flush=True)
            else:
                print("committed", record.partition, record.offset, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("protocol", "away_s"), [("classic", 10), ("consumer", 50)])
async def test_a_process_that_was_stopped_in_a_commit_takes_nothing_back(
    group: Group, protocol: str, away_s: float
) -> None:
    """For longer than its session, and ``max.poll.interval.ms``: another member has its partitions,
    and has committed. The late commit is refused, and the member joins again."""
    await group.produce(200)
    where = (group.bootstrap, group.topic, group.name, protocol)
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STOPPED_IN_A_COMMIT, *where), stdout=asyncio.subprocess.PIPE
    )
    assert victim.stdout is not None
    try:
        told = [(await victim.stdout.readline()).split() for _ in range(2)]
        assert [each[0] for each in told] == [b"committed"] * 2
        await asyncio.sleep(away_s)
        async with group.consumer(group_protocol=protocol, auto_commit_interval_ms=200) as other:
            await group.until(lambda: len(other.seen) == 198, other)
            assert len(set(other.seen)) == 198
            await other.consumer.commit()
            victim.send_signal(signal.SIGCONT)
            assert (await victim.stdout.readline()).startswith(b"refused")
            await group.until(lambda: other.count < PARTITIONS, other)
            committed = await other.consumer.committed(group.partitions)
            assert sum(filter(None, committed.values())) == 200
            await group.produce(200)
            line = (await victim.stdout.readline()).split()
            assert int(line[2]) >= (committed[TopicPartition(group.topic, int(line[1]))] or 0)
            assert victim.returncode is None
    finally:
        victim.send_signal(signal.SIGCONT)
        victim.terminate()
        await victim.wait()
