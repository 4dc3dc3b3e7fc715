"""At least once: the broker of one task's records takes nothing. Only that task waits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.config import ProducerConfig
from kafkaclient.group.connection import GroupOffsets, group_connection
from kafkaclient.streams import TaskId
from kafkaclient.streams.runtime.plain_output import PlainOutput
from kafkaclient.streams.runtime.task import TaskOptions
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.state_directory import StateDirectory
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.streams.fakes import (
    FakeEnds,
    FakeInputs,
    FakeReader,
    InlineDisk,
    opened_gate,
    record,
    sources,
    topology_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SLOW, FAST = TaskId(0, 0), TaskId(0, 1)
SLOW_BROKER = 1
VALUE = bytes(1_000)


async def copy_and_keep(record: Any, store: Any, emit: Any) -> None:
    store[b"last"] = b"%d" % record.offset
    await emit("out", record.value, record.key, partition=record.offset // 100_000)


class World:
    """Two tasks. Task 0 writes to a broker of its own, task 1 to another one."""

    def __init__(self, fake: FakeCluster, manager: TaskManager) -> None:
        self.fake = fake
        self.manager = manager
        self.delivered = dict.fromkeys((SLOW, FAST), 0)

    def deliver(self, task: TaskId, count: int) -> None:
        """Records of the task's input. Its offsets tell of the task, for the processor."""
        first = task.partition * 100_000 + self.delivered[task]
        self.delivered[task] += count
        rows = [record(first + n, b"%d" % (first + n), VALUE) for n in range(count)]
        self.manager.deliver({TopicPartition("words", task.partition): rows})

    async def committed(self) -> list[int]:
        """How many records of each task are committed."""
        found = await self.manager.committers.output.fetch_committed(
            [TopicPartition("words", 0), TopicPartition("words", 1)], {}
        )
        return [(offset or n * 100_000) - n * 100_000 for n, offset in enumerate(found.values())]

    def written(self, task: TaskId) -> list[int]:
        """The numbers of the records that the task has written."""
        log = self.fake.log("out", task.partition)
        return [int(each.key or b"") - task.partition * 100_000 for each in log]

    async def run_until_committed(self, expected: list[int], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while await self.committed() != expected:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(path: Path, **options: Any) -> AsyncIterator[World]:
    fake = FakeCluster(3)
    fake.move_coordinator("app", 0)
    fake.create_topic("words", assignments=[(0,), (0,)])
    for name in ("out", "app-counts-changelog"):
        fake.create_topic(name, assignments=[(SLOW_BROKER,), (2,)])
    config = ProducerConfig.build({"bootstrap_servers": fake.bootstrap, **options})
    async with group_connection("app", config, rebalance_timeout_s=1, dialer=fake) as connection:
        gate = opened_gate()
        gate.begin_generation(-1, "")  # no member: the fake group has none
        new = partial(Producer, fake.bootstrap, dialer=fake, **{"linger_ms": 0, **options})
        inputs: Any = FakeInputs()
        inputs.first = 0
        crashes: list[BaseException] = []
        others: Any = FakeReader(), FakeEnds([])
        directory = StateDirectory(path, float)
        manager = TaskManager(
            *(topology_of(copy_and_keep), directory, inputs, *others),
            PlainOutput(config, new, GroupOffsets(connection, gate, lambda *_: None, 60), gate),
            gate,
            crash=crashes.append,
            disk=InlineDisk(),
            options=TaskOptions(clock=asyncio.get_running_loop().time),
        )
        await manager.committers.start()
        world = World(fake, manager)
        await manager.give_up(manager.assign(sources([SLOW, FAST]), ()), 1)
        await manager.open()
        async with asyncio.timeout(5):
            while len(manager.workers) < 2:
                await asyncio.sleep(0.01)
        for task in (SLOW, FAST):  # has the producer know the topic, and connect
            world.deliver(task, 10)
        await world.run_until_committed([10, 10], 5)
        yield world
        fake.resume_broker(SLOW_BROKER)
        await manager.end_work()
        manager.close()
        directory.close()
        assert crashes == []


@pytest.mark.parametrize("buffer_memory", [32 * 2**20, 40_000])
@virtual_time
async def test_the_other_task_goes_on_and_nothing_is_lost(
    tmp_path: Path, buffer_memory: int
) -> None:
    """Also with a buffer that the slow task's records fill."""
    async with running(tmp_path, buffer_memory=buffer_memory) as world:
        world.fake.stall_broker(SLOW_BROKER)
        for turn in range(1, 51):
            for task in (SLOW, FAST):
                world.deliver(task, 20)
            await world.run_until_committed([10, 10 + 20 * turn], 0.5)
        assert world.manager.workers.keys() == {SLOW, FAST}
        world.fake.resume_broker(SLOW_BROKER)
        await world.run_until_committed([1_010, 1_010], 60)
        for task in (SLOW, FAST):
            assert world.written(task) == list(range(1_010))


@virtual_time
async def test_the_slow_task_alone_waits_when_it_is_taken_away(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        world.fake.stall_broker(SLOW_BROKER)
        world.deliver(SLOW, 10)
        await asyncio.sleep(1)
        manager = world.manager
        leaving = asyncio.create_task(manager.give_up(manager.assign(sources([FAST]), ()), 1))
        world.deliver(FAST, 10)
        await world.run_until_committed([10, 20], 0.5)
        assert not leaving.done()
        leaving.cancel()  # as when a rebalance is replaced by the next one
        await asyncio.sleep(0)
        leaving = asyncio.create_task(manager.give_up(manager.assign(sources([FAST]), ()), 1))
        await asyncio.sleep(1)
        world.fake.resume_broker(SLOW_BROKER)
        async with asyncio.timeout(60):
            await leaving
        assert await world.committed() == [20, 20]
        assert world.written(SLOW) == list(range(20))


@virtual_time
async def test_a_task_that_leaves_waits_for_its_own_records_only(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        world.fake.stall_broker(SLOW_BROKER)
        for task in (SLOW, FAST):
            world.deliver(task, 10)
        await asyncio.sleep(0.05)
        manager = world.manager
        async with asyncio.timeout(0.5):
            await manager.give_up(manager.assign(sources([SLOW]), ()), 1)
        assert await world.committed() == [10, 20]


@virtual_time
async def test_the_other_task_is_committed_when_the_instance_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        world.fake.stall_broker(SLOW_BROKER)
        for task in (SLOW, FAST):
            world.deliver(task, 10)
        await asyncio.sleep(0.05)
        ending = asyncio.create_task(world.manager.finish_and_commit(10))
        await world.run_until_committed([10, 20], 0.5)
        assert not ending.done()
        ending.cancel()
        async with asyncio.timeout(6):
            await world.manager.end_work()
        assert not any(each.get_name() == "kafkaclient-commit" for each in asyncio.all_tasks())


@virtual_time
async def test_tasks_that_are_ready_meanwhile_share_an_offset_commit(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for _ in range(100):
            for task in (SLOW, FAST):
                world.deliver(task, 1)
            await asyncio.sleep(0.01)
        await world.run_until_committed([110, 110], 0.5)
        requests = world.fake.requests_of(ApiKey.OFFSET_COMMIT)
        assert len(requests) < 20, "10 intervals, 2 tasks that are ready at the same time"
