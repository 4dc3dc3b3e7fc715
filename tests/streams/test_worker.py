"""Concurrent tasks in virtual time, with processors that are slow or fail."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    BufferFullError,
    RecordTooLargeError,
    StreamsError,
    TransactionAbortableError,
)
from kafkaclient.streams import DeadLetter, Serde, TaskId
from kafkaclient.streams.listeners import AppState
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.runtime.task import TaskOptions
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.runtime.task_states import TaskState
from kafkaclient.streams.state.directory import StateDirectory
from kafkaclient.testing.clock import virtual_time
from tests.streams.fakes import (
    FakeDelivery,
    FakeEnds,
    FakeInputs,
    InlineDisk,
    checked,
    new_committer,
    record,
    sources,
    topology_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

    async def commit(self, work: Sequence[Work], losses: int) -> dict[TopicPartition, int]:
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
        for offsets, changes in work:
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
        self, sources: Sequence[TopicPartition]
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
        self.manager = TaskManager(
            topology,
            self.directory,
            self.inputs,  # type: ignore[arg-type]
            Reader(self.partitions),  # type: ignore[arg-type]
            Ends(self.partitions),  # type: ignore[arg-type]
            new_committer=new_committer(self.brokers, clock, observer=self.observer),
            crash=self.crash,
            disk=InlineDisk(),
            options=TaskOptions(clock=clock, observer=self.observer),
        )
        self.fetching = asyncio.create_task(self.fetch())
        self.starting = asyncio.create_task(self.manager.committer.start())
        self.rebalancing = asyncio.Lock()
        self.active: Sequence[TaskId] = ()
        self.standby: Sequence[TaskId] = ()

    def failed_commits(self) -> float:
        found = self.observer.metrics.snapshot(AppState.RUNNING, {}, 0)
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


@virtual_time
async def test_a_slow_record_blocks_no_other_task(tmp_path: Path) -> None:
    """Neither the other tasks, nor their commits, nor a rebalance, nor the end."""
    loop = asyncio.get_running_loop()
    world = World(tmp_path, topology(), [feed(b"late 60", b""), feed(*[b""] * 200)])
    await world.rebalance([A, B])
    await world.done(B)
    assert loop.time() < 0.5
    assert await world.rebalance([A, B]) == 0
    await world.done(A)
    assert loop.time() < 61
    assert [each[1] for each in world.partitions[A].emitted] == [b"1", b"2"]
    assert world.manager.tasks[A].state is TaskState.RUNNING
    await world.close()


@virtual_time
async def test_a_batch_ends_when_a_commit_is_due(tmp_path: Path) -> None:
    """A transaction that took all records that were fetched would outlive its timeout for ever."""
    world = World(tmp_path, topology(), [feed(*[b"early 0.03"] * 100)])
    await world.rebalance([A])
    await world.done(A)
    times = [time for time, _ in world.partitions[A].commits]
    assert max(b - a for a, b in itertools.pairwise(times)) < 0.15
    assert [int(each[1]) for each in world.partitions[A].emitted] == list(range(1, 101))
    await world.close()


@virtual_time
async def test_a_revoked_task_forgets_its_slow_record(tmp_path: Path) -> None:
    world = World(tmp_path, topology(), [feed(b"late 60", b"")])
    await world.rebalance([A])
    await asyncio.sleep(1)
    assert await world.rebalance([], [A]) == pytest.approx(PATIENCE)
    await world.rebalance([A])
    await asyncio.sleep(59)
    assert world.partitions[A].offset is None, "the record of the first assignment went on"
    await world.done(A)
    assert [each[1] for each in world.partitions[A].emitted] == [b"1", b"2"]
    await world.close()


@virtual_time
async def test_a_processor_that_ignores_cancellation_has_no_effect(tmp_path: Path) -> None:
    after = []

    async def stubborn(record: Any, store: Any, emit: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            for call in (lambda: store.delete(b"k"), lambda: store.get(b"k")):
                with pytest.raises(StreamsError, match="taken away"):
                    call()
            with pytest.raises(StreamsError, match="taken away"):
                await emit("counts", b"1")
            after.append(record.offset)

    made = topology_of(stubborn)
    world = World(tmp_path, made, [feed(b"", b"")])
    await world.rebalance([A])
    await asyncio.sleep(0.1)
    task = world.manager.tasks[A]
    await world.rebalance([], [A])
    await asyncio.sleep(0.1)
    assert (after, task.offsets[task.sources[0]], task.state) == ([0], 0, TaskState.STANDBY)
    await world.close()


@virtual_time
async def test_a_record_may_take_longer_than_a_transaction(tmp_path: Path) -> None:
    """It emits before, during and after its wait, while another task commits."""
    values = [b"", b"", b"both 30", b"", b"both 30", b""]
    world = World(tmp_path, topology(), [feed(*values), feed(*[b"late 0.05"] * 100)])
    await world.rebalance([A, B])
    await world.done(A)
    assert [each[1] for each in world.partitions[A].emitted] == [
        *(b"1", b"2", b"3", b"again", b"4", b"5", b"again", b"6")
    ]
    times = [time for time, _ in world.partitions[B].commits]
    assert max(b - a for a, b in itertools.pairwise(times)) < 0.2
    assert (world.crashes, world.failed_commits()) == ([], 0)
    await world.close()


@pytest.mark.parametrize("code", [47, 48, 120])
@virtual_time
async def test_an_expired_transaction_is_done_again(
    tmp_path_factory: pytest.TempPathFactory, code: int
) -> None:
    """Brokers abort it when this process was stopped for a while. They report it as fenced, too."""
    world = World(tmp_path_factory.mktemp("s"), topology(), [feed(*[b"late 0.01"] * 50)])
    world.brokers.abort_code = code
    await world.rebalance([A])
    await asyncio.sleep(0.25)
    assert world.brokers.began_at is not None
    world.brokers.began_at -= TIMEOUT
    await world.done(A)
    check(world.partitions[A], [b""] * 50)
    assert (world.crashes, world.failed_commits()) == ([], 1)
    await world.close()


@virtual_time
async def test_a_commit_after_a_failure_contains_whole_records(tmp_path: Path) -> None:
    world = World(tmp_path, topology(), [feed(b"", b"poison", b""), feed(b"", b"")])
    await world.rebalance([A, B])
    await world.done(A)
    await world.manager.suspend(PATIENCE)
    assert [each[1] for each in world.partitions[A].emitted] == [b"1"]
    assert world.partitions[A].offset == 1
    assert "words-0, offset 1, cannot be processed: ZeroDivisionError" in str(world.crashes[0])
    await world.close()


@pytest.mark.parametrize("handler", ["skip", DeadLetter("dead")])
@virtual_time
async def test_a_skipped_record_leaves_no_output(
    tmp_path_factory: pytest.TempPathFactory, handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        "value": Serde(bytes, decode),
        "deserialization_exception_handler": handler,
        "processing_exception_handler": handler,
    }
    values = [b"", b"poison", b"garbage", b"cancelled", b""]
    world = World(tmp_path_factory.mktemp("s"), topology(**options), [feed(*values)])
    await world.rebalance([A])
    await world.done(A)
    emitted = world.partitions[A].emitted
    counts = [each[1] for each in emitted if each[0] == "counts"]
    dead = [each for each in emitted if each[0] == "dead"]
    assert (counts, world.crashes) == ([b"1", b"2"], [])
    assert {r.key: r.value for r in world.partitions[A].changelog} == {b"k": b"2"}
    assert "words-0, offset 2, cannot be decoded: ValueError: garbage; it " in caplog.text
    await world.close()
    if handler == "skip":
        assert dead == []
        return
    assert [each[1] for each in dead] == [b"poison", b"garbage", b"cancelled"]
    _topic, _, key, partition, timestamp, headers, _ = dead[0]
    added = {name.removeprefix("__streams.errors."): value for name, value in headers}
    assert (key, partition, timestamp) == (b"k", None, 1_000)
    assert b"ZeroDivisionError: poison" in added.pop("stacktrace")
    assert added == {
        "exception": b"builtins.ZeroDivisionError",
        "message": b"poison",
        "topic": b"words",
        "partition": b"0",
        "offset": b"1",
    }


fates = st.sampled_from(
    [b"", b"", b"", b"late 0.01", b"early 0.2", b"late 1.5", b"late 3", b"poison", b"garbage"]
)
events = st.one_of(
    st.tuples(st.just("same"), st.floats(0, 3)),
    st.tuples(st.just("swap"), st.floats(0, 3)),
    st.tuples(st.sampled_from(["before", "after"]), st.floats(0, 0.5)),
)


@given(
    feeds=st.lists(st.lists(fates, min_size=1, max_size=25), min_size=1, max_size=3),
    steps=st.lists(events, max_size=6),
)
def test_each_record_counts_once(feeds: list[list[bytes]], steps: list[tuple[str, float]]) -> None:
    """Through slow records, poison, failed commits and rebalances, the committed result equals one
    pass over the records. No task waits for another task's records, and neither does the group."""

    @virtual_time
    async def story() -> None:
        with tempfile.TemporaryDirectory() as path:
            dead = DeadLetter("dead")
            made = topology(
                value=Serde(bytes, decode),
                deserialization_exception_handler=dead,
                processing_exception_handler=dead,
            )
            world = World(Path(path), made, [feed(*values) for values in feeds])
            tasks = list(world.partitions)
            await world.rebalance(tasks)
            for what, pause in steps:
                await asyncio.sleep(pause)
                if what in ("before", "after"):
                    world.brokers.problems.append(what)
                elif what == "swap":
                    assert await world.rebalance(tasks[1:], tasks[:1]) < PATIENCE + 0.1
                    await world.rebalance(tasks)
                else:
                    assert await world.rebalance(tasks) < PATIENCE + 0.1
            for task in tasks:
                await world.done(task)
            assert world.crashes == []
            for task, values in zip(tasks, feeds, strict=True):
                check(world.partitions[task], values)
            await world.close()

    story()


