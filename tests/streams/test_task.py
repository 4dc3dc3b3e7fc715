"""One task: processing, commits, restoring and checkpoints."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafkaclient.errors import ProcessingError, StateStoreError
from kafkaclient.streams import TaskId
from kafkaclient.streams.runtime.inputs import OffsetReset
from kafkaclient.streams.runtime.task import Task, TaskOptions
from kafkaclient.streams.state_directory import ChangelogTopic, StoreDirectory, TaskDirectory
from kafkaclient.streams.tasks import TaskEvent, TaskState
from kafkaclient.types import TopicPartition
from tests.streams.fakes import FakeOutput, InlineDisk, counting, record, topology_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ID = TaskId(0, 0)
CHANGELOG = TopicPartition("app-counts-changelog", 0)


@pytest.fixture
def directory(tmp_path: Path) -> TaskDirectory:
    return TaskDirectory(tmp_path / "0_0")


@pytest.fixture
def task(directory: TaskDirectory) -> Iterator[Task]:
    made = Task(ID, counting(), directory, InlineDisk(), FakeOutput())
    yield made
    made.close()


def saved(directory: TaskDirectory) -> int | None:
    checkpoint = directory.store("counts").checkpoint()
    return None if checkpoint is None else checkpoint.offset


def run(task: Task) -> None:
    task.take_sources([TopicPartition("words", task.id.partition)])
    task.advance(TaskEvent.ASSIGNED_ACTIVE)
    task.advance(TaskEvent.RESTORED)


async def process(task: Task, *records: Any) -> list[tuple[Any, ...]]:
    """What the records emit."""
    emitted: list[tuple[Any, ...]] = []
    for each in records:
        if results := await task.process(each):
            emitted += results[0]
            task.record_done(*results[1:])
    return emitted


def commit(task: Task, position: int | None = 10) -> tuple[dict[bytes, bytes | None], int]:
    """The changes and the offset that are committed."""
    work = task.work()
    (changelog,) = work.changes
    task.on_committed(task.offsets, {changelog: position})
    return dict(work.changes[changelog]), work.offsets[task.sources[0]]


async def test_a_commit_keeps_changes_records_and_offset(task: Task) -> None:
    run(task)
    emitted = await process(task, record(5, b"a"), record(6, b"a"), record(9, b"b"))
    assert [each[:3] for each in emitted][1] == ("counts", b"2", b"a")
    assert commit(task) == ({b"a": b"2", b"b": b"1"}, 10)
    assert (task.position, task.stores["counts"].changes) == (10, {})
    assert commit(task, None) == ({}, 10)
    await process(task, record(10, b"a"))
    assert (task.position, task.stores["counts"].get(b"a")) == (10, b"3")


async def test_the_committed_offset_is_the_commits_not_the_tasks(task: Task) -> None:
    """Records before it are deleted from repartition topics."""
    run(task)
    await process(task, record(5, b"a"))
    work = task.work()
    await process(task, record(6, b"a"))
    task.on_committed(work.offsets, {})
    assert (list(task.offsets.values()), list(task.committed_offsets.values())) == ([7], [6])


async def test_the_topics_id_changes_with_the_position(task: Task) -> None:
    """Else a commit between them would have the old topic's offset count in the new topic."""
    run(task)
    (source,) = task.sources
    old, new = UUID(int=1), UUID(int=2)
    task.start_at({source: 5}, {"words": old})
    await process(task, record(5, b"a"))
    assert await task.process(OffsetReset("words", 0, new)) == ((), source, 0)
    assert task.work()[::2] == ({source: 6}, {source: old})
    task.record_done(source, 0)
    assert task.work()[::2] == ({source: 0}, {source: new})
    await process(task, record(0, b"a"))
    assert task.work()[::2] == ({source: 1}, {source: new})


async def test_a_commit_contains_nothing_of_a_record_in_progress(
    directory: TaskDirectory,
) -> None:
    may_return = asyncio.Event()

    async def process_slowly(record: Any, store: Any, emit: Any) -> None:
        store[b"a"] = record.value
        store[record.value] = b""
        if record.offset == 1:
            await may_return.wait()

    task = Task(ID, topology_of(process_slowly), directory, InlineDisk(), FakeOutput())
    run(task)
    await process(task, record(0, b"", b"0"))
    second = asyncio.create_task(process(task, record(1, b"", b"1")))
    await asyncio.sleep(0)
    assert commit(task) == ({b"a": b"0", b"0": b""}, 1)
    assert commit(task) == ({}, 1)
    assert task.stores["counts"].get(b"a") == b"1"
    may_return.set()
    await second
    assert commit(task) == ({b"a": b"1", b"1": b""}, 2)
    assert task.stores["counts"].changes == {}
    task.close()


