"""Tasks through assignments and failures, with fake collaborators."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    MetadataTimeoutError,
    ProcessingError,
    RecordTooLargeError,
    StateStoreError,
    TransactionAbortableError,
)
from kafkaclient.streams import TaskId
from kafkaclient.streams.runtime import committer, task_manager
from kafkaclient.streams.runtime.inputs import OffsetReset
from kafkaclient.streams.state_directory import StateDirectory, StoreDirectory
from kafkaclient.streams.tasks import TaskState
from kafkaclient.types import TopicPartition
from tests.streams.fakes import (
    FakeEnds,
    FakeInputs,
    FakeOutput,
    FakeReader,
    commit_all,
    counting,
    new_manager,
    on_disk,
    record,
    sources,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from concurrent.futures import Executor
    from pathlib import Path


A, B = TaskId(0, 0), TaskId(0, 1)
SOURCE = TopicPartition("words", 0)


class World:
    """A manager with its fake collaborators."""

    def __init__(self, path: Path, disk: Executor | None = None) -> None:
        self.log: list[str] = []
        self.output = FakeOutput(self.log)
        self.crashes: list[BaseException] = []
        self.inputs = FakeInputs()
        self.reader = FakeReader()
        self.ends = FakeEnds(self.log)
        self.directory = StateDirectory(path, float)
        self.manager = new_manager(
            *(counting(), self.directory, self.inputs, self.reader, self.ends, self.output),
            self.crashes.append,
            disk,
        )

    async def start(self) -> None:
        await self.manager.committers.start()
        self.log.clear()

    async def close(self) -> None:
        await self.manager.end_work()
        self.manager.close()
        self.directory.close()

    async def assign(self, active: list[TaskId], standby: list[TaskId]) -> None:
        await self.manager.give_up(self.manager.assign(sources(active), standby), 1)
        await self.manager.open()

    async def run(self, active: list[TaskId], standby: Sequence[TaskId] = ()) -> None:
        await self.assign(active, list(standby))
        await self.run_until_idle()

    async def process(self, found: dict[TopicPartition, list[Any]]) -> None:
        self.manager.deliver(found)
        await self.run_until_idle()

    async def commit(self) -> None:
        await commit_all(self.manager)

    async def run_until_idle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def state(self, task: TaskId) -> TaskState:
        return self.manager.tasks[task].state


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(task_manager, "_RETRY_BACKOFF_S", 0)
    monkeypatch.setattr(committer, "_RETRY_BACKOFF_S", 0)
    made = World(tmp_path)
    await made.start()
    yield made
    await made.close()


async def test_the_offset_is_read_before_the_changelogs_end(world: World) -> None:
    world.output.offset = 42
    await world.assign([A], [])
    assert world.state(A) is TaskState.RESTORING
    await world.run_until_idle()
    assert world.log == ["committed", "ends", "ends", "ends"]
    assert world.state(A) is TaskState.RUNNING
    assert world.inputs.positions == {SOURCE: 42}
    assert world.reader.followed == []


@pytest.mark.parametrize(("at_end", "offset"), [(False, 3), (True, 70)])
async def test_an_offset_beyond_the_end_is_reset(
    tmp_path: Path,
    at_end: bool,
    offset: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic was created again: records below would be skipped in silence."""
    monkeypatch.setattr("kafkaclient.cluster.topics._PAUSE_S", 0)
    world = World(tmp_path)
    world.inputs.at_end = at_end
    await world.start()
    world.output.offset, world.ends.source_end = 71, 70
    await world.run([A])
    assert world.inputs.positions == {SOURCE: offset}
    assert "has committed offset 71 of words-0, which ends at 70" in caplog.text
    await world.close()


async def test_records_of_a_restarted_task_are_fetched_again(world: World) -> None:
    """The records that were processed and not committed would be skipped in silence."""
    await world.run([A])
    await world.process({SOURCE: [record(3, b"a"), record(4, b"a")]})
    world.inputs.positions[SOURCE] = 5
    world.manager.failed(world.manager.tasks[A], TransactionAbortableError("no"))
    assert world.inputs.positions == {}
    await world.run_until_idle()
    assert world.state(A) is TaskState.RUNNING
    assert world.inputs.positions == {SOURCE: 3}
    await world.commit()
    assert world.output.commits == []