def check(partition: Partition, values: list[bytes]) -> None:
    by_topic = defaultdict(list)
    for topic, value, *_ in partition.emitted:
        by_topic[topic].append(value)
    good = [value for value in values if value not in (b"poison", b"garbage")]
    assert by_topic["counts"] == [b"%d" % n for n in range(1, len(good) + 1)]
    assert by_topic["dead"] == [value for value in values if value in (b"poison", b"garbage")]
    state = {each.key: each.value for each in partition.changelog}
    assert state == ({b"k": b"%d" % len(good)} if good else {})


class GiveUp(BaseException):
    """What ``behave`` cannot raise."""


DROPPED = "dropped-records-total"


async def bad(record: Any, store: Any, emit: Any) -> None:
    """Cancels its asyncio task, or raises what is no Exception."""
    store[record.key] = record.value
    await emit("counts", record.value)
    if record.value == b"raises":
        raise GiveUp
    if record.value == b"0.1":
        await asyncio.sleep(0.1)
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    match record.value:
        case b"later":
            loop.call_later(0.05, task.cancel)
        case b"only":
            task.cancel()
        case b"cancels":
            loop.call_later(0.05, task.cancel)
            await asyncio.sleep(1)
        case b"at once" | b"catches" | b"hides":
            task.cancel()
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                if record.value == b"at once":
                    raise
                if record.value == b"hides":
                    raise ValueError from None


