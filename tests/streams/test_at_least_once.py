"""At least once: whatever happens to commits, no record is lost, and records keep their order.

A failure repeats the records since the last commit."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.cluster.backoff import UNKNOWN_TOPIC_READS
from kafkaclient.config import ProducerConfig
from kafkaclient.group.commit_gate import CommitGate
from kafkaclient.group.connection import GroupOffsets, group_connection
from kafkaclient.streams import TaskId
from kafkaclient.streams.runtime.plain_output import PlainOutput
from kafkaclient.streams.runtime.task import TaskOptions
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.state_directory import StateDirectory
from kafkaclient.streams.tasks import TaskState
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.fake.interceptors import (
    CLOSE,
    CLOSE_ANSWER,
    DROP_ANSWER,
    Request,
    delay,
    delay_answer,
)
from kafkaclient.time_limit import cancel_and_wait
from kafkaclient.wire.api import ApiKey
from tests.streams.fakes import FakeInputs, InlineDisk, record, sources, topology_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.types import TopicPartition

FAILS_ONCE = 7  # the timestamp of a record
SESSION_S = 6.0
TASKS = A, B = TaskId(0, 0), TaskId(0, 1)
LOGS = {"words": 0, "out": 1, "app-counts-changelog": 1}
"""Topic -> the broker of its partition 0; broker 2 has partition 1. The first one has the id that
FakeInputs tells."""


async def count(record: Any, store: Any, emit: Any) -> None:
    store[b"count"] = b"%d" % (int(store.get(b"count") or 0) + 1)
    if record.timestamp_ms == FAILS_ONCE:
        raise ZeroDivisionError
    await emit("out", b"", b"%d" % record.offset, partition=int(record.value))


class World:
    """Two tasks, which are given ``total`` records each."""

    def __init__(self, fake: FakeCluster, inputs: FakeInputs) -> None:
        self.gate = CommitGate("app", None, SESSION_S, asyncio.get_running_loop().time)
        self.fake = fake
        self.inputs = inputs
        self.total = dict.fromkeys(TASKS, 0)
        self.manager: TaskManager
        self.crashes: list[BaseException] = []
        self.fails: set[int] = set()
        """Records for which the processor raises, at first."""
        self.has_coordinator = True

    async def heartbeats(self) -> None:
        while True:
            if self.has_coordinator:
                self.gate.answered(asyncio.get_running_loop().time())
            await asyncio.sleep(0.5)

    async def feed(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            found = {}
            for source in self.manager.wanted_partitions() & self.inputs.positions.keys():
                first, number = self.inputs.positions[source], source.partition
                last = min(self.total[TASKS[number]], first + 20)
                rows = [record(n, b"", b"%d" % number) for n in range(first, last)]
                for row in rows:
                    if row.offset in self.fails:
                        self.fails.discard(row.offset)
                        rows[rows.index(row)] = row._replace(timestamp=FAILS_ONCE)
                found[source] = rows
                self.inputs.positions[source] = last
            self.manager.deliver(found)

    # --- as the changelog reader, and what fetches ends

    def follow(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            asyncio.get_running_loop().call_soon(self._restore, task)

    def _restore(self, task: Task) -> None:
        if task.state in (TaskState.RESTORING, TaskState.STANDBY):
            (store,) = task.task_stores
            log = self.fake.log(*store.changelog)
            store.restore([(each.key or b"", each.value) for each in log[store.position :]])
            store.reached(len(log), len(log))

    async def ends(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = True
    ) -> dict[TopicPartition, int]:
        return {p: 10**6 if p.topic == "words" else len(self.fake.log(*p)) for p in partitions}

    # --- what came out

    def committed(self) -> list[int]:
        return [self.fake.committed_offset("app", "words", t.partition) or 0 for t in TASKS]

    async def done(self, seconds: float, tasks: Iterable[TaskId] = TASKS) -> None:
        async with asyncio.timeout(seconds):
            while True:
                assert self.crashes == []
                found = self.committed()
                if all(found[task.partition] == self.total[task] for task in tasks):
                    return
                await asyncio.sleep(0.02)

    def check(self, tasks: Iterable[TaskId] = TASKS) -> int:
        """Returns how many records were counted again."""
        again = 0
        for task in tasks:
            numbers = [int(each.key or b"") for each in self.fake.log("out", task.partition)]
            assert list(dict.fromkeys(numbers)) == list(range(self.total[task]))
            for before, after in pairwise(numbers):
                assert after <= before + 1, "order"
            changes = self.fake.log("app-counts-changelog", task.partition)
            counted = int(changes[-1].value or b"")
            assert counted >= self.total[task]
            again += counted - self.total[task]
        assert self.crashes == []
        return again


@asynccontextmanager
async def running(
    path: Path, interval_s: float = 0.1, fake: FakeCluster | None = None, **options: Any
) -> AsyncIterator[World]:
    if fake is None:
        fake = FakeCluster(3)
        fake.move_coordinator("app", 0)
        for name, broker in LOGS.items():
            fake.create_topic(name, assignments=[(broker,), (0 if name == "words" else 2,)])
    config = ProducerConfig.build({"bootstrap_servers": fake.bootstrap, **options})
    async with group_connection("app", config, rebalance_timeout_s=1, dialer=fake) as connection:
        new = partial(Producer, fake.bootstrap, dialer=fake, **{"linger_ms": 0, **options})
        inputs: Any = FakeInputs()
        inputs.first = 0
        world: Any = World(fake, inputs)
        gate = world.gate
        gate.open_without_member()  # the fake group has none
        directory = StateDirectory(path, float)
        manager = TaskManager(
            *(topology_of(count), directory, inputs, world, world.ends),
            PlainOutput(config, new, GroupOffsets(connection, gate, lambda *_: None, 60), gate),
            gate,
            crash=world.crashes.append,
            disk=InlineDisk(),
            options=TaskOptions(
                clock=asyncio.get_running_loop().time, commit_interval_s=interval_s
            ),
        )
        world.manager = manager
        beating = asyncio.create_task(world.heartbeats())
        await manager.committers.start()
        feeding = asyncio.create_task(world.feed())
        try:
            await manager.give_up(manager.assign(sources(TASKS), ()), 1)
            await manager.open()
            world.total = dict.fromkeys(TASKS, max(10, *world.committed()))
            await asyncio.sleep(1)
            for task in manager.tasks.values():
                await manager.committers.of(task).commit()
            await world.done(1)
            yield world
        finally:
            await cancel_and_wait(feeding, beating)
            await manager.end_work()
            manager.close()
            directory.close()


ANSWERS = {
    **{str(each): each for each in (DROP_ANSWER, CLOSE, CLOSE_ANSWER)},
    "late": delay(5),
    "answered late": delay_answer(5),
    **{
        code.name: code.value
        for code in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    },
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@virtual_time
async def test_an_offset_commit_that_fails(tmp_path: Path, answer: Any) -> None:
    async with running(tmp_path) as world:
        for _ in range(2):
            world.fake.control(ApiKey.OFFSET_COMMIT, answer)
        for turn in range(2, 12):
            world.total = dict.fromkeys(TASKS, 10 * turn)
            await asyncio.sleep(0.15)
        await world.done(150)
        world.check()


def unknown_for(partition: int) -> Any:
    """An answer to an OffsetCommit: this partition does not exist."""

    def decide(request: Request) -> Any:
        topics = [
            {
                "name": each.name,
                "topic_id": each.topic_id,
                "partitions": [
                    {
                        "partition_index": found.partition_index,
                        "error_code": 3 if found.partition_index == partition else 0,
                    }
                    for found in each.partitions
                ],
            }
            for each in request.message.topics
        ]
        if any(found["error_code"] for each in topics for found in each["partitions"]):
            return {"throttle_time_ms": 0, "topics": topics}
        return None

    return decide


@virtual_time
async def test_one_partition_of_a_commit_does_not_exist(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for _ in range(UNKNOWN_TOPIC_READS):
            world.fake.control(ApiKey.OFFSET_COMMIT, unknown_for(0))
        world.total = dict.fromkeys(TASKS, 40)
        await world.done(10)
        world.check()


@virtual_time
async def test_the_coordinator_says_nothing_for_longer_than_a_session(tmp_path: Path) -> None:
    """Nothing is written meanwhile; and a broker takes nothing, either."""
    async with running(tmp_path) as world:
        world.fake.stall_broker(1)
        for turn in range(2, 62):
            world.total = dict.fromkeys(TASKS, 10 * turn)
            world.has_coordinator = not 15 < turn < 40
            await asyncio.sleep(0.5)
            if turn == 30:
                written = len(world.fake.log("out", 1))
            if turn == 39:
                assert len(world.fake.log("out", 1)) == written
        world.fake.resume_broker(1)
        await world.done(60)
        world.check()


@pytest.mark.parametrize("moment", range(0, 40, 9))
@virtual_time
async def test_an_instance_that_ends_at_any_moment(tmp_path: Path, moment: int) -> None:
    """Also while commits wait for a broker, or for the coordinator's answer."""
    async with running(tmp_path) as world:
        world.fake.delay_produce(1, 0.03)
        world.fake.control(ApiKey.OFFSET_COMMIT, delay_answer(0.05), keep=True)
        for turn in range(2, 12):
            world.total = dict.fromkeys(TASKS, 10 * turn)
            await asyncio.sleep(0.03)
        await asyncio.sleep(moment / 200)
    async with running(tmp_path, fake=world.fake) as again:
        again.total = dict.fromkeys(TASKS, 200)
        await again.done(60)
        again.check()


