"""Streams applications in one group on real brokers: what rebalances cost the tasks that stay."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from integration.brokers import known_everywhere
from integration.streams_support import GUARANTEES, application, running, until
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import StateStoreError, StreamsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kafkaclient.streams import StreamsApp
    from kafkaclient.testing.cluster import ClusterHandle

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 4


class Seen:
    """When which partition's records were processed, by all applications."""

    def __init__(self) -> None:
        self.times: defaultdict[int, list[float]] = defaultdict(list)
        self.by: defaultdict[int, set[str]] = defaultdict(set)

    def longest_gap(self, partition: int, since: float, until: float | None = None) -> float:
        end = time.monotonic() if until is None else until
        times = [since, *(each for each in self.times[partition] if since < each < end)]
        return max(b - a for a, b in zip(times, [*times[1:], end], strict=True))


def made(
    cluster: ClusterHandle, topic: str, path: Path, seen: Seen, cpu_s: float = 0, **options: Any
) -> StreamsApp:
    options = {"session_timeout_ms": 6000, **options}
    app = application(cluster.bootstrap, topic, path, **options)

    @app.processor(topic, store="s")
    async def note(record, store, emit) -> None:
        store[b"last"] = b"%d" % record.offset
        seen.times[record.partition].append(time.monotonic())
        seen.by[record.partition].add(path.name)
        if cpu_s:
            end = time.thread_time() + cpu_s
            while time.thread_time() < end:
                pass

    return app