@pytest.mark.parametrize("is_blocking", [True, False])
async def test_a_blocked_event_loop_is_logged(
    directory: TaskDirectory, caplog: pytest.LogCaptureFixture, *, is_blocking: bool
) -> None:
    now = 100.0

    async def process_slowly(_record: Any, _store: Any, _emit: Any) -> None:
        nonlocal now
        for _ in range(4):
            now += 3
            if not is_blocking:
                task.check_slow_record()

    topology = topology_of(process_slowly)
    options = TaskOptions(clock=lambda: now, session_timeout_s=6.0)
    task = Task(ID, topology, directory, InlineDisk(), FakeOutput(), options)
    run(task)
    await process(task, record(5, b"a"))
    message = (
        "the record at words-0, offset 5, was processed, the event loop was blocked for 12.0 s"
    )
    assert (f"{message}, longer than session.timeout.ms, 6 s" in caplog.text) == is_blocking
    task.close()


async def test_a_failed_commit_drops_the_changes(task: Task) -> None:
    run(task)
    await process(task, record(0, b"a"))
    task.advance(TaskEvent.FAILED)
    assert task.state is TaskState.RESTORING
    assert (task.stores["counts"].get(b"a"), task.position) == (None, 0)


async def test_a_failed_record_leaves_no_output(task: Task) -> None:
    run(task)
    with pytest.raises(ProcessingError):
        await process(task, record(0, b"a"), record(1, b"boom"))
    task.advance(TaskEvent.REVOKED)
    assert (task.stores["counts"].get(b"a"), task.stores["counts"].get(b"boom")) == (None, None)


async def test_a_change_that_is_too_large_fails_its_record(task: Task) -> None:
    run(task)
    with pytest.raises(
        ProcessingError, match=r"words-0, offset 3, .*store 'counts': .*key b'kkk.* at most 1000"
    ):
        await process(task, record(3, b"k" * 2000))


async def test_restoring_ends_at_the_changelogs_end(task: Task) -> None:
    task.advance(TaskEvent.ASSIGNED_ACTIVE)
    waiting = asyncio.create_task(task.wait_until_restored({CHANGELOG: 3}))
    await asyncio.sleep(0)
    task.task_stores[0].restore([(b"a", b"1"), (b"b", b"1")])
    task.task_stores[0].reached(2, 3)
    await asyncio.sleep(0)
    assert (waiting.done(), task.lag) == (False, 1)
    task.task_stores[0].restore([(b"a", None)])
    task.task_stores[0].reached(4, 3)  # over a transaction's marker
    await waiting
    assert (task.stores["counts"].get(b"a"), task.stores["counts"].get(b"b"), task.lag) == (
        None,
        b"1",
        0,
    )


async def test_an_empty_changelog_is_restored_at_once(task: Task) -> None:
    task.advance(TaskEvent.ASSIGNED_ACTIVE)
    async with asyncio.timeout(20):
        await task.wait_until_restored({CHANGELOG: 0})


def test_a_closed_task_reopens_at_its_position(directory: TaskDirectory) -> None:
    task = Task(ID, counting(), directory, InlineDisk(), FakeOutput())
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    task.task_stores[0].restore([(b"a", b"1")])
    task.task_stores[0].reached(1, 1)
    task.close()
    task = Task(ID, counting(), directory, InlineDisk(), FakeOutput())
    assert (task.position, task.stores["counts"].get(b"a")) == (1, b"1")
    task.close()


def test_a_killed_task_reopens_at_its_last_checkpoint(directory: TaskDirectory) -> None:
    task = Task(ID, counting(), directory, InlineDisk(), FakeOutput())
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    task.task_stores[0].restore([(b"a", b"1")])
    task.task_stores[0].reached(9_999, 20_000)
    assert directory.store("counts").checkpoint() is None
    task.task_stores[0].reached(10_000, 20_000)
    assert saved(directory) == 10_000
    task.task_stores[0].reached(30_000, 1_000_000)
    assert saved(directory) == 10_000, "flushes slow a long restore down"
    task.task_stores[0].reached(210_000, 1_000_000)
    assert saved(directory) == 210_000
    task.close()


