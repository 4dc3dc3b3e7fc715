"""Group members on real coordinators: alone, together, with aiokafka's and Java's members."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from kafkaclient.admin import Admin
from kafkaclient.errors import BrokerError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.transactions import CoordinatorKind, FindCoordinatorCall
from tests.group.range_protocol import RangeProtocol, RunningMember, member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kafkaclient.testing.cluster import ClusterHandle

    CreateTopic = Callable[..., Awaitable[None]]

pytestmark = pytest.mark.timeout(120)


class Group:
    """Members of one group, on a topic with four partitions."""

    def __init__(self, cluster: ClusterHandle, topic: str) -> None:
        self.bootstrap = cluster.bootstrap
        self.topic = topic
        self.name = f"g-{topic}"

    def member(self, **options: Any) -> Any:
        return member(self.bootstrap, RangeProtocol(self.topic, 4), group=self.name, **options)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    async def committed(self, number: int) -> int | None:
        partition = self.partition(number)
        async with Admin(self.bootstrap) as admin:
            return (await admin.committed_offsets(self.name, [partition])).get(partition)


@pytest.fixture
async def group(kafka_cluster: ClusterHandle, topic: str, create_topic: CreateTopic) -> Group:
    await create_topic(topic, 4, replication_factor=min(3, len(kafka_cluster.brokers)))
    return Group(kafka_cluster, topic)


async def share(first: RunningMember, second: RunningMember) -> None:
    """Wait until each of the two members has two of the four partitions."""

    def is_shared() -> bool:
        owned = [first.protocol.numbers(), second.protocol.numbers()]
        settled = not (first.member.is_rebalancing or second.member.is_rebalancing)
        return settled and sorted(owned) == [[0, 1], [2, 3]]

    await first.until(is_shared)


class Committing:
    """Commits an offset again and again; ``longest`` is the longest time between two commits."""

    def __init__(self, of: RunningMember, partition: TopicPartition) -> None:
        self.count = 0
        self.longest = 0.0
        self._of = of
        self._partition = partition
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        last = self._clock()
        while True:
            await self._of.offsets.commit({self._partition: self.count + 1})
            self.count += 1
            now = self._clock()
            self.longest, last = max(self.longest, now - last), now
            await asyncio.sleep(0.002)


@asynccontextmanager
async def committing(of: RunningMember, partition: TopicPartition) -> AsyncIterator[Committing]:
    """Commit for as long as the block runs. A commit that fails fails the test."""
    commits = Committing(of, partition)
    task = asyncio.create_task(commits.run())
    try:
        yield commits
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_handover_stops_nothing_that_stays(group) -> None:
    """The staying partition's commits go on; the moved one's last commit is before its handover."""
    async with group.member() as a:
        await a.owns(0, 1, 2, 3)

        async def give_up(partition: TopicPartition) -> None:
            await a.offsets.commit({partition: 77})

        a.protocol.give_up = give_up
        async with group.member() as b:
            # Whoever has the smaller id gets 0 and 1: find out, then measure what stays.
            await share(a, b)
            stays, moved = a.protocol.numbers()[0], b.protocol.numbers()
            assert a.protocol.log == [("added", [0, 1, 2, 3]), ("revoked", moved)]
            assert b.protocol.log == [("added", moved)]
            for number in moved:
                assert await group.committed(number) == 77
            async with committing(a, group.partition(stays)) as commits:
                for _ in range(10):
                    b.member.request_rejoin("a test")
                    a.member.request_rejoin("a test")
                    await asyncio.sleep(0.2)
                await a.until(lambda: commits.count > 20)
            assert commits.longest < 3.0  # a commit waits up to 0.5 s for other members
            assert a.protocol.log[-1] == ("revoked", moved), "nothing was given up or lost"
        await a.owns(0, 1, 2, 3)


async def test_commits_never_fail_while_members_come_and_go(group) -> None:
    async with group.member() as a:
        await a.owns(0, 1, 2, 3)
        names: set[str] = set()
        for _ in range(5):
            stays = a.protocol.numbers()[0]
            async with group.member() as b:
                await share(a, b)
                names.add(b.member.member_id)
                stays = a.protocol.numbers()[0]
                async with committing(a, group.partition(stays)), group.member() as c:
                    await a.until(
                        lambda b=b, c=c: (
                            sum(len(m.protocol.owned) for m in (a, b, c)) == 4
                            and len(c.protocol.owned) > 0
                        )
                    )
                    if stays not in a.protocol.numbers():
                        break  # it moved: the commits are the next owner's
        assert names


async def test_a_member_that_does_not_answer_is_evicted_and_commits_nothing(group) -> None:
    async with group.member() as a, group.member() as b:
        await share(a, b)
        own = a.protocol.numbers()
        old = a.gate.group
        a.member._options = _Silent(a.member._options)  # type: ignore[assignment]
        await b.until(lambda: b.protocol.numbers() == [0, 1, 2, 3], 30)
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            await a.offsets.commit({group.partition(own[0]): 1})
        assert await group.committed(own[0]) is None
        await share(a, b)
        assert ("lost", own) in a.protocol.log
        assert a.gate.group.member_id != old.member_id


class _Silent:
    """Options of a member that sends its next heartbeat much too late."""

    def __init__(self, options: Any) -> None:
        self._options = options
        self.heartbeat_interval_ms = 60_000

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)


async def test_a_static_member_restarts_without_a_rebalance(group) -> None:
    """Also the leader (KIP-814)."""
    async with group.member(group_instance_id="b") as b:
        await b.owns(0, 1, 2, 3)
        async with group.member(group_instance_id="a") as a:
            await share(a, b)
            own = a.protocol.numbers()
            known = len(b.protocol.generations)
        async with group.member(group_instance_id="a") as again:
            await again.owns(*own)
            await asyncio.sleep(1)
            assert len(b.protocol.generations) == known
            assert again.protocol.generations[-1].generation_id == b.gate.group.generation_id
            leader = b.protocol.generations[-1].is_leader
            assert leader
            others = b.protocol.numbers()
            await b.die()
            async with group.member(group_instance_id="b") as leading:
                await leading.owns(*others)
                await asyncio.sleep(1)
                assert again.gate.group.generation_id == leading.gate.group.generation_id
                assert len(again.protocol.generations) == 1
                await again.offsets.commit({group.partition(own[0]): 3})


async def test_a_second_member_with_the_same_instance_id_fences_the_first(group) -> None:
    async with group.member(group_instance_id="a") as a:
        await a.owns(0, 1, 2, 3)
        async with group.member(group_instance_id="a") as again:
            with pytest.raises(BrokerError, match=r"group\.instance\.id 'a', so this one ends"):
                await a.task
            await again.owns(0, 1, 2, 3)


async def coordinator_of(running: RunningMember) -> int:
    call = FindCoordinatorCall(CoordinatorKind.GROUP, running.connection.group_id)
    return (await running.connection._router.call(call)).node_id


@pytest.mark.local_cluster
@pytest.mark.parametrize("how", ["kill", pytest.param("pause", marks=pytest.mark.full)])
async def test_the_coordinator_is_killed_or_paused(kafka_cluster, group, how) -> None:
    async with (
        group.member(session_timeout_ms=10_000) as a,
        group.member(session_timeout_ms=10_000) as b,
    ):
        await share(a, b)
        own = a.protocol.numbers()
        node = await coordinator_of(a)
        try:
            await (kafka_cluster.kill if how == "kill" else kafka_cluster.pause)(node)
            await asyncio.sleep(1)
            async with asyncio.timeout(60):
                while True:
                    try:
                        await a.offsets.commit({group.partition(a.protocol.numbers()[0]): 5})
                        break
                    except BrokerError:
                        await share(a, b)
            await share(a, b)
            if how == "kill":
                assert a.protocol.numbers() == own
                assert not [each for each in a.protocol.log if each[0] == "lost"]
        finally:
            await kafka_cluster.heal()


@pytest.mark.parametrize("ours_leads", [True, False])
async def test_aiokafkas_consumer_in_the_same_group(group, ours_leads) -> None:
    """Its members are eager, and its range assignor is the leader in one of the cases."""
    consumer = AIOKafkaConsumer(
        group.topic,
        bootstrap_servers=group.bootstrap,
        group_id=group.name,
        session_timeout_ms=6000,
        heartbeat_interval_ms=100,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    if not ours_leads:
        await consumer.start()
        try:
            await _has(consumer, 4)
        except BaseException:
            await consumer.stop()
            raise
    async with group.member() as a:
        try:
            if ours_leads:
                await a.owns(0, 1, 2, 3)
                await consumer.start()
            await a.until(lambda: len(a.protocol.owned) == 2, 30)
            await _has(consumer, 2)
            theirs = sorted(each.partition for each in consumer.assignment())
            assert sorted([*a.protocol.numbers(), *theirs]) == [0, 1, 2, 3]
            assert a.protocol.generations[-1].is_leader is ours_leads
        finally:
            await consumer.stop()
        await a.owns(0, 1, 2, 3)


async def _has(consumer: AIOKafkaConsumer, count: int) -> None:
    async with asyncio.timeout(30):
        while len(consumer.assignment()) != count:
            await consumer.getmany(timeout_ms=50)


@pytest.mark.full
@pytest.mark.parametrize("ours_leads", [True, False])
async def test_javas_consumer_in_the_same_group(kafka_cluster, group, ours_leads) -> None:
    """Its assignors are range and cooperative-sticky, so it is eager here."""

    async def java() -> str:
        result = await kafka_cluster.run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", group.bootstrap, "--topic", group.topic),
            *("--group", group.name, "--timeout-ms", "9000"),
            *("--consumer-property", "group.protocol=classic"),
            *("--consumer-property", "heartbeat.interval.ms=200"),
        )
        return str(result)

    async def is_member() -> bool:
        async with Admin(group.bootstrap) as admin:
            return bool((await admin.describe_group(group.name)).members)

    running = asyncio.create_task(java())
    try:
        if not ours_leads:
            async with asyncio.timeout(30):
                while not await is_member():
                    await asyncio.sleep(0.1)
        async with group.member() as a:
            if ours_leads:
                await a.owns(0, 1, 2, 3)
            await a.until(lambda: len(a.protocol.owned) == 2, 40)
            async with Admin(group.bootstrap) as admin, asyncio.timeout(20):
                while (found := await admin.describe_group(group.name)).state != "Stable":
                    await asyncio.sleep(0.1)
            assert (found.protocol, len(found.members)) == ("range", 2)
            assert a.protocol.generations[-1].is_leader is ours_leads
            said = await running
            await a.owns(0, 1, 2, 3)
            assert "TimeoutException" in said or "Processed a total of 0" in said, said
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