@asynccontextmanager
async def load(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> AsyncIterator[None]:
    """Send about 50 records a second to each partition."""

    async def send() -> None:
        async with Producer(bootstrap, linger_ms=0) as producer:
            while True:
                for partition in range(partitions):
                    await producer.send(topic, b"v", b"k", partition=partition)
                await asyncio.sleep(0.02)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def states(app: StreamsApp, state: str = "running") -> list[int]:
    return [found.task.partition for found in app.tasks() if found.state.value == state]


async def runs(app: StreamsApp, count: int, task: asyncio.Task[None]) -> None:
    async def condition() -> bool:
        return len(states(app)) == count

    await until(condition, task)


async def generation(bootstrap: str, group: str) -> tuple[str, ...]:
    """The ids of the members of the stable group."""
    async with Admin(bootstrap) as admin, asyncio.timeout(60):
        while (found := await admin.describe_group(group)).state != "Stable":
            await asyncio.sleep(0.1)
    return tuple(sorted(member.member_id for member in found.members))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_tasks_that_stay_do_not_stop_while_others_move(
    kafka_cluster, topic, create_topic, tmp_path, caplog, guarantee
) -> None:
    """In one of three attempts: brokers of a busy machine answer late at times."""
    found = []
    for attempt in range(3):
        caplog.clear()
        names = topic, create_topic, tmp_path / str(attempt), attempt, guarantee
        staying, longest, machine = await _pauses_while_others_move(kafka_cluster, *names)
        found.append((staying, longest, machine))
        # A task that moves takes several steps, and never waits for the end of a session.
        within = staying < max(0.5, 3 * machine) and longest < max(3, 10 * machine)
        # A transaction that meets the end of its generation is repeated, which takes seconds.
        if "ILLEGAL_GENERATION" in caplog.text:
            continue
        assert "its changelog" not in caplog.text
        assert "failed" not in caplog.text
        if within:
            return
    assert within, found
    assert "its changelog" not in caplog.text
    assert "failed" not in caplog.text


async def _pauses_while_others_move(
    cluster, name, create_topic, folder, attempt, guarantee
) -> tuple[float, float, float]:
    """The longest pause, in seconds, of a task that stays, of any task, and of a task of another
    application, in whose group nothing moves: that is of the machine."""
    bootstrap, topic = cluster.bootstrap, f"{name}-{attempt}"
    await create_topic(topic, PARTITIONS)
    await create_topic(other_topic := f"{topic}-other", 1)
    seen, usual, options = Seen(), Seen(), {"processing_guarantee": guarantee}
    first = made(cluster, topic, folder / "a", seen, **options)
    undisturbed = made(cluster, other_topic, folder / "other", usual, **options)
    async with (
        load(bootstrap, topic),
        load(bootstrap, other_topic, 1),
        running(first) as task,
        running(undisturbed) as beside,
    ):
        await runs(first, 4, task)
        await runs(undisturbed, 1, beside)
        await asyncio.sleep(1)
        began = time.monotonic()
        second = made(cluster, topic, folder / "b", seen, **options)
        async with running(second) as other:
            await runs(second, 2, other)
            await runs(first, 2, task)
            stay = states(first)
            await asyncio.sleep(1)
        await runs(first, 4, task)
        await asyncio.sleep(0.5)
        gaps = {partition: seen.longest_gap(partition, began) for partition in range(PARTITIONS)}
        assert all(seen.by[partition] == {"a"} for partition in stay)
        return max(gaps[p] for p in stay), max(gaps.values()), usual.longest_gap(0, began)


async def test_new_partitions_of_an_input_are_read_after_the_next_rebalance(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """Also by a task that runs, because another input of it had that partition already."""
    smaller = f"{topic}-smaller"
    await create_topic(topic, 2)
    await create_topic(smaller, 1)
    seen: set[tuple[str, int]] = set()

    def reading_both(path: Path) -> StreamsApp:
        app = application(kafka_cluster.bootstrap, topic, path)

        @app.processor(topic, smaller)
        async def note(record, emit) -> None:
            seen.add((record.topic, record.partition))

        return app

    async def both_run() -> bool:
        return len(states(first) + states(second)) == 3 and states(second) != []

    async def all_seen() -> bool:
        return len(seen) == 4

    first, second = reading_both(tmp_path / "a"), reading_both(tmp_path / "b")
    async with Producer(kafka_cluster.bootstrap) as producer, running(first) as task:
        await runs(first, 2, task)
        async with Admin(kafka_cluster.bootstrap) as admin:
            await admin.add_partitions(smaller, 3)
        await known_everywhere(kafka_cluster.bootstrap, smaller, 3)
        async with running(second) as other:
            await until(both_run, other)
        await runs(first, 3, task)
        for partition in range(3):
            await producer.send(smaller, b"v", partition=partition)
        await producer.send(topic, b"v", partition=1)
        await until(all_seen, task)


async def test_a_static_instance_restarts_without_a_rebalance(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    await create_topic(topic, PARTITIONS)
    seen, options = Seen(), {"session_timeout_ms": 30_000}  # for the restart
    first = made(kafka_cluster, topic, tmp_path / "a", seen, group_instance_id="a", **options)
    async with load(kafka_cluster.bootstrap, topic), running(first) as task:
        await runs(first, 4, task)
        second = made(kafka_cluster, topic, tmp_path / "b", seen, group_instance_id="b", **options)
        async with running(second) as other:
            await runs(second, 2, other)
            await runs(first, 2, task)
            own = states(second)
            member, *_ = await generation(kafka_cluster.bootstrap, f"app-{topic}")
        known = first._instance._member._gate.group.generation_id  # type: ignore[union-attr]
        async with running(second) as other:
            await runs(second, 2, other)
            assert states(second) == own
            assert first._instance._member._gate.group.generation_id == known  # type: ignore[union-attr]
            assert len(states(first)) == 2
        assert member.startswith("a-")


@pytest.mark.parametrize("store", [True, False])
async def test_new_partitions_of_an_input_topic_are_noticed(
    kafka_cluster, topic, create_topic, tmp_path, store
) -> None:
    """Without store they get tasks in all instances; with one, the error is in all instances."""
    await create_topic(topic, 2)
    seen = set[int]()

    def instance(name: str) -> StreamsApp:
        app = application(
            kafka_cluster.bootstrap,
            topic,
            tmp_path / name,
            consumer_options={"metadata_max_age_ms": 1000},
        )

        @app.processor(topic, **{"store": "s"} if store else {})
        async def note(record: Any, *_: Any) -> None:
            seen.add(record.partition)

        return app

    first, second = instance("a"), instance("b")
    async with running(first) as task, running(second) as other:
        await runs(first, 1, task)
        await runs(second, 1, other)
        async with Admin(kafka_cluster.bootstrap) as admin:
            await admin.add_partitions(topic, 4)
        await known_everywhere(kafka_cluster.bootstrap, topic, 4)
        if store:
            for each in (task, other):
                with pytest.raises(StateStoreError, match=f"{topic} has 4 partitions now"):
                    await asyncio.wait_for(each, 60)
            return
        await runs(first, 2, task)
        await runs(second, 2, other)
        async with Producer(kafka_cluster.bootstrap) as producer:
            for partition in range(4):
                await producer.send_and_wait(topic, b"v", b"k", partition=partition)

        async def all_processed() -> bool:
            return seen == {0, 1, 2, 3}

        await until(all_processed, task)


async def test_a_copy_of_a_static_instance_ends_the_older_one(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    await create_topic(topic, PARTITIONS)
    seen = Seen()
    first = made(kafka_cluster, topic, tmp_path / "a", seen, group_instance_id="a")
    second = made(kafka_cluster, topic, tmp_path / "b", seen, group_instance_id="a")
    async with running(first) as task:
        await runs(first, 4, task)
        async with running(second) as other:
            with pytest.raises(StreamsError, match=r"newer member with group\.instance\.id 'a'"):
                await task
            await runs(second, 4, other)


@pytest.mark.full
async def test_a_busy_processor_is_not_evicted(
    kafka_cluster, topic, create_topic, tmp_path, caplog
) -> None:
    """20 ms of CPU for each record, and always more records than can be processed."""
    caplog.set_level("INFO", "kafkaclient.streams")
    await create_topic(topic, PARTITIONS)
    seen = Seen()
    app = made(kafka_cluster, topic, tmp_path / "a", seen, cpu_s=0.02)
    async with Producer(kafka_cluster.bootstrap) as producer:
        for partition in range(PARTITIONS):
            for _ in range(500):
                await producer.send(topic, b"v", b"k", partition=partition)
        await producer.flush()
    async with running(app) as task:
        await runs(app, 4, task)
        began = time.monotonic()
        before = app._instance._member._gate.group  # type: ignore[union-attr]
        await asyncio.sleep(12)
        assert app._instance._member._gate.group == before  # type: ignore[union-attr]
        gaps = [seen.longest_gap(partition, began) for partition in range(PARTITIONS)]
        assert max(gaps) < 1
    assert "loses" not in caplog.text
