"""An instance in virtual time: its tasks and their commits, with brokers in memory."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    BufferFullError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from kafkaclient.streams import TaskId
from kafkaclient.streams.metrics import AppState
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.state_directory import StateDirectory
from kafkaclient.streams.tasks import TaskState
from tests.streams.fakes import (
    FakeDelivery,
    FakeEnds,
    FakeInputs,
    checked,
    new_manager,
    record,
    sources,
    topology_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kafkaclient.streams.runtime.outputs import OutgoingRecord, Work
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

WORKER = "kafkaclient-work-"
PATIENCE = 1.0
TOO_LARGE = RecordTooLargeError("too large")
TIMEOUT = 2.0
"""Seconds after which a transaction is aborted."""


class Partition:
    """One task's data on brokers: its changelog, its offset, its emitted records."""

    def __init__(self, records: Sequence[Any]) -> None:
        self.records = records
        self.changelog: list[Any] = []
        self.offset: int | None = None
        self.emitted: list[tuple[Any, ...]] = []
        self.commits: list[tuple[float, int]] = []


class Brokers:
    """An output. Exactly once: a transaction takes effect as a whole, and not when it is too
    old."""

    is_transactional = True
    max_change_bytes = 1_000
    small_bytes = 10

    def __init__(self, partitions: Mapping[TaskId, Partition]) -> None:
        self.partitions = partitions
        self.pending: list[tuple[TaskId, OutgoingRecord]] = []
        self.began_at: float | None = None
        self.abort_code = 47
        """The error that brokers return for a transaction that they aborted."""
        self.problems: list[str] = []
        """The next commits fail: ``before`` or ``after`` they took effect."""
        self.refused: set[bytes] = set()
        """Values of emitted records that are too large."""
        self.transactions = 0
        self.is_running = False

    async def start(self) -> None:
        await asyncio.sleep(0.001)
        self.is_running = True

    async def stop(self) -> None:
        self.is_running = False
        self.pending, self.began_at = [], None

    async def abandon(self) -> None:
        await self.stop()

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        return checked(record)

    async def prepare(self, records: Iterable[OutgoingRecord]) -> None:
        """All topics exist."""

    async def begin(self) -> None:
        assert self.is_running

    async def send(self, record: OutgoingRecord) -> FakeDelivery:
        sent = self._send(record)
        await asyncio.sleep(0.003)
        return sent

    def send_nowait(self, record: OutgoingRecord) -> FakeDelivery:
        if record.value == b"2":
            raise BufferFullError("the buffer is full for a moment")
        return self._send(record)

    def _send(self, record: OutgoingRecord) -> FakeDelivery:
        assert self.is_running
        # The transaction begins for brokers with its first record.
        self.began_at = self.began_at or asyncio.get_running_loop().time()
        worker = asyncio.current_task()
        assert worker is not None
        self.pending.append((TaskId.parse(worker.get_name().removeprefix(WORKER)), record))
        return FakeDelivery(TOO_LARGE if record.value in self.refused else None)

    def _check_sizes(self, pending: Sequence[tuple[TaskId, OutgoingRecord]]) -> None:
        if any(record.value in self.refused for _, record in pending):
            raise TOO_LARGE

    async def commit(
        self, work: Sequence[Work], emitted: object, times_lost: int
    ) -> dict[TopicPartition, int]:
        assert self.is_running
        now = asyncio.get_running_loop().time()
        pending, self.pending = self.pending, []
        began_at, self.began_at = self.began_at, None
        if began_at is not None and now - began_at > TIMEOUT:
            cause = broker_error(self.abort_code)
            raise cause if cause.code == 47 else TransactionAbortableError("no") from cause
        await asyncio.sleep(0.002)
        assert self.pending == [], "sent while a transaction was being committed"
        problem = self.problems.pop() if self.problems else None
        if problem == "before":
            raise TransactionAbortableError("no")
        self._check_sizes(pending)
        self.transactions += 1
        positions = {}
        for offsets, changes, _ in work:
            for source, offset in offsets.items():
                partition = self.partitions[TaskId(0, source.partition)]
                partition.offset = offset
                partition.commits.append((now, offset))
            for changelog, found in changes.items():
                for key, value in found.items():
                    partition.changelog.append(record(len(partition.changelog), key, value))
                if found:
                    positions[changelog] = len(partition.changelog)
        for task, each in pending:
            self.partitions[task].emitted.append(each)
        if problem == "after":
            raise TransactionAbortableError("perhaps")
        return positions

    async def fetch_committed(
        self, sources: Sequence[TopicPartition], topic_ids: object
    ) -> dict[TopicPartition, int | None]:
        return {each: self.partitions[TaskId(0, each.partition)].offset for each in sources}


