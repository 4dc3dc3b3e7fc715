"""The changelog reader with a fake consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition as ConsumerPartition
from aiokafka.errors import OffsetOutOfRangeError

from kafkaclient.streams import TaskId
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes, ChangelogReader
from kafkaclient.streams.runtime.task import Task
from kafkaclient.streams.runtime.task_states import TaskEvent
from kafkaclient.streams.state.directory import TaskDirectory
from tests.streams.fakes import FakeOutput, InlineDisk, counting, record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

A, B = (ConsumerPartition("app-counts-changelog", number) for number in (0, 1))


class FakeConsumer:
    """``batches`` are what ``getmany`` gives, or raises; ``positions`` follow them."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[Any] = asyncio.Queue()
        self.assigned: list[ConsumerPartition] = []
        self.paused: set[ConsumerPartition] = set()
        self.positions: dict[ConsumerPartition, int] = {}
        self.stable: dict[ConsumerPartition, int | None] = {}
        self.high: dict[ConsumerPartition, int | None] = {}

    def assign(self, partitions: list[ConsumerPartition]) -> None:
        self.assigned, self.paused, self.positions = partitions, set(), {}
        self.stable, self.high = {}, {}

    def seek(self, partition: ConsumerPartition, offset: int) -> None:
        self.positions[partition] = offset

    def pause(self, partition: ConsumerPartition) -> None:
        self.paused.add(partition)

    def resume(self, partition: ConsumerPartition) -> None:
        self.paused.discard(partition)

    async def getmany(self, **options: int) -> dict[ConsumerPartition, list[Any]]:
        batch = await self.batches.get()
        if isinstance(batch, Exception):
            raise batch
        return self._given(batch)

    def _given(
        self, batch: dict[ConsumerPartition, list[Any]]
    ) -> dict[ConsumerPartition, list[Any]]:
        for partition, records in batch.items():
            self.positions[partition] = records[-1].offset + 2  # over a transaction's marker
        return batch

    async def getmany_at_once(self, **options: int) -> dict[ConsumerPartition, list[Any]]:
        return self._given(self.batches.get_nowait())

    async def position(self, partition: ConsumerPartition) -> int:
        return self.positions[partition]

    def last_stable_offset(self, partition: ConsumerPartition) -> int | None:
        return self.stable.get(partition)

    def highwater(self, partition: ConsumerPartition) -> int | None:
        return self.high.get(partition)

    async def beginning_offsets(
        self, partitions: list[ConsumerPartition]
    ) -> dict[ConsumerPartition, int]:
        return dict.fromkeys(partitions, 40)


class World:
    def __init__(self, path: Path) -> None:
        self.consumer = FakeConsumer()
        self.lags: list[tuple[TaskId, int | None]] = []
        self.reader = ChangelogReader(
            self.consumer, lambda task, lag: self.lags.append((task, lag))
        )
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
        self.running = asyncio.create_task(self.reader.run())

    async def give(self, batch: Any) -> None:
        self.consumer.batches.put_nowait(batch)
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    made.running.cancel()
    made.a.close()
    made.b.close()


async def test_changes_are_applied_and_lags_reported(world: World) -> None:
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a])
    world.consumer.high[A] = 100
    await world.give({A: [record(0, b"k", b"1"), record(5, b"k", b"2")]})
    assert (world.a.store.get(b"k"), world.a.position) == (b"2", 7)
    world.consumer.stable[A] = 9  # a transaction is open from here on
    await world.give({})
    assert world.lags == [(world.a.id, 93), (world.a.id, 2)]


async def test_standbys_pause_while_a_task_is_restoring(world: World) -> None:
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.b.advance(TaskEvent.ASSIGNED_ACTIVE)
    world.reader.follow([world.a, world.b])
    assert (world.consumer.assigned, world.consumer.paused) == ([A, B], {A})
    world.reader.follow([world.a])
    assert world.consumer.paused == {B}


async def test_a_fetch_stays_valid_when_other_tasks_are_removed(
    world: World,
) -> None:
    """A task that is restored does not cost those that are not yet a fetch."""
    world.a.advance(TaskEvent.ASSIGNED_ACTIVE)
    world.b.advance(TaskEvent.ASSIGNED_ACTIVE)
    world.reader.follow([world.a, world.b])
    await asyncio.sleep(0)
    assigned = world.consumer.assigned
    world.reader.follow([world.a])
    await world.give({A: [record(0, b"k", b"1")]})
    assert (world.a.store.get(b"k"), world.a.position) == (b"1", 2)
    assert world.consumer.assigned is assigned