async def test_an_offset_reset_is_committed_with_the_records_or_alone(world: World) -> None:
    """After a restart, the old offset could be in the new log."""
    world.output.offset = 42
    await world.run([A])
    await world.process({SOURCE: [record(42, b"a"), OffsetReset("words", 0)]})
    await world.commit()
    await world.process({SOURCE: [record(0, b"a"), record(1, b"a")]})
    await world.commit()
    await world.process({SOURCE: [OffsetReset("words", 7)]})
    await world.commit()
    assert world.output.commits == [{SOURCE: 0}, {SOURCE: 2}, {SOURCE: 7}]
    assert world.output.changes == [{b"a": b"1"}, {b"a": b"3"}, {}]


async def test_a_task_without_committed_offset_begins_at_the_earliest_offset(world: World) -> None:
    await world.run([A])
    assert world.inputs.positions == {SOURCE: 3}


async def test_a_latest_offset_is_committed_at_once(tmp_path: Path) -> None:
    """Committed at once: what arrives before the next commit is not left out after a failure."""
    world = World(tmp_path)
    world.inputs.at_end = True
    world.ends.source_end = 70
    await world.start()
    await world.run([A])
    assert world.inputs.positions == {SOURCE: 70}
    assert world.output.commits == [{SOURCE: 70}]
    await world.close()


async def test_a_task_runs_after_its_changelog_is_read_to_the_end(world: World) -> None:
    world.ends.end = 5
    await world.run([A], [B])
    assert world.state(A) is TaskState.RESTORING
    assert [task.id for task in world.reader.followed] == [A, B]
    world.manager.tasks[A].task_stores[0].reached(5, 5)
    await world.run_until_idle()
    assert world.state(A) is TaskState.RUNNING
    assert [task.id for task in world.reader.followed] == [B]


async def test_a_task_that_keeps_its_role_continues(world: World) -> None:
    await world.run([A], [B])
    log, tasks = list(world.log), dict(world.manager.tasks)
    await world.run([A], [B])
    assert (world.log, world.manager.tasks) == (log, tasks)


async def test_roles_change_without_a_store_being_closed(world: World) -> None:
    await world.run([A], [B])
    tasks = dict(world.manager.tasks)
    await world.run([B], [A])
    assert world.manager.tasks == tasks
    assert (world.state(A), world.state(B)) == (TaskState.STANDBY, TaskState.RUNNING)


async def test_a_revoked_task_is_closed_with_its_checkpoint(world: World) -> None:
    await world.run([A])
    await world.process({SOURCE: [record(3, b"a")]})
    await world.commit()
    await world.run([])
    assert world.manager.tasks == {}
    assert world.directory.report() == {A: 10}


async def test_a_failed_commit_restores_its_tasks(world: World) -> None:
    """Those without uncommitted work go on."""
    await world.run([A, B])
    world.output.fail = TransactionAbortableError("no")
    await world.process({SOURCE: [record(3, b"a")]})
    world.log.clear()
    await world.commit()
    await world.run_until_idle()
    assert world.log == ["abandon", "start", "committed", "ends", "ends"]
    assert world.state(A) is TaskState.RUNNING
    assert world.manager.tasks[A].stores["counts"].get(b"a") is None
    assert world.inputs.positions.keys() == {SOURCE, TopicPartition("words", 1)}


async def test_a_task_waits_for_the_commit_under_way_before_it_reads_its_offset(
    world: World,
) -> None:
    """Else it begins at the offset before that commit."""
    await world.run([A])
    await world.process({SOURCE: [record(3, b"a")]})
    world.output.may_commit.clear()
    committing = asyncio.create_task(world.commit())
    await world.run_until_idle()
    world.log.clear()
    world.manager.failed(world.manager.tasks[A], TransactionAbortableError("no"))
    await world.run_until_idle()
    assert world.log == []
    world.output.may_commit.set()
    await committing
    await world.run_until_idle()
    assert world.log == ["committed", "ends", "ends"]


