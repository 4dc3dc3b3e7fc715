"""A member's subscriptions, and how it applies assignments."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafkaclient.errors import AdminTimeoutError, ProtocolError, StateStoreError, StreamsError
from kafkaclient.group.member import Generation
from kafkaclient.streams import TaskId
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.declarations import Topic
from kafkaclient.streams.group_protocol import (
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    decode_subscription,
)
from kafkaclient.streams.leader import RebalanceSchedule
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.runtime.streams_protocol import ASSIGNOR, StreamsProtocol
from kafkaclient.streams.state_directory import StateDirectory
from kafkaclient.streams.tasks import TaskState
from kafkaclient.streams.topology import Processor, Topology
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import (
    ConsumerAssignment,
    ConsumerSubscription,
    assignment_in,
    subscription_in,
)
from tests.streams.fakes import (
    FakeEnds,
    FakeInputs,
    FakeOutput,
    FakeReader,
    counting,
    new_manager,
    on_disk,
    record,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

A, B = TaskId(0, 0), TaskId(0, 1)
SOURCE = TopicPartition("words", 0)


class World:
    """A member with its tasks."""

    def __init__(self, path: Path, topology: Topology | None = None) -> None:
        topology = topology or counting()
        self.log: list[str] = []
        self.crashes: list[BaseException] = []
        self.output = FakeOutput(self.log)
        self.inputs = FakeInputs()
        self.reader = FakeReader()
        self.ends = FakeEnds(self.log)
        self.generation = 0
        self.counts = {"words": 2}
        self.problem: BaseException | None = None
        self.fetch_counts_now = lambda: self.counts
        self.directory = StateDirectory(path, float)
        self.schedule = RebalanceSchedule(100, float, float)
        self.manager = new_manager(
            *(topology, self.directory, self.inputs, self.reader, self.ends, self.output),
            self.crashes.append,
        )
        config = StreamsConfig(
            bootstrap_servers="localhost:1",
            application_id="app",
            state_dir=path,
            client_tags={"zone": "a"},
            session_timeout_ms=600,
        )
        self.member = StreamsProtocol(
            config,
            topology,
            self.directory,
            self.manager,
            self.schedule,
            self.ends,  # type: ignore[arg-type]
            self.fetch_counts,
            {"words": 2},
            Observer(),
        )

    async def fetch_counts(self) -> dict[str, int]:
        if self.problem is not None:
            raise self.problem
        return self.fetch_counts_now()

    async def process(self, found: dict[TopicPartition, list[Any]]) -> None:
        self.manager.deliver(found)
        for _ in range(10):
            await asyncio.sleep(0)

    def told(self) -> ConsumerSubscription:
        return subscription_in(self.member.subscriptions()[ASSIGNOR])

    def subscription(self) -> SubscriptionInfo:
        subscription = decode_subscription(self.told().user_data or b"")
        assert isinstance(subscription, SubscriptionInfo)
        return subscription

    async def assign(self, active: list[TaskId], standby: list[TaskId], **more: int) -> bool:
        words = {TopicPartition("words", task.partition): task for task in active}
        return await self.assign_partitions(words, standby, **more)

    async def assign_partitions(
        self,
        active: dict[TopicPartition, TaskId],
        standby: Collection[TaskId] = (),
        **more: int,
    ) -> bool:
        self.generation += 1
        info = AssignmentInfo(
            active_tasks=tuple(active[partition] for partition in sorted(active)),
            standby_tasks={task: frozenset() for task in standby},
            **more,
        )
        given = ConsumerAssignment(tuple(active), info.encode()).encode()
        return await self.member.assigned(given, Generation(self.generation, "m", False))

    async def rebalance(self, active: list[TaskId], standby: list[TaskId], **more: int) -> bool:
        gives_up = await self.assign(active, standby, **more)
        await self.run_until_idle()
        return gives_up

    async def run_until_idle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[World]:
    made = World(path)
    await made.manager.committers.start()
    made.log.clear()
    yield made
    await made.member.close()
    await made.manager.end_work()
    made.manager.close()
    made.directory.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as made:
        yield made


async def test_the_subscription_reports_offsets_tags_and_joins(world: World) -> None:
    first = world.subscription()
    assert isinstance(first.process_id, UUID)
    assert (first.task_offset_sums, first.client_tags) == ({}, {"zone": "a"})
    await world.rebalance([A], [B])
    world.manager.tasks[B].task_stores[0].reached(7, 9)
    on_disk(world.directory, TaskId(0, 5), 4)
    second = world.subscription()
    assert second.task_offset_sums == {A: -2, B: 7, TaskId(0, 5): 4}
    assert second.unique_field == first.unique_field + 1
    numbers = {world.subscription().unique_field for _ in range(256)}
    assert numbers == set(range(-128, 128))


async def test_a_member_that_lost_its_tasks_reports_no_running_task(world: World) -> None:
    await world.rebalance([A], [])
    assert world.told().owned == (SOURCE,)
    world.member.all_lost()
    assert world.subscription().task_offset_sums == {A: 0}
    assert world.told().owned == ()
    assert world.manager.tasks[A].state is TaskState.STANDBY
    assert SOURCE not in world.inputs.positions


async def test_a_task_is_owned_until_it_has_committed(world: World) -> None:
    await world.rebalance([A], [])
    world.output.may_commit.clear()
    await world.process({SOURCE: [record(8, b"a")]})
    revoking = asyncio.create_task(world.assign([B], []))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.told().owned == (SOURCE, TopicPartition("words", 1))
    assert world.manager.tasks[B].state is TaskState.RUNNING, "it waited for the other one"
    world.output.may_commit.set()
    assert await revoking, "its next owner waits for this"
    assert world.told().owned == (TopicPartition("words", 1),)
    assert world.told().generation_id == 2
    assert world.manager.tasks.keys() == {B}


@virtual_time
async def test_a_task_that_cannot_commit_holds_up_no_other_and_no_rebalance(
    tmp_path: Path,
) -> None:
    """A broker takes nothing. At least once, each task commits on its own."""
    async with running(tmp_path) as world:
        world.output.is_transactional = False
        await world.rebalance([A, B], [])
        stuck = world.output.may_commit
        stuck.clear()
        await world.process({SOURCE: [record(8, b"a")]})
        async with asyncio.timeout(5):
            assert await world.assign([], []), "the next owner of the other task waits for this"
        assert world.told().owned == (SOURCE,)
        assert world.manager.tasks.keys() == {A}
        async with asyncio.timeout(5):
            assert not await world.assign([], []), "nothing new is given up"
        assert world.schedule.due_at is None
        stuck.set()
        await world.run_until_idle()
        assert world.schedule.due_at is not None
        assert world.told().owned == ()
        assert not world.manager.tasks
        assert world.output.commits == [{SOURCE: 9}]


@virtual_time
async def test_a_task_that_comes_back_before_it_could_commit_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.rebalance([A], [])
        world.ends.end = 10
        world.output.may_commit.clear()
        await world.process({SOURCE: [record(8, b"a")]})
        await world.assign([], [])
        assert not await world.assign([A], [])
        world.output.may_commit.set()
        await world.run_until_idle()
        world.manager.tasks[A].task_stores[0].reached(10, 10)
        await asyncio.sleep(1)
        assert world.told().owned == (SOURCE,)
        assert world.manager.running() == [A]
        await world.process({SOURCE: [record(9, b"a")]})
        assert world.manager.tasks[A].offsets == {SOURCE: 10}


@virtual_time
async def test_a_task_that_is_lost_before_it_could_commit_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.rebalance([A], [])
        world.output.may_commit.clear()
        await world.process({SOURCE: [record(8, b"a")]})
        await world.assign([], [])
        world.member.all_lost()
        assert world.told().owned == ()
        world.output.may_commit.set()
        await world.run_until_idle()
        assert not world.manager.tasks
        assert world.schedule.due_at is None, "nothing is claimed"


async def test_what_is_lost_while_it_is_given_up_is_not_owned_again(world: World) -> None:
    await world.rebalance([A], [])
    assigning = asyncio.create_task(world.assign([B], []))
    await asyncio.sleep(0)
    world.member.all_lost()
    await assigning
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.told().owned == ()
    assert not world.manager.running()


async def test_a_restoring_task_reports_its_position(world: World) -> None:
    world.ends.end = 50
    await world.rebalance([A], [])
    world.manager.tasks[A].task_stores[0].reached(20, 50)
    assert world.subscription().task_offset_sums == {A: 20}


async def test_a_task_that_stays_continues_at_its_offset(world: World) -> None:
    await world.rebalance([A], [])
    await world.process({SOURCE: [record(8, b"a")]})
    world.inputs.positions[SOURCE] = 9
    assert not await world.rebalance([A, B], [])
    assert world.inputs.positions[SOURCE] == 9, "fetched again, or left out"
    log = ["committed", "ends", "ends"]
    assert world.log == [*log, *log], "the second is the new task's"


async def test_state_that_was_reported_is_kept_until_the_assignment(world: World) -> None:
    on_disk(world.directory, B, 4)
    world.subscription()
    assert world.directory.clean([], delay=0) == []
    await world.rebalance([A], [])
    assert world.directory.clean(world.manager.tasks, delay=0) == [B]


async def test_state_that_was_reported_anew_is_kept_while_older_stores_are_opened(
    world: World,
) -> None:
    on_disk(world.directory, B, 4)
    world.subscription()
    await world.assign([A], [])  # its store is opened later
    world.subscription()
    await world.run_until_idle()
    assert world.directory.clean(world.manager.tasks, delay=0) == []
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
    with pytest.raises(StreamsError, match=message):
        await world.rebalance([], [], error_code=code)


async def test_errors_of_assignments_end_the_instance(world: World) -> None:
    with pytest.raises(ProtocolError):
        await world.member.assigned(b"\0\1", Generation(1, "m", False))
    on_disk(world.directory, A, 4, "others")
    await world.rebalance([], [A])
    (error,) = world.crashes
    assert isinstance(error, StateStoreError)


async def test_a_leader_without_ends_leaves_tasks_where_they_are(world: World) -> None:
    await world.rebalance([A, B], [])
    members = {"m": world.member.subscriptions()[ASSIGNOR], "new": _new_member()}

    async def lost() -> None:
        raise AdminTimeoutError("lost")

    async def hangs() -> None:
        await asyncio.get_running_loop().create_future()

    async def answers() -> dict[str, tuple[int, int]]:
        found = await world.member.assign(ASSIGNOR, members)
        decoded = {member: assignment_in(data) for member, data in found.items()}
        return {
            member: (
                len(each.partitions),
                AssignmentInfo.decode(each.user_data or b"").next_rebalance_ms,
            )
            for member, each in decoded.items()
        }

    # 0 records: all members are caught up; the other member owns the tasks still.
    now_ms = time.time() * 1000
    found = await answers()
    assert {member: count for member, (count, _) in found.items()} == {"m": 1, "new": 0}
    for _, next_ms in found.values():  # at the latest: the owner may have restarted
        assert 500 <= next_ms - now_ms <= 10_000
    for problem in (lost, hangs):
        world.ends.problem = problem
        found = await answers()
        assert found["m"][0] == 2
        assert found["m"][1] < NO_REBALANCE


async def test_a_topic_that_is_gone_or_has_grown_ends_the_application(world: World) -> None:
    members = {"new": _new_member(), "broken": b"\0"}
    for count, code in ((0, 1), (3, 3)):
        world.counts = {"words": count}
        found = await world.member.assign(ASSIGNOR, members)
        for data in found.values():
            user_data = assignment_in(data).user_data
            assert AssignmentInfo.decode(user_data or b"").error_code == code
        world.member._partitions = {"words": 2}


async def test_a_topic_that_has_grown_is_read_by_the_task_that_owns_it(tmp_path: Path) -> None:
    """Nobody would read its new partitions, and nothing would tell."""

    async def nothing(_record: Any, _emit: Any) -> None:
        """Has no store, so its inputs may have different numbers of partitions."""

    processor = Processor(topics=(Topic("words"), Topic("lines")), process=nothing)
    world = World(tmp_path, Topology("app").with_processor(processor))
    await world.manager.committers.start()
    words, lines = TopicPartition("words", 1), TopicPartition("lines", 1)
    await world.assign([B], [])
    await world.run_until_idle()
    assert world.inputs.positions == {words: 3}
    await world.process({words: [record(3, b"")]})
    await world.assign_partitions({lines: B, words: B})
    await world.run_until_idle()
    assert world.inputs.positions.keys() == {lines, words}
    assert world.output.commits == [{words: 4}], "its work is committed before"
    assert set(world.told().owned) == {lines, words}
    new = TopicPartition("lines", 7)
    await world.assign_partitions({lines: B, words: B, new: TaskId(0, 7)})
    await world.run_until_idle()
    assert world.inputs.positions.keys() == {lines, words, new}
    with pytest.raises(StreamsError, match="given task 0_1 the input partition others-1, whose"):
        await world.assign_partitions({TopicPartition("others", 1): B})
    await world.member.close()
    await world.manager.end_work()


@virtual_time
async def test_the_leader_alone_asks_for_a_rebalance_when_an_input_has_grown(
    tmp_path: Path,
) -> None:
    world, asked = World(tmp_path), list[str]()
    watching = asyncio.create_task(world.member.watch_inputs(5, asked.append))
    counts, given = {"words": 3}, ConsumerAssignment((), AssignmentInfo().encode()).encode()
    for leads, found, expected in (
        (False, counts, []),
        (True, {"words": 2}, []),
        (True, {"words": 1}, []),
        (True, AdminTimeoutError("lost"), []),
        (True, counts, ["input topic words has more partitions"]),
    ):
        await world.member.assigned(given, Generation(1, "m", leads))
        world.problem, world.counts = None, {}
        if isinstance(found, dict):
            world.counts = found
        else:
            world.problem = found
        await asyncio.sleep(5)
        assert asked == expected
    world.member.all_lost()
    await asyncio.sleep(20)
    assert len(asked) == 1
    watching.cancel()
    world.directory.close()


@virtual_time
async def test_all_members_name_the_input_that_has_outgrown_its_changelog(tmp_path: Path) -> None:
    world = World(tmp_path)
    looks = iter([2, 2, 4])  # the broker that is asked first does not know it yet
    world.fetch_counts_now = lambda: {"words": next(looks)}
    with pytest.raises(StateStoreError, match=r"words has 4 partitions now, and .* have 2"):
        await world.assign([], [], error_code=3)
    world.directory.close()


def _new_member() -> bytes:
    info = SubscriptionInfo(process_id=UUID(int=0))
    return ConsumerSubscription(("words",), info.encode()).encode()
