"""The changelog reader on the fake cluster."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import AuthorizationError
from kafkaclient.reader import Reader
from kafkaclient.streams import TaskId
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes, ChangelogReader
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.runtime.task import Task
from kafkaclient.streams.state_directory import TaskDirectory
from kafkaclient.streams.tasks import TaskEvent
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.records import BatchBuilder
from tests.streams.fakes import FakeOutput, InlineDisk, counting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

TOPIC = "app-counts-changelog"


def batch(*pairs: tuple[bytes, bytes | None], transactional: bool = False) -> bytes:
    builder = BatchBuilder(2**26)
    for key, value in pairs:
        builder.append(1000, key, value, [])
    builder.seal()
    if transactional:
        builder.stamp(1, 0, 0, True)
    return bytes(builder.buffer())


class World:
    """A changelog of two partitions with their tasks."""

    def __init__(self, path: Path) -> None:
        self.fake = FakeCluster(brokers=1)
        self.fake.round_trip_s = 0.001
        self.fake.create_topic(TOPIC, 2)
        self.lags: list[tuple[TaskId, int | None]] = []
        self.a, self.b = (
            Task(
                TaskId(0, number),
                counting(),
                TaskDirectory(path / f"0_{number}"),
                InlineDisk(),
                FakeOutput(),
            )
            for number in (0, 1)
        )
        self.reader: ChangelogReader
        self.running: asyncio.Task[None]

    def write(self, partition: int, *pairs: tuple[bytes, bytes | None], **more: bool) -> None:
        self.fake.append(TOPIC, partition, batch(*pairs, **more))

    def trim(self, partition: int, offset: int) -> None:
        self.fake.delete_records(TOPIC, partition, offset)

    async def settle(self) -> None:
        await asyncio.sleep(1)
        if self.running.done():
            self.running.result()


@asynccontextmanager
async def world(path: Path) -> AsyncIterator[World]:
    made = World(path)
    options: dict[str, Any] = {"isolation_level": "read_committed", "fetch_max_wait_ms": 100}
    async with Reader(made.fake.bootstrap, dialer=made.fake, rng=Random(1), **options) as reader:
        made.reader = ChangelogReader(
            reader, lambda task, lag: made.lags.append((task, lag)), Observer()
        )
        made.running = asyncio.create_task(made.reader.run())
        try:
            yield made
        finally:
            made.running.cancel()
            await asyncio.wait({made.running})
    made.a.close()
    made.b.close()


def story(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """A test in virtual time."""

    def run(tmp_path: Path) -> None:
        async def main() -> None:
            async with world(tmp_path) as made:
                await test(made)

        run_virtual(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@story
async def test_changes_are_applied_and_lags_reported(world: World) -> None:
    world.write(0, (b"k", b"1"), (b"l", b"1"), (b"k", b"2"), (b"l", None))
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a])
    await world.settle()
    assert (world.a.stores["counts"].get(b"k"), world.a.stores["counts"].get(b"l")) == (b"2", None)
    assert (world.a.position, world.a.lag, world.lags[-1]) == (4, 0, (world.a.id, 0))
    assert world.reader.bytes_read == ChangelogBytes(0, 7)


@story
async def test_the_end_is_where_the_oldest_open_transaction_begins(world: World) -> None:
    world.write(0, (b"k", b"1"))
    world.write(0, (b"k", b"2"), transactional=True)
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a])
    await world.settle()
    assert (world.a.position, world.a.lag, world.a.stores["counts"].get(b"k")) == (1, 0, b"1")
    inspect(world.fake).partition(TOPIC, 0).log.end_transaction(1, 0, commit=True)
    await world.settle()
    assert (world.a.position, world.a.lag) == (3, 0), "a marker is behind the change"
    assert world.a.stores["counts"].get(b"k") == b"2"


@story
async def test_standbys_pause_while_a_task_is_restoring(world: World) -> None:
    world.write(0, (b"k", b"1"))
    world.write(1, (b"k", b"1"))
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.b.advance(TaskEvent.ASSIGNED_ACTIVE)
    world.reader.follow([world.a, world.b])
    await world.settle()
    assert (world.a.position, world.b.position) == (0, 1)
    world.reader.follow([world.a])
    await world.settle()
    assert (world.a.position, world.b.position) == (1, 1)
    assert world.reader.bytes_read == ChangelogBytes(2, 2)


@story
async def test_a_returning_task_is_read_from_its_current_position(world: World) -> None:
    """It ran meanwhile, and its store has all changes up to its position."""
    world.write(0, (b"k", b"1"))
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.b.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a, world.b])
    await world.settle()
    world.a.advance(TaskEvent.ASSIGNED_ACTIVE)
    world.a.advance(TaskEvent.RESTORED)
    world.reader.follow([world.b])
    world.write(0, (b"own", b"1"), (b"own", b"2"), (b"others", b"3"))
    world.a.task_stores[0].reached(3, None)
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a, world.b])
    await world.settle()
    assert (world.a.stores["counts"].get(b"own"), world.a.stores["counts"].get(b"others")) == (
        None,
        b"3",
    )
    assert (world.a.position, world.a.lag) == (4, 0)


@story
async def test_a_large_batch_does_not_block_other_tasks(world: World) -> None:
    world.write(0, *((b"%d" % n, b"1") for n in range(5_000)))
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    sizes, turns = [], []

    def restore(changes: list[Any]) -> None:
        sizes.append(len(changes))
        asyncio.get_running_loop().call_soon(lambda: turns.append(len(sizes)))

    world.a.task_stores[0].restore = restore  # type: ignore[method-assign, assignment]
    world.reader.follow([world.a])
    await world.settle()
    assert (sizes, turns) == ([1_000] * 5, [1, 2, 3, 4, 5])
    assert world.a.position == 5_000


@pytest.mark.parametrize("how", ["leaves", "starts over"])
def test_a_task_that_changes_in_the_middle_of_a_batch(tmp_path: Path, how: str) -> None:
    @story
    async def change(world: World) -> None:
        world.write(0, *((b"%d" % n, b"1") for n in range(2_500)))
        task = world.a
        task.advance(TaskEvent.ASSIGNED_STANDBY)
        task.task_stores[0].reached(100, None)
        whole = task.task_stores[0].restore

        def restore(changes: list[Any]) -> None:
            whole(changes)
            task.task_stores[0].restore = whole  # type: ignore[method-assign]
            leave = (lambda: world.reader.follow([])) if how == "leaves" else again
            asyncio.get_running_loop().call_soon(leave)

        def again() -> None:
            task.task_stores[0].start_over(0, "has no such offset")

        task.task_stores[0].restore = restore  # type: ignore[method-assign, assignment]
        world.reader.follow([task])
        await world.settle()
        if how == "leaves":
            assert (task.position, task.stores["counts"].get(b"2400")) == (100, None)
        else:
            assert task.position == 2_500
            assert all(task.stores["counts"].get(b"%d" % n) for n in range(2_500))

    change(tmp_path)


@story
async def test_no_fetch_without_tasks(world: World) -> None:
    world.reader.follow([])
    await world.settle()
    assert world.fake.requests_of(ApiKey.FETCH) == []


@story
async def test_a_task_with_an_offset_out_of_range_starts_over(world: World) -> None:
    """The other task goes on."""
    for n in range(50):
        world.write(0, (b"%d" % n, b"1"))
    world.trim(0, 40)
    world.write(1, (b"k", b"1"))
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.b.advance(TaskEvent.ASSIGNED_STANDBY)
    world.a.task_stores[0].restore([(b"old", b"1")])
    world.a.task_stores[0].reached(8, None)
    world.reader.follow([world.a, world.b])
    await world.settle()
    assert (world.a.stores["counts"].get(b"old"), world.a.stores["counts"].get(b"40")) == (
        None,
        b"1",
    )
    assert (world.a.position, world.b.position) == (50, 1)


@story
async def test_a_changelog_that_was_created_again_is_read_from_its_beginning(
    world: World,
) -> None:
    world.write(0, (b"old", b"1"), (b"old", b"2"))
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a])
    await world.settle()
    world.fake.delete_topic(TOPIC)
    await world.settle()
    world.fake.create_topic(TOPIC, 2)
    world.write(0, (b"new", b"1"), (b"new", b"1"), (b"new", b"1"))
    await asyncio.sleep(30)
    assert (world.a.stores["counts"].get(b"old"), world.a.stores["counts"].get(b"new")) == (
        None,
        b"1",
    )
    assert world.a.position == 3


@story
async def test_a_changelog_that_is_gone_for_long_is_not_the_end(world: World) -> None:
    world.write(0, (b"k", b"1"))
    world.write(1, (b"k", b"1"))
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a])
    await world.settle()
    world.fake.stop_broker(0)
    await asyncio.sleep(200)
    world.fake.start_broker(0)
    world.write(0, (b"k", b"2"))
    await asyncio.sleep(10)
    assert (world.a.position, world.a.stores["counts"].get(b"k")) == (2, b"2")


@story
async def test_a_changelog_that_must_not_be_read_ends_the_instance(world: World) -> None:
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.fake.control(ApiKey.FETCH, 29)
    world.reader.follow([world.a])
    with pytest.raises(AuthorizationError, match="Read"):
        await world.settle()