def test_a_store_beyond_its_changelog_starts_over(
    task: Task, directory: TaskDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    task.task_stores[0].restore([(b"a", b"1")])
    task.task_stores[0].reached(10_000, 10_000)
    task.task_stores[0].start_over(5, "has no offset 10000")
    assert (task.position, task.stores["counts"].get(b"a")) == (5, None)
    assert directory.store("counts").checkpoint() is None
    assert "app-counts-changelog-0 has no offset 10000" in caplog.text
    task.task_stores[0].restore([(b"b", b"1")])
    assert task.stores["counts"].get(b"b") == b"1"


async def test_a_store_that_starts_over_does_not_block_the_event_loop(
    directory: TaskDirectory,
) -> None:
    """Heartbeats would stop while a disk is slow. A cancelled wait changes nothing."""
    may_go_on = threading.Event()
    positions = []

    async def passes() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    with ThreadPoolExecutor(1) as disk:
        task = Task(ID, counting(), directory, disk, FakeOutput())
        (store,) = task.task_stores
        task.advance(TaskEvent.ASSIGNED_ACTIVE)
        store.restore([(b"a", b"1")])
        store.reached(9, 9)
        disk.submit(may_go_on.wait)
        for ends in ({CHANGELOG: 0}, {CHANGELOG: 2}):
            waiting = asyncio.create_task(task.wait_until_restored(ends))
            await passes()
            positions.append((task.position, waiting.done()))
            waiting.cancel()
            await passes()
        waiting = asyncio.create_task(task.wait_until_restored({CHANGELOG: 0}))
        await passes()
        positions.append((task.position, waiting.done()))
        may_go_on.set()
        await waiting
        assert positions == [(0, False)] * 3
        assert task.stores["counts"].get(b"a") is None
        task.close()


def test_a_checkpoint_has_the_position_at_its_start(directory: TaskDirectory) -> None:
    """The disk may take long, and the task goes on meanwhile."""

    class LaterDisk(InlineDisk):
        def __init__(self) -> None:
            self.work: list[Callable[[], None]] = []

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            self.work.append(lambda: future.set_result(fn(*args, **kwargs)))
            return future

    disk = LaterDisk()
    task = Task(ID, counting(), directory, disk, FakeOutput())
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    task.task_stores[0].reached(10_000, 10_000)
    task.task_stores[0].reached(30_000, 30_000)
    (work,) = disk.work  # one at a time
    work()
    assert saved(directory) == 10_000
    task.task_stores[0].reached(30_001, 30_001)
    disk.work[1]()
    assert saved(directory) == 30_001
    task.task_stores[0].reached(30_002, 30_002)
    task.close()
    assert saved(directory) == 30_002


def test_a_failed_checkpoint_raises(
    directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise StateStoreError("no space")

    task = Task(ID, counting(), directory, InlineDisk(), FakeOutput())
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    with monkeypatch.context() as patch:
        patch.setattr(StoreDirectory, "write_checkpoint", full)
        task.task_stores[0].reached(10_000, 10_000)
        with pytest.raises(StateStoreError, match="no space"):
            task.task_stores[0].reached(10_001, 10_001)
    task.close()


async def test_a_checkpoint_beyond_the_changelogs_end_is_not_used(
    task: Task, directory: TaskDirectory
) -> None:
    """The changelog was deleted and created again, or has lost its end."""
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    task.task_stores[0].restore([(b"old", b"1")])
    task.task_stores[0].reached(500, 500)
    task.advance(TaskEvent.ASSIGNED_ACTIVE)
    waiting = asyncio.create_task(task.wait_until_restored({CHANGELOG: 3}))
    for _ in range(3):
        await asyncio.sleep(0)
    assert (waiting.done(), task.position, task.stores["counts"].get(b"old")) == (False, 0, None)
    task.task_stores[0].restore([(b"new", b"1")])
    task.task_stores[0].reached(3, 3)
    await waiting
    assert task.stores["counts"].get(b"new") == b"1"


def test_a_checkpoint_is_renewed_without_changes(directory: TaskDirectory) -> None:
    now = 1_000_000.0
    changelog = ChangelogTopic(UUID(int=1), 3600.0)
    options = TaskOptions(changelogs={"counts": changelog}, wall=lambda: now)
    task = Task(ID, counting(), directory, InlineDisk(), FakeOutput(), options)
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    task.task_stores[0].reached(5, 5)
    assert directory.store("counts").checkpoint() is None
    now += 1000
    task.refresh_checkpoint()
    assert directory.store("counts").checkpoint() is None, "it is not known to be at the end"
    task.task_stores[0].reached(5, 5)
    assert directory.store("counts").checkpoint() == (5, UUID(int=1), now)
    run(task)
    now += 1000
    task.refresh_checkpoint()
    assert directory.store("counts").checkpoint() == (5, UUID(int=1), now)
    task.close()
    now += 3599
    task = Task(ID, counting(), directory, InlineDisk(), FakeOutput(), options)
    assert task.position == 5
    task.advance(TaskEvent.ASSIGNED_STANDBY)
    task.task_stores[0].reached(6, 9)  # it lacks what came meanwhile, deletions among it
    task.close()
    now += 2
    task = Task(ID, counting(), directory, InlineDisk(), FakeOutput(), options)
    assert task.position == 0
    task.close()


def test_a_recreated_changelog_invalidates_the_checkpoint(directory: TaskDirectory) -> None:
    def opened(topic_id: int) -> Task:
        changelog = ChangelogTopic(UUID(int=topic_id), 3600.0)
        options = TaskOptions(changelogs={"counts": changelog})
        return Task(ID, counting(), directory, InlineDisk(), FakeOutput(), options)

    for topic_id, position in ((1, 0), (1, 1), (2, 0)):
        task = opened(topic_id)
        assert (task.position, task.stores["counts"].get(b"a")) == (
            position,
            b"1" if position else None,
        )
        task.advance(TaskEvent.ASSIGNED_STANDBY)
        task.task_stores[0].restore([(b"a", b"1")])
        task.task_stores[0].reached(1, 1)
        task.close()