async def test_a_fenced_task_is_restored_here(world: World) -> None:
    """The group says who has it: the producer is the whole process's."""
    await world.run([A])
    world.output.fail = broker_error(90)
    await world.process({SOURCE: [record(3, b"a")]})
    await world.commit()
    assert world.state(A) is TaskState.RESTORING
    await world.run_until_idle()
    assert world.state(A) is TaskState.RUNNING
    assert world.crashes == []


async def test_an_instance_that_is_fenced_again_and_again_ends(world: World) -> None:
    await world.assign([A], [])
    for _ in range(3):
        await world.run_until_idle()
        world.output.fail = broker_error(90)
        await world.process({SOURCE: [record(3, b"a")]})
        await world.commit()
    (error,) = world.crashes
    assert "fenced 3 times in a row" in str(error)
    assert "copy of this state directory" in str(error)


async def test_permanent_errors_end_the_instance(world: World) -> None:
    await world.run([A])
    world.output.fail = error = RecordTooLargeError("too large")
    await world.process({SOURCE: [record(3, b"a")]})
    await world.commit()
    assert world.crashes == [error]


@pytest.mark.parametrize(("refused_value", "offset"), [(b"1", 3), (b"2", 4)])
async def test_a_record_whose_output_is_refused_goes_to_its_handler(
    world: World, refused_value: bytes, offset: int
) -> None:
    await world.run([A])
    world.output.fail = refused = RecordTooLargeError("too large")
    world.output.refused[refused_value] = refused
    await world.process({SOURCE: [record(3, b"a"), record(4, b"a")]})
    await world.commit()
    await world.run_until_idle()
    assert (world.state(A), world.crashes) == (TaskState.RUNNING, [])
    await world.process({SOURCE: [record(3, b"a"), record(4, b"a")]})
    (error,) = world.crashes
    assert isinstance(error, ProcessingError)
    assert (error.offset, error.__cause__) == (offset, refused)
    assert world.output.commits == []


async def test_a_retriable_error_of_a_record_keeps_the_records_before_it(world: World) -> None:
    await world.run([A])
    await world.process({SOURCE: [record(3, b"a")]})
    world.ends.end = 10  # where the fake output says that the changelog ends
    world.output.problem = MetadataTimeoutError("no broker answers")
    await world.process({SOURCE: [record(4, b"a")]})
    world.output.problem = None
    await world.run_until_idle()
    assert world.output.commits == [{SOURCE: 4}]
    assert (world.state(A), world.crashes) == (TaskState.RUNNING, [])


async def test_a_processor_that_raises_ends_the_instance_but_not_other_tasks(
    world: World,
) -> None:
    await world.run([A, B])
    other = TopicPartition("words", 1)
    found = {SOURCE: [record(3, b"boom")], other: [record(3, b"a")]}
    await world.process(found)
    (error,) = world.crashes
    assert isinstance(error, ProcessingError)
    assert "the record at words-0, offset 3, cannot be processed: ZeroDivisionError: boom" in str(
        error
    )
    await world.commit()
    assert (world.output.commits, world.output.changes) == ([{other: 4}], [{b"a": b"1"}])


async def test_a_task_revoked_while_restoring_is_closed(world: World) -> None:
    world.ends.end = 5
    await world.run([A])
    task = world.manager.tasks[A]
    await world.run([], [A])
    task.task_stores[0].reached(5, 5)
    await world.run_until_idle()
    assert world.state(A) is TaskState.STANDBY
    assert world.log == ["committed", "ends"]


async def test_the_shutdown_ends_the_output_and_ignores_assignments(world: World) -> None:
    await world.run([A])
    await world.manager.end_work()
    assert world.log[-1] == "stop"
    await world.run([A], [B])
    assert world.state(A) is TaskState.STANDBY