@pytest.mark.parametrize("handler", ["fail", "skip"])
@virtual_time
async def test_what_is_no_exception_ends_the_instance(tmp_path: Path, handler: Any) -> None:
    feeds = [feed(b"1", b"raises", b"3")]
    world = World(tmp_path, topology_of(bad, processing_exception_handler=handler), feeds)
    await world.rebalance([A])
    await world.done(A)
    await world.manager.committer.commit()
    assert [type(error) for error in world.crashes] == [GiveUp]
    partition = world.partitions[A]
    assert partition.offset in (None, 1)
    assert [each[1] for each in partition.emitted] in ([], [b"1"])
    assert [each.value for each in partition.changelog] in ([], [b"1"])
    await world.close()


@pytest.mark.parametrize("handler", ["fail", "skip"])
@pytest.mark.parametrize("how", [b"cancels", b"at once", b"catches", b"hides", b"only", b"later"])
@virtual_time
async def test_an_application_that_cancels_its_asyncio_task_ends(
    tmp_path: Path, how: bytes, handler: Any
) -> None:
    """The record in hand may be another one than the one that had it cancelled: none is skipped."""
    made = topology_of(bad, processing_exception_handler=handler)
    world = World(tmp_path, made, [feed(b"1", how, *[b"0.1"] * 5)])
    await world.rebalance([A])
    await world.done(A)
    (error,) = world.crashes
    assert isinstance(error, StreamsError)
    offset = 1 if how in (b"cancels", b"at once", b"hides") else 2
    assert f"the last one that was started: words-0, offset {offset}. A proc" in str(error)
    assert world.observer.metrics.snapshot(AppState.RUNNING, {}, 0).instance[DROPPED] == 0
    await world.close()


@virtual_time
async def test_a_task_that_fails_again_waits_before_it_starts_again(tmp_path: Path) -> None:
    now = asyncio.get_running_loop().time
    world = World(tmp_path, topology(), [feed(b"", b"")])
    world.brokers.problems = ["before"]
    began = now()
    await world.rebalance([A])
    await world.done(A)
    assert now() - began < 0.5, "the first failure is retried at once"

    world.partitions[A].records += feed(b"", b"", b"")[2:]
    world.brokers.problems = ["before"] * 4
    began = now()
    await world.done(A)
    assert 1.5 <= now() - began < 3
    assert world.crashes == []
    await world.close()


@virtual_time
async def test_refused_records_are_counted_when_they_are_committed(tmp_path: Path) -> None:
    """Each of them fails a commit, and each failed commit repeats what the ones before it dropped.
    It is no reason to wait: the next commit gets further."""

    async def copy(record: Any, store: Any, emit: Any) -> None:
        await asyncio.sleep(0.08)  # the next commit has one more of them
        await emit("out", record.value, record.key)

    values = [b"bad and too large"] * 6 + [b"good"]
    made = topology_of(copy, processing_exception_handler="skip")
    world = World(tmp_path, made, [feed(*values)])
    world.brokers.refused = {values[0]}
    began = asyncio.get_running_loop().time()
    await world.rebalance([A])
    await world.done(A)
    assert asyncio.get_running_loop().time() - began < 1.5
    assert [each[1] for each in world.partitions[A].emitted] == [b"good"]
    assert world.failed_commits() > 3
    counts = world.observer.metrics.snapshot(AppState.RUNNING, {}, 0).instance
    assert counts[DROPPED] == 6
    await world.close()
