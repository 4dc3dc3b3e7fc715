"""The common commit of an instance's tasks, with a model of tasks and brokers in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import BufferFullError, StreamsError, TransactionAbortableError
from kafkaclient.streams.metrics import AppState
from kafkaclient.streams.runtime.committer import TRANSITIONS, CommitEvent, CommitState, Committer
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.runtime.outputs import OutgoingRecord, Work
from kafkaclient.streams.tasks import is_recoverable
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from tests.streams.fakes import FakeDelivery, opened_gate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

INTERVAL_S = 0.1
TOTAL = b"total"


def outputs(task: int, offset: int) -> list[OutgoingRecord]:
    """What the record emits: nothing to three records."""
    return [
        OutgoingRecord("out", (offset, number), task, None, None, ())
        for number in range((offset + task) % 4)
    ]


async def add(
    world: World, task: ModelTask, records: Sequence[OutgoingRecord], offset: int
) -> None:
    added = world.committer.add(task, records, task.source, offset)  # type: ignore[arg-type]
    if added is not None:
        await added


class ModelTask:
    """Sums its records' offsets in its store. ``committed_total`` is its RocksDB."""

    def __init__(self, world: World, number: int) -> None:
        self.id = number
        self.world = world
        self.source = TopicPartition("in", number)
        self.changelog = TopicPartition("changelog", number)
        self.offset = world.offsets[number]
        self.committed_total = self.total = self.done_total = world.totals[number]
        self.worker = asyncio.create_task(self.run())

    async def run(self) -> None:
        await self.world.committer.wait_until_settled(self)  # type: ignore[arg-type]
        self.offset = self.world.offsets[self.id]
        self.committed_total = self.total = self.done_total = self.world.totals[self.id]
        while True:
            offset = self.offset
            self.total += offset + 1  # a half record is in the store while it is being processed
            await asyncio.sleep(self.world.durations[(offset * 7 + self.id) % 5])
            records = outputs(self.id, offset)
            await add(self.world, self, records, offset + 1)

    def record_done(self, source: TopicPartition, offset: int) -> None:
        assert source == self.source
        self.offset = offset
        self.done_total = self.total

    def work(self) -> Work:
        changes: dict[bytes, Any] = {}
        if self.done_total != self.committed_total:
            changes[TOTAL] = self.done_total
        return Work({self.source: self.offset}, {self.changelog: changes})

    def on_committed(
        self, offsets: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
    ) -> None:
        assert offsets == {self.source: self.world.offsets[self.id]}
        self.committed_total = self.world.totals[self.id]
        assert self.committed_total == self.done_total

    def end(self) -> None:
        self.worker.cancel()
        self.world.committer.drop(self)  # type: ignore[arg-type]