async def test_records_fetched_for_a_removed_task_are_dropped(world: World) -> None:
    """The fetch was under way when the task left."""
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.b.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a, world.b])
    await asyncio.sleep(0)
    world.reader.follow([world.b])
    await world.give({A: [record(0, b"k", b"1")], B: [record(0, b"k", b"2")]})
    assert not world.running.done()
    assert (world.a.store.get(b"k"), world.b.store.get(b"k")) == (None, b"2")


async def test_a_returning_task_is_read_from_its_current_position(world: World) -> None:
    """It ran meanwhile: neither the consumer's position nor the end it knew are right any more."""
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.b.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a, world.b])
    world.consumer.high[A] = 5
    await world.give({A: [record(3, b"k", b"1")]})
    world.a.advance(TaskEvent.ASSIGNED_ACTIVE)
    world.a.advance(TaskEvent.RESTORED)
    world.reader.follow([world.b])
    world.a.reached(9, None)
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a, world.b])
    world.lags.clear()
    assert world.consumer.positions == {A: 9, B: 0}
    await world.give({A: [record(9, b"k", b"2")]})
    assert (world.a.position, world.lags) == (11, [])


async def test_other_asyncio_tasks_run_while_there_is_much_to_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's consumer does not wait when it has something."""
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a])
    for offset in range(100):
        world.consumer.batches.put_nowait({A: [record(offset, b"k", b"1")]})
    monkeypatch.setattr(world.consumer, "getmany", world.consumer.getmany_at_once)
    for _ in range(10):
        await asyncio.sleep(0)
    assert 0 < world.a.position < 20


async def test_no_poll_without_tasks(world: World) -> None:
    world.reader.follow([])
    await world.give({A: [record(0, b"k", b"1")]})
    assert world.consumer.batches.qsize() == 1


async def test_a_task_with_an_offset_out_of_range_starts_over(world: World) -> None:
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.a.restore([record(7, b"old", b"1")])
    world.a.reached(8, None)
    world.reader.follow([world.a])
    await world.give(OffsetOutOfRangeError({A: 8}))
    assert world.consumer.positions == {A: 40}
    await world.give({A: [record(40, b"new", b"1")]})
    assert (world.a.store.get(b"old"), world.a.store.get(b"new")) == (None, b"1")
    assert world.a.position == 42


async def test_an_outdated_offset_out_of_range_restarts_no_task(world: World) -> None:
    """The consumer reports a partition of its previous assignment."""
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.a.restore([record(7, b"kept", b"1")])
    world.a.reached(9, None)
    world.reader.follow([world.a])
    await world.give(OffsetOutOfRangeError({A: 8, B: 0}))
    assert (world.a.store.get(b"kept"), world.a.position) == (b"1", 9)
    assert world.consumer.positions == {A: 9}


async def test_bytes_are_counted_as_restored_or_followed(world: World) -> None:
    world.a.advance(TaskEvent.ASSIGNED_STANDBY)
    world.reader.follow([world.a])
    await world.give({A: [record(0, b"k", b"123"), record(1, b"k", None)]})
    assert world.reader.bytes_read == (0, 5)
    world.a.advance(TaskEvent.ASSIGNED_ACTIVE)
    await world.give({A: [record(2, b"key", b"1")]})
    assert world.reader.bytes_read == ChangelogBytes(restored=4, followed=5)


async def test_records_fetched_before_a_task_starts_over_are_not_applied(world: World) -> None:
    world.a.advance(TaskEvent.ASSIGNED_ACTIVE)
    world.a.restore([record(7, b"old", b"1")])
    world.a.reached(8, None)
    world.reader.follow([world.a])
    await asyncio.sleep(0)
    restored = asyncio.create_task(world.a.wait_until_restored(3))
    await asyncio.sleep(0)
    await world.give({A: [record(8, b"old", b"2")]})
    assert (world.a.position, world.a.store.get(b"old")) == (0, None)
    assert world.consumer.positions == {A: 0}
    await world.give({A: [record(1, b"new", b"1")]})
    await restored
    assert world.a.store.get(b"new") == b"1"