class Reader:
    """Restores each task immediately."""

    def __init__(self, partitions: Mapping[TaskId, Partition]) -> None:
        self.partitions = partitions

    def follow(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            asyncio.get_running_loop().call_soon(self._feed, task)

    def _feed(self, task: Task) -> None:
        if task.state in (TaskState.RESTORING, TaskState.STANDBY):
            changelog = self.partitions[task.id].changelog
            (store,) = task.task_stores
            store.restore((r.key, r.value) for r in changelog[store.position :])
            store.reached(len(changelog), len(changelog))


class Ends(FakeEnds):
    def __init__(self, partitions: Mapping[TaskId, Partition]) -> None:
        super().__init__([])
        self.partitions = partitions

    async def __call__(
        self, wanted: Iterable[TopicPartition], *, read_committed: bool = True
    ) -> dict[TopicPartition, int]:
        found = {}
        for partition in wanted:
            there = self.partitions[TaskId(0, partition.partition)]
            is_source = partition.topic == "words"
            found[partition] = len(there.records if is_source else there.changelog)
        return found


class World:
    """A manager for partitions of the topic ``words``, with an instance's fetch loop."""

    def __init__(self, path: Path, topology: Topology, feeds: Sequence[Sequence[Any]]) -> None:
        self.partitions = {TaskId(0, n): Partition(records) for n, records in enumerate(feeds)}
        self.crashes: list[BaseException] = []
        self.inputs = FakeInputs()
        self.inputs.first = 0
        self.directory = StateDirectory(path, time.monotonic)
        self.brokers = Brokers(self.partitions)
        clock = asyncio.get_running_loop().time
        self.observer = Observer(clock=clock)
        self.manager = new_manager(
            *(topology, self.directory, self.inputs, Reader(self.partitions)),
            *(Ends(self.partitions), self.brokers, self.crash),
            clock=clock,
            observer=self.observer,
        )
        self.fetching = asyncio.create_task(self.fetch())
        self.starting = asyncio.create_task(self.manager.committers.start())
        self.rebalancing = asyncio.Lock()
        self.active: Sequence[TaskId] = ()
        self.standby: Sequence[TaskId] = ()

    def failed_commits(self) -> float:
        found = self.observer.metrics.snapshot(AppState.RUNNING)
        return found.instance["failed-commit-total"]

    def crash(self, error: BaseException) -> None:
        self.manager.stop_work()
        self.crashes.append(error)

    async def fetch(self) -> None:
        while True:
            found = {}
            await asyncio.sleep(0.005)
            for source in self.manager.wanted_partitions() & self.inputs.positions.keys():
                position = self.inputs.positions[source]
                records = self.partitions[TaskId(0, source.partition)].records
                found[source] = [r for r in records if r.offset >= position][:20]
                if found[source]:
                    self.inputs.positions[source] = found[source][-1].offset + 1
            self.manager.deliver(found)

    async def rebalance(
        self, active: Sequence[TaskId] | None = None, standby: Sequence[TaskId] = ()
    ) -> float:
        """Returns how long the group waited for this instance."""
        async with self.rebalancing:
            if active is not None:
                self.active, self.standby = active, standby
            return await self._rebalance(self.active, self.standby)

    async def _rebalance(self, active: Sequence[TaskId], standby: Sequence[TaskId]) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.manager.give_up(self.manager.assign(sources(active), standby), PATIENCE)
        waited = loop.time() - began
        await asyncio.sleep(0.01)
        await self.manager.open()
        return waited

    async def done(self, task: TaskId) -> None:
        partition = self.partitions[task]
        async with asyncio.timeout(1_000):
            while partition.offset != partition.records[-1].offset + 1 and not self.crashes:
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        self.fetching.cancel()
        await asyncio.gather(self.fetching, return_exceptions=True)
        await self.starting
        await self.manager.end_work()
        self.manager.close()
        self.directory.close()


async def behave(record: Any, store: Any, emit: Any) -> None:
    """``record.value`` chooses the behavior. Changes and emitted records show how far it got."""
    what, _, seconds = record.value.partition(b" ")
    count = int(store.get(record.key) or 0) + 1
    store[record.key] = b"%d" % count
    if what == b"late":
        await asyncio.sleep(float(seconds))
    await emit("counts", b"%d" % count, record.key)
    if what in (b"early", b"both"):
        await asyncio.sleep(float(seconds))
    if what == b"both":
        await emit("counts", b"again", record.key)
    if what == b"poison":
        store[b"poisoned"] = b"1"
        raise ZeroDivisionError("poison")
    if what == b"cancelled":
        raise asyncio.CancelledError


def decode(value: bytes) -> bytes:
    if value == b"garbage":
        raise ValueError("garbage")
    return value


def topology(**options: Any) -> Topology:
    return topology_of(behave, **options)


def feed(*values: bytes, key: bytes = b"k") -> list[Any]:
    return [record(offset, key, value) for offset, value in enumerate(values)]


A, B = TaskId(0, 0), TaskId(0, 1)
