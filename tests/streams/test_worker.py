"""Concurrent tasks in virtual time, with processors that are slow or fail."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import StreamsError
from kafkaclient.streams import DeadLetter, Serde
from kafkaclient.streams.metrics import AppState
from kafkaclient.streams.tasks import TaskState
from kafkaclient.testing.clock import virtual_time
from tests.streams.fakes import GiveUp, commit_all, topology_of
from tests.streams.world import (
    PATIENCE,
    TIMEOUT,
    A,
    B,
    Partition,
    World,
    decode,
    feed,
    topology,
)


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
    await world.manager.finish_and_commit(PATIENCE)
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
    _topic, _, key, partition, timestamp, headers = dead[0]
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
    await commit_all(world.manager)
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
    assert world.observer.metrics.snapshot(AppState.RUNNING).instance[DROPPED] == 0
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
    counts = world.observer.metrics.snapshot(AppState.RUNNING).instance
    assert counts[DROPPED] == 6
    await world.close()
