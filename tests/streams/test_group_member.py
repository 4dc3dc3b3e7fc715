"""A member's subscriptions, and how it applies assignments."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafkaclient.errors import AdminTimeoutError, ProtocolError, StateStoreError, StreamsError
from kafkaclient.streams import TaskId
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.group_protocol import (
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    decode_subscription,
)
from kafkaclient.streams.membership.rebalance_schedule import RebalanceSchedule
from kafkaclient.streams.runtime.group_member import GroupMember
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.runtime.task_states import TaskState
from kafkaclient.streams.state.directory import StateDirectory
from kafkaclient.types import ConsumerGroupMetadata, TopicPartition
from tests.streams.fakes import (
    FakeConsumer,
    FakeEnds,
    FakeInputs,
    FakeReader,
    FakeWriter,
    InlineDisk,
    counting,
    on_disk,
    record,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

A, B = TaskId(0, 0), TaskId(0, 1)
SOURCE = TopicPartition("words", 0)


class FakeHooks:
    def __init__(self, consumer: FakeConsumer) -> None:
        self.consumer = consumer
        self.member_id = "m"
        self.generation = 0

    @property
    def group(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("app", self.generation, self.member_id)


class LoggingManager(TaskManager):
    log: list[str]

    async def suspend(self, timeout_s: float) -> None:
        self.log.append("suspend")
        await super().suspend(timeout_s)

    def resume(self) -> None:
        self.log.append("resume")
        super().resume()


class World:
    """A member with its tasks."""

    def __init__(self, path: Path) -> None:
        self.log: list[str] = []
        self.crashes: list[BaseException] = []
        self.consumer = FakeConsumer()
        self.inputs = FakeInputs()
        self.reader = FakeReader()
        self.ends = FakeEnds(self.log)
        self.hooks = FakeHooks(self.consumer)
        self.directory = StateDirectory(path, float)
        self.schedule = RebalanceSchedule(100, float, float)
        self.manager = LoggingManager(
            counting(),
            self.directory,
            self.inputs,  # type: ignore[arg-type]
            self.reader,  # type: ignore[arg-type]
            self.ends,  # type: ignore[arg-type]
            make_writer=lambda task: FakeWriter(self.log),
            on_migrated=lambda: None,
            crash=self.crashes.append,
            disk=InlineDisk(),
        )
        self.manager.log = self.log
        config = StreamsConfig(
            bootstrap_servers="localhost:1",
            application_id="app",
            state_dir=path,
            client_tags={"zone": "a"},
            session_timeout_ms=600,
        )
        self.member = GroupMember(
            config,
            counting(),
            self.directory,
            self.manager,
            self.schedule,
            self.ends,  # type: ignore[arg-type]
            self.hooks,  # type: ignore[arg-type]
            {"words": 2},
        )

    async def process(self, found: dict[TopicPartition, list[Any]]) -> None:
        self.manager.deliver(found)
        for _ in range(10):
            await asyncio.sleep(0)

    def subscription(self) -> SubscriptionInfo:
        subscription = decode_subscription(self.member.subscription())
        assert isinstance(subscription, SubscriptionInfo)
        return subscription

    def install(self, active: list[TaskId], standby: list[TaskId], **more: int) -> None:
        """The first half of an assignment, which aiokafka does without waiting."""
        self.hooks.generation += 1
        partitions = [TopicPartition("words", task.partition) for task in active]
        info = AssignmentInfo(
            active_tasks=tuple(active),
            standby_tasks={task: frozenset() for task in standby},
            **more,
        )
        self.member.assigned(partitions, info.encode())

    async def rebalance(self, active: list[TaskId], standby: list[TaskId], **more: int) -> None:
        await self.member.on_partitions_revoked(())
        self.install(active, standby, **more)
        await self.member.on_partitions_assigned(())
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.manager.end_writers()
    made.manager.close()
    made.directory.close()


async def test_the_subscription_reports_offsets_tags_and_joins(world: World) -> None:
    first = world.subscription()
    assert isinstance(first.process_id, UUID)
    assert (first.task_offset_sums, first.client_tags) == ({}, {"zone": "a"})
    await world.rebalance([A], [B])
    world.manager.tasks[B].reached(7, 9)
    on_disk(world.directory, TaskId(0, 5), 4)
    second = world.subscription()
    assert second.task_offset_sums == {A: -2, B: 7, TaskId(0, 5): 4}
    assert second.unique_field == first.unique_field + 1
    numbers = {world.subscription().unique_field for _ in range(256)}
    assert numbers == set(range(-128, 128))


async def test_a_removed_member_reports_no_running_task(world: World) -> None:
    await world.rebalance([A], [])
    world.hooks.member_id = ""
    assert world.subscription().task_offset_sums == {A: 0}


async def test_a_restoring_task_reports_its_position(world: World) -> None:
    world.ends.end = 50
    await world.rebalance([A], [])
    world.manager.tasks[A].reached(20, 50)
    assert world.subscription().task_offset_sums == {A: 20}


async def test_a_task_that_stays_continues_at_its_offset(world: World) -> None:
    await world.rebalance([A], [])
    await world.process({SOURCE: [record(8, b"a")]})
    world.inputs.positions[SOURCE] = 9
    await world.rebalance([A, B], [])
    assert world.inputs.positions[SOURCE] == 9, "fetched again, or left out"
    assert world.consumer.paused == {("words", 0), ("words", 1)}, "the consumer fetches, too"
    log = ["suspend", "resume", "w start", "ends", "w committed"]
    assert world.log == [*log, "w begin", *log], "the second is the new task's"


@pytest.mark.parametrize("how", ["generation", "member"])
async def test_after_a_missed_generation_tasks_are_restored(world: World, how: str) -> None:
    await world.rebalance([A], [])
    world.ends.end = 5
    if how == "generation":
        world.hooks.generation += 1
    else:
        world.hooks.member_id = "another"
    world.install([A], [])
    assert world.manager.tasks[A].state is TaskState.RESTORING
    assert SOURCE not in world.inputs.positions


async def test_offsets_are_committed_as_the_member_that_was_assigned(world: World) -> None:
    await world.rebalance([A], [])
    assert world.member.group == ("app", 1, "m", None)
    world.hooks.member_id, world.hooks.generation = "", -1
    assert world.member.group == ("app", 1, "m", None), (
        "without a member id, the group would accept the offsets"
    )


async def test_state_that_was_reported_is_kept_until_the_assignment(world: World) -> None:
    on_disk(world.directory, B, 4)
    world.subscription()
    assert world.directory.clean([], delay=0) == []
    await world.rebalance([A], [])
    assert world.directory.clean(world.manager.tasks, delay=0) == [B]


async def test_a_standby_that_catches_up_requests_a_rebalance(world: World) -> None:
    await world.rebalance([], [A], next_rebalance_ms=10**15)
    assert world.schedule.due_at is None
    world.schedule.observe(A, 5)
    assert world.schedule.due_at is not None
    await world.rebalance([], [A], next_rebalance_ms=NO_REBALANCE)
    assert world.schedule.due_at is None


async def test_the_copy_left_by_a_moved_task_requests_no_rebalance(world: World) -> None:
    await world.rebalance([A], [])
    world.subscription()
    await world.rebalance([], [A], next_rebalance_ms=10**15)
    world.schedule.observe(A, 0)
    assert world.schedule.due_at is None


@pytest.mark.parametrize(
    ("code", "message"),
    [(1, "does not exist"), (3, "leader's log"), (4, "requested the shutdown"), (77, "error 77")],
)
async def test_a_leader_can_end_the_application(world: World, code: int, message: str) -> None:
    await world.rebalance([], [], error_code=code)
    (error,) = world.crashes
    assert isinstance(error, StreamsError)
    assert message in str(error)


async def test_errors_of_callbacks_crash_the_instance(world: World) -> None:
    world.member.assigned([], b"\0\0\0\x0b")

    async def broken(timeout_s: float) -> None:
        raise StateStoreError("full")

    world.manager.suspend = broken  # type: ignore[method-assign]
    await world.member.on_partitions_revoked(())
    first, second = world.crashes
    assert isinstance(first, ProtocolError)
    assert isinstance(second, StateStoreError)


async def test_a_leader_without_ends_leaves_tasks_where_they_are(world: World) -> None:
    await world.rebalance([A, B], [])
    members = {"m": world.member.subscription(), "new": _new_member()}

    async def lost() -> None:
        raise AdminTimeoutError("lost")

    async def hangs() -> None:
        await asyncio.get_running_loop().create_future()

    await world.member.fetch_ends()
    answers = world.member.compute_assignments(members, {"words": 2})
    assert len(answers["new"].partitions) == 1, "0 records: all members are caught up"
    for problem in (lost, hangs):
        world.ends.problem = problem
        await world.member.fetch_ends()
        answers = world.member.compute_assignments(members, {"words": 2})
        assert len(answers["m"].partitions) == 2
        assert answers["m"].info.next_rebalance_ms < NO_REBALANCE


def _new_member() -> bytes:
    return SubscriptionInfo(process_id=UUID(int=0)).encode()