class World:
    """The brokers, and a manager that restarts failed tasks."""

    def __init__(
        self, durations: Sequence[float], count: int, *, is_transactional: bool = True
    ) -> None:
        self.is_transactional = is_transactional
        self.durations = durations
        self.offsets = [0] * count
        self.totals: list[Any] = [0] * count
        self.log: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        """Committed records of each task: (offset, number)."""
        self.pending: list[OutgoingRecord] = []
        self.problems: list[str] = []
        self.crashes: list[BaseException] = []
        self.gate = opened_gate()
        self.observer = Observer(clock=asyncio.get_running_loop().time)
        self.committer = Committer(
            self,  # type: ignore[arg-type]
            self.gate,
            lambda: asyncio.get_running_loop().time() + INTERVAL_S,
            on_failed=self.failed,  # type: ignore[arg-type]
            crash=self.crashes.append,
            observer=self.observer,
            clock=asyncio.get_running_loop().time,
        )
        self.tasks: dict[int, ModelTask] = {}

    def counts(self) -> dict[str, float]:
        return self.observer.metrics.snapshot(AppState.RUNNING).instance

    def failed(self, task: ModelTask, error: BaseException) -> None:
        if not is_recoverable(error):
            self.crashes.append(error)
        elif self.tasks.get(task.id) is task:
            task.end()
            self.tasks[task.id] = ModelTask(self, task.id)

    # --- the output

    async def start(self) -> None:
        """Starts in no time."""

    async def stop(self) -> None:
        self.pending = []

    async def abandon(self) -> None:
        await asyncio.sleep(0.002)
        self.pending = []

    async def begin(self) -> None:
        await asyncio.sleep(0.001)

    def send_nowait(self, record: OutgoingRecord) -> FakeDelivery:
        if "send" in self.problems or record.value[1] == 1:
            raise BufferFullError("no room")
        self.pending.append(record)
        return FakeDelivery()

    async def send(self, record: OutgoingRecord) -> FakeDelivery:
        if "send" in self.problems:
            self.problems.remove("send")
            raise TransactionAbortableError("the buffer is full")
        self.pending.append(record)
        if record.value[1] == 1:
            await asyncio.sleep(0.004)
        return FakeDelivery()

    async def commit(
        self, work: Sequence[Work], emitted: Any, times_lost: int
    ) -> dict[TopicPartition, int]:
        pending, self.pending = self.pending, []
        await asyncio.sleep(0.003)
        assert not self.pending, "sent during a commit"
        async with self.gate.commit(times_lost):
            await asyncio.sleep(0.001)
        problem = next((each for each in self.problems if each != "send"), None)
        if problem is not None:
            self.problems.remove(problem)
        if problem == "before":
            raise TransactionAbortableError("no")
        if problem == "permanent":
            raise StreamsError("a change is too large")
        self.check(pending, work)
        for one in work:
            for source, offset in one.offsets.items():
                self.offsets[source.partition] = offset
            for changelog, changes in one.changes.items():
                self.totals[changelog.partition] = changes.get(
                    TOTAL, self.totals[changelog.partition]
                )
        for record in pending:
            self.log[record.key].append(record.value)
        if problem == "after":
            raise TransactionAbortableError("the answer was lost")
        return {}

    def check(self, pending: Iterable[OutgoingRecord], work: Sequence[Work]) -> None:
        """The transaction contains whole records, and the offsets and changes behind them."""
        expected = []
        for offsets, changes, _ in work:
            ((source, offset),) = offsets.items()
            task = source.partition
            for each in range(self.offsets[task], offset):
                expected += outputs(task, each)
            ((_, found),) = changes.items()
            assert found.get(TOTAL, self.totals[task]) == sum(range(offset + 1))
        assert sorted(pending) == sorted(expected)

    async def apply(self, what: str, number: int) -> None:
        """One step of a story."""
        task = self.tasks.get(number)
        if what in ("before", "after", "send"):
            self.problems.append(what)
        elif what == "move":
            if task is None:
                self.tasks[number] = ModelTask(self, number)
            else:
                del self.tasks[number]
                task.end()
        elif what == "shut":
            self.gate.shut()
            await asyncio.sleep(0.15)
            self.gate.open()
        elif what == "lose":
            self.gate.shut()
            self.gate.refuse_waiting()
            for each in self.tasks.values():
                each.end()
            self.tasks.clear()
            await asyncio.sleep(0.05)
            self.gate.open()
        elif what == "cancel":
            waiting = asyncio.create_task(self.committer.commit())
            await asyncio.sleep(0)
            waiting.cancel()
        else:
            await self.committer.commit()

    async def close(self) -> None:
        await self.committer.close()
        for task in self.tasks.values():
            task.end()
        await asyncio.gather(*(t.worker for t in self.tasks.values()), return_exceptions=True)


events = st.tuples(
    st.sampled_from(
        ["before", "after", "send", "move", "move", "commit", "shut", "cancel", "lose"]
    ),
    st.floats(0, 0.3),
    st.integers(0, 2),
)


@given(
    durations=st.lists(
        st.sampled_from([0.0005, 0.001, 0.03, 0.09, 0.5]), min_size=5, max_size=5
    ).map(tuple),
    steps=st.lists(events, max_size=12),
)
def test_every_record_is_committed_once_and_whole(
    durations: tuple[float, ...], steps: list[tuple[str, float, int]]
) -> None:
    @virtual_time
    async def story() -> None:
        world = World(durations, 3)
        await world.start()
        world.tasks = {number: ModelTask(world, number) for number in range(3)}
        for what, pause_s, number in steps:
            await asyncio.sleep(pause_s)
            await world.apply(what, number)
        for number in range(3):
            if number not in world.tasks:
                world.tasks[number] = ModelTask(world, number)
        before = list(world.offsets)
        await asyncio.sleep(10)
        assert all(now > then for now, then in zip(world.offsets, before, strict=True))
        assert world.crashes == []
        await world.close()
        for number, offset in enumerate(world.offsets):
            expected = [r.value for each in range(offset) for r in outputs(number, each)]
            assert world.log[number] == expected

    story()


@virtual_time
async def test_all_tasks_are_committed_after_the_interval() -> None:
    world = World([0.001] * 5, 3)
    await world.start()
    world.tasks = {number: ModelTask(world, number) for number in range(3)}
    await asyncio.sleep(1.05)
    counts = world.counts()
    assert (counts["commit-total"], counts["failed-commit-total"]) == (9, 0)
    assert counts["commit-latency-max"] == pytest.approx(4)
    assert counts["commit-latency-avg"] == pytest.approx(4)
    await world.close()


@virtual_time
async def test_tasks_go_on_while_the_group_begins_a_generation() -> None:
    world = World([0.001] * 5, 1)
    await world.start()
    task = world.tasks[0] = ModelTask(world, 0)
    await asyncio.sleep(0.05)
    world.gate.shut()
    await asyncio.sleep(1)
    assert world.counts()["commit-total"] == 0
    assert task.offset > 200
    world.gate.open()
    await asyncio.sleep(0.01)
    assert world.offsets[0] > 200
    await world.close()