@virtual_time
async def test_a_processor_raises_while_commits_wait(tmp_path: Path) -> None:
    """That ends the instance."""
    async with running(tmp_path) as world:
        world.fake.stall_broker(1)
        world.fake.control(ApiKey.OFFSET_COMMIT, delay_answer(0.5))
        world.fails = {55}
        world.total = dict.fromkeys(TASKS, 100)
        async with asyncio.timeout(10):
            while not world.crashes:
                await asyncio.sleep(0.01)
    world.fake.resume_broker(1)
    async with running(tmp_path, fake=world.fake) as again:
        again.total = dict.fromkeys(TASKS, 100)
        await again.done(60)
        again.check()


@pytest.mark.parametrize("elsewhere", ["app-counts-changelog", "out"])
@virtual_time
async def test_one_broker_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    """Only output, or only changes; for longer than delivery.timeout.ms."""
    monkeypatch.setitem(LOGS, elsewhere, 2)
    async with running(tmp_path, delivery_timeout_ms=35_000, request_timeout_ms=10_000) as world:
        world.fake.stall_broker(1)
        for turn in range(2, 42):
            world.total = dict.fromkeys(TASKS, 10 * turn)
            await asyncio.sleep(1)
            await world.done(0.5, [B])
        world.fake.resume_broker(1)
        await world.done(120)
        world.check()


@pytest.mark.parametrize("interval_s", [0.0, 3_600.0])
@virtual_time
async def test_commit_intervals(tmp_path: Path, interval_s: float) -> None:
    async with running(tmp_path, interval_s=interval_s) as world:
        for turn in range(2, 12):
            world.total = dict.fromkeys(TASKS, 10 * turn)
            await asyncio.sleep(0.15)
        if interval_s:
            assert world.committed() == [10, 10]
            await world.manager.finish_and_commit(10)
        await world.done(5)
        assert world.check() == 0


@virtual_time
async def test_the_tasks_are_lost_while_a_commit_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        world.fake.control(ApiKey.OFFSET_COMMIT, delay(1))
        for turn in range(2, 22):
            world.total = dict.fromkeys(TASKS, 10 * turn)
            await asyncio.sleep(0.05)
            if turn == 10:
                world.gate.refuse_waiting()
                world.manager.lose()
                await world.manager.give_up(world.manager.assign(sources(TASKS), ()), 1)
        await world.done(60)
        world.check()