async def test_tasks_on_disk_are_opened_before_joining(world: World) -> None:
    """Opening takes its time, in which the task still runs where it was."""
    on_disk(world.directory, A, 4)
    await world.manager.open_stores([A])
    prepared = world.manager.tasks[A]
    assert (prepared.state, prepared.position) == (TaskState.CREATED, 4)
    assert world.reader.followed == []
    await world.assign([A], [])
    assert world.manager.tasks[A] is prepared
    assert prepared.state is TaskState.RESTORING


async def test_a_prepared_task_that_is_not_assigned_is_closed(world: World) -> None:
    await world.manager.open_stores([A])
    await world.assign([], [B])
    assert world.manager.tasks.keys() == {B}


async def test_running_tasks_continue_before_other_stores_are_opened(world: World) -> None:
    await world.run([A])
    world.manager.assign(sources([A]), [B])
    assert world.manager.tasks.keys() == {A}
    await world.manager.open()
    assert world.state(B) is TaskState.STANDBY


async def test_an_error_of_opening_a_store_is_raised_after_the_others_are_open(
    world: World,
) -> None:
    on_disk(world.directory, A, 4, "others")
    world.manager.assign({}, [A, B])
    with pytest.raises(StateStoreError, match="'others', which task 0_0"):
        await world.manager.open()
    assert world.manager.tasks.keys() == {B}, "it would stay open"


async def test_a_store_that_cannot_be_closed_ends_the_instance(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.assign([], [A])
    error = StateStoreError("no space")

    def full(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(StoreDirectory, "write_checkpoint", full)
    await world.run([])
    assert world.crashes == [error]
    with pytest.raises(StateStoreError, match="no space"):
        world.manager.close()
    world.manager._store_closings.clear()


async def test_a_store_is_opened_again_when_it_is_closed(tmp_path: Path) -> None:
    """With real threads: RocksDB can be opened only once at a time."""
    with ThreadPoolExecutor(2) as disk:
        world = World(tmp_path, disk)
        await world.assign([], [A, B])
        for _ in range(20):
            await world.assign([], [])
            await world.assign([], [A, B])
        assert world.crashes == []
        world.manager.close()
        world.directory.close()


async def test_a_directory_is_in_use_until_its_store_is_closed(tmp_path: Path) -> None:
    """Or cleaning would take it away from under the store."""
    may_go_on = threading.Event()
    with ThreadPoolExecutor(1) as disk:
        world = World(tmp_path, disk)
        disk.submit(may_go_on.wait)
        opening = asyncio.create_task(world.assign([], [A]))
        await world.run_until_idle()
        assert world.manager.tasks == {}
        assert world.manager.in_use() == {A}
        may_go_on.set()
        await opening
        assert world.manager.in_use() == {A}
        may_go_on.clear()
        disk.submit(may_go_on.wait)
        world.manager.assign({}, [])
        assert world.manager.tasks == {}
        assert world.manager.in_use() == {A}
        may_go_on.set()
        world.manager.close()
        assert world.manager.in_use() == set()
        world.directory.close()


async def test_few_large_records_wait(world: World) -> None:
    await world.run([A])
    world.inputs.rows = 2
    world.manager._may_work.clear()
    world.manager.deliver({SOURCE: [record(8, b"a")]})
    assert world.manager.wanted_partitions() == {SOURCE}
    world.manager.deliver({SOURCE: [record(9, b"a")]})
    assert world.manager.wanted_partitions() == set()
    world.manager._may_work.set()
    await world.run_until_idle()
    assert world.manager.wanted_partitions() == {SOURCE}


async def test_state_without_committed_offsets_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that were counted are counted again."""
    world.ends.end = 9
    await world.assign([A], [])
    (store,) = world.manager.tasks[A].task_stores
    store.reached(9, 9)
    await world.run_until_idle()
    assert world.state(A) is TaskState.RUNNING
    assert "task 0_0: the group has no committed offset of words-0" in caplog.text