async def add_one(world: World, number: int, records: Sequence[OutgoingRecord] = ()) -> ModelTask:
    """A task that has processed its first record."""
    task = ModelTask(world, number)
    task.worker.cancel()
    task.total += 1
    await add(world, task, records, 1)
    return task


@virtual_time
async def test_a_later_record_of_a_commit_is_added_without_a_wait() -> None:
    world = World([0.001] * 5, 1)
    await world.start()
    task: Any = await add_one(world, 0)
    assert world.committer.add(task, outputs(0, 1), task.source, 2) is None
    assert (len(world.pending), task.offset) == (1, 2)
    waiting = world.committer.add(task, outputs(0, 2), task.source, 3)
    assert waiting is not None, "there is no room for the second record"
    assert (len(world.pending), task.offset) == (2, 2)
    await waiting
    assert (len(world.pending), task.offset) == (3, 3)
    await world.close()


@pytest.mark.parametrize("is_transactional", [False, True])
def test_nobody_waits_for_the_interval_of_a_dropped_task(*, is_transactional: bool) -> None:
    @virtual_time
    async def story() -> None:
        world = World([0.001] * 5, 1, is_transactional=is_transactional)
        await world.start()
        (await add_one(world, 0)).end()
        async with asyncio.timeout(INTERVAL_S / 10):
            await world.committer.wait_until_settled(ModelTask(world, 0))  # type: ignore[arg-type]
        assert world.counts()["commit-total"] == 0, "there was nothing to commit"
        await world.close()

    story()


@virtual_time
async def test_a_dropped_task_without_records_does_not_fail_the_others_commit() -> None:
    """Such as one that only commits where it begins."""
    world = World([0.001] * 5, 2)
    await world.start()
    await add_one(world, 0, outputs(0, 0))
    (await add_one(world, 1)).end()
    await asyncio.sleep(INTERVAL_S * 2)
    assert world.offsets == [1, 0]
    counts = world.counts()
    assert (counts["commit-total"], counts["failed-commit-total"]) == (1, 0)
    await world.close()


@virtual_time
async def test_who_waits_for_a_commit_goes_on_before_who_waits_to_add() -> None:
    """A task that is given up after the commit must not be in the next one."""
    world = World([0.001] * 5, 2)
    await world.start()
    await add_one(world, 0)
    log = []

    async def commit() -> None:
        await world.committer.commit()
        log.append("committed")

    async def add() -> None:
        await add_one(world, 1)
        log.append("added")

    waiting = asyncio.create_task(commit())
    await asyncio.sleep(0.002)
    assert world.committer.state is CommitState.COMMITTING
    await asyncio.gather(waiting, add())
    assert log == ["committed", "added"]
    await world.close()


@virtual_time
async def test_nothing_is_committed_after_a_permanent_error() -> None:
    """The tasks still run until the instance ends, and are ahead of what was committed."""
    world = World([0.001] * 5, 2)
    await world.start()
    world.tasks = {number: ModelTask(world, number) for number in range(2)}
    world.problems.append("permanent")
    await asyncio.sleep(5)
    (error,) = world.crashes
    assert str(error) == "a change is too large"
    assert (world.offsets, world.committer.state) == ([0, 0], CommitState.ENDED)
    await world.committer.commit()  # nothing is left to wait for
    await world.close()


@virtual_time
async def test_nothing_is_left_after_the_end() -> None:
    world = World([0.03] * 5, 3)
    await world.start()
    world.tasks = {number: ModelTask(world, number) for number in range(3)}
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(world.committer.commit())
    await asyncio.sleep(0)
    await world.close()
    await waiting
    assert world.committer.state is CommitState.ENDED
    assert world.offsets == [0, 0, 0]
    await world.committer.close()
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_nobody_waits_for_a_commit_loop_that_the_application_cancelled() -> None:
    world = World([0.03] * 5, 1)
    await world.start()
    world.tasks = {0: ModelTask(world, 0)}
    await asyncio.sleep(0.05)
    (loop,) = (each for each in asyncio.all_tasks() if each.get_name() == "kafkaclient-commit")
    loop.cancel()
    async with asyncio.timeout(1):
        await world.committer.commit()
    (error,) = world.crashes
    assert "cancelled the asyncio task that commits" in str(error)
    await world.close()


def test_every_state_can_end_and_only_a_clean_one_has_nothing_to_lose() -> None:
    for state in CommitState:
        assert TRANSITIONS[state, CommitEvent.ENDED] is CommitState.ENDED
    failing = {state for state, event in TRANSITIONS if event is CommitEvent.FAILED}
    assert failing == {CommitState.DIRTY, CommitState.CLOSING, CommitState.COMMITTING}
    accepting = {state for state, event in TRANSITIONS if event is CommitEvent.ADDED}
    assert accepting == {CommitState.CLEAN, CommitState.DIRTY}
