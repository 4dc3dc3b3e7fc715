"""Applications on real brokers with slow records, unexpected topics and dying brokers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from integration.brokers import gone_everywhere
from integration.streams_support import GUARANTEES, application, equals, records, running, until
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import (
    ProcessingError,
    StreamsError,
    TopicExistsError,
)
from kafkaclient.streams import DeadLetter, StreamsApp
from kafkaclient.types import TopicPartition
from tests.code_blocks import runs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_slow_record_blocks_no_other_task_and_no_commit(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    """A record takes longer than a transaction may, and emits before and after its wait. It ends
    when all other records are committed and a second member has joined."""
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    await create_topic(topic, 2)
    await create_topic(out, 3)  # "a" and "b" go to different partitions
    timeout = {"transaction_timeout_ms": 3000} if guarantee == "exactly_once_v2" else {}
    options = {
        "producer_options": timeout,
        "processing_guarantee": guarantee,
        "session_timeout_ms": 6000,
    }
    goes_on = asyncio.Event()

    def made(path: Path) -> StreamsApp:
        app = application(bootstrap, topic, path, **options)

        @app.processor(topic, store="s")
        async def process(record, store, emit) -> None:
            number = int(store.get(record.key) or 0) + 1
            store[record.key] = b"%d" % number
            await emit(out, b"%d" % number, record.key)
            if record.value == b"slow":
                async with asyncio.timeout(100):
                    await asyncio.gather(asyncio.sleep(8), goes_on.wait())
            await emit(out, b"%d" % number, record.key)

        return app

    async with Producer(bootstrap) as producer:
        for number in range(20):
            value = b"slow" if number == 10 else b""
            await producer.send_and_wait(topic, value, b"a", partition=0)
            await producer.send_and_wait(topic, b"", b"b", partition=1)

    async def of(key: bytes) -> list[int]:
        return [int(r.value) for r in await records(bootstrap, out, 3) if r.key == key]

    twice = [number for number in range(1, 21) for _ in range(2)]
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    async with running(first) as task:

        async def committed() -> list[list[int]]:
            return [await of(b"b"), await of(b"a")]

        await until(equals(committed, [twice, twice[:20]]), task)
        async with running(second):

            async def has_joined() -> bool:
                return bool(second.tasks())

            # If the first member waited for its record, its group would wait for a minute.
            await until(has_joined, task, 30)
            goes_on.set()

            async def all_done() -> bool:
                return len(await of(b"a")) >= 40

            await until(all_done, task, 60)
    assert await of(b"a") == twice
    for app in (first, second):
        assert app.metrics().instance["failed-commit-total"] == 0


@pytest.mark.full
async def test_records_may_take_longer_than_a_transaction(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """Brokers check for expired transactions every 10 s."""
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    await create_topic(topic, 1)
    await create_topic(out, 1)
    options = {"producer_options": {"transaction_timeout_ms": 2000}}
    app = application(bootstrap, topic, tmp_path, **options)

    @app.processor(topic, store="s")
    async def process(record, store, emit) -> None:
        await emit(out, record.value)
        if record.value == b"slow":
            await asyncio.sleep(30)

    async with Producer(bootstrap) as producer:
        for value in (b"1", b"2", b"slow", b"3"):
            await producer.send_and_wait(topic, value)

    async def copied() -> list[bytes]:
        return [record.value for record in await records(bootstrap, out)]

    async with running(app) as task:
        await until(equals(copied, [b"1", b"2", b"slow", b"3"]), task)
        assert app.metrics().instance["failed-commit-total"] == 0


async def test_errors_name_a_missing_topic(kafka_cluster, topic, create_topic, tmp_path) -> None:
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, 1)
    options = {"max_block_ms": 3000, "allow_auto_create_topics": False}
    app = application(bootstrap, topic, tmp_path, producer_options=options)

    @app.processor(topic, store="s")
    async def process(record, store, emit) -> None:
        await emit(f"{topic}-nowhere", b"")

    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"")
    with pytest.raises(ProcessingError, match=f"offset 0, .*{topic}-nowhere.*create the topic"):
        await app.run()
    app = application(bootstrap, topic, tmp_path)
    app.processor(topic, store="s", on_error=DeadLetter(f"{topic}-dead"))(process)
    with pytest.raises(StreamsError, match=f"topic {topic}-dead does not exist"):
        await app.run()


async def test_an_offset_beyond_the_end_of_a_topic_skips_nothing(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    for name in (topic, out):
        await create_topic(name, 1)
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"a")
    async with Admin(bootstrap) as admin:
        await admin.alter_offsets(f"app-{topic}", {TopicPartition(topic, 0): 50})
    app = application(bootstrap, topic, tmp_path)

    @app.processor(topic, store="s")
    async def copy(record, store, emit) -> None:
        await emit(out, record.value)

    async def copied() -> list[bytes]:
        return [record.value for record in await records(bootstrap, out)]

    async with running(app) as task:
        await until(equals(copied, [b"a"]), task)


async def test_latest_offset_and_a_recreated_changelog(
    kafka_cluster, topic, create_topic, tmp_path, caplog
) -> None:
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    for name in (topic, out):
        await create_topic(name, 1)

    def made() -> StreamsApp:
        app = application(bootstrap, topic, tmp_path, auto_offset_reset="latest")

        @app.processor(topic, store="s")
        async def count(record, store, emit) -> None:
            number = int(store.get(b"n") or 0) + 1
            store[b"n"] = b"%d" % number
            await emit(out, b"%d" % number, record.value)

        return app

    async def is_running() -> bool:
        return any(found.state.value == "running" for found in app.tasks())

    async def counted() -> list[tuple[bytes, bytes]]:
        return [(r.key, r.value) for r in await records(bootstrap, out)]

    async with Producer(bootstrap) as producer, Admin(bootstrap) as admin:
        await producer.send_and_wait(topic, b"old")
        app = made()
        async with running(app) as task:
            await until(is_running, task)
        # The task has processed nothing, but its first offset is committed.
        await producer.send_and_wait(topic, b"first")
        app = made()
        async with running(app) as task:
            await until(equals(counted, [(b"first", b"1")]), task)
        await admin.delete_topics([f"app-{topic}-s-changelog"])
        await gone_everywhere(bootstrap, f"app-{topic}-s-changelog")
        await producer.send_and_wait(topic, b"second")
        app = made()
        async with running(app) as task:
            await until(equals(counted, [(b"first", b"1"), (b"second", b"1")]), task)
    assert "its changelog was deleted and created again" in caplog.text


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_topic_recreated_during_the_run_is_read_from_its_beginning(
    kafka_cluster, topic, create_topic, tmp_path, guarantee, caplog
) -> None:
    """The new topic has more records than were read of the old one, and the application goes on."""
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    for name in (topic, out):
        await create_topic(name, 1)
    app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

    @app.processor(topic, store="s")
    async def count(record, store, emit) -> None:
        number = int(store.get(b"n") or 0) + 1
        store[b"n"] = b"%d" % number
        await emit(out, b"%d" % number, record.value)

    async def counted() -> list[tuple[bytes, bytes]]:
        return [(r.key, r.value) for r in await records(bootstrap, out)]

    async def committed() -> int:
        source = TopicPartition(topic, 0)
        return (await admin.committed_offsets(f"app-{topic}", [source])).get(source, 0)

    expected = [(b"old", b"%d" % n) for n in range(1, 4)]
    async with Admin(bootstrap) as admin, running(app) as task:
        async with Producer(bootstrap) as producer:
            for _ in range(3):
                await producer.send_and_wait(topic, b"old")
        await until(equals(counted, expected), task)
        # At least once, a commit that finds no topic would fail the task before a fetch does.
        await until(equals(committed, 3), task)
        await admin.delete_topics([topic])
        await gone_everywhere(bootstrap, topic)
        await asyncio.sleep(1)
        await create_topic(topic, 1)
        async with Producer(bootstrap) as producer:
            for _ in range(5):
                await producer.send_and_wait(topic, b"new")
        expected += [(b"new", b"%d" % n) for n in range(4, 9)]
        await until(equals(counted, expected), task)
    assert "was deleted and created again while it was read" in caplog.text


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_late_commit_for_a_deleted_topic_skips_nothing_of_the_new_one(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    """The application ends before it has read the new topic."""
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    for name in (topic, out):
        await create_topic(name, 1)
    holds, goes_on = asyncio.Event(), asyncio.Event()

    def made() -> StreamsApp:
        app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

        @app.processor(topic)
        async def process(record, emit) -> None:
            if record.value == b"old 2":
                holds.set()
                await goes_on.wait()
            await emit(out, record.value)

        return app

    async def fill(what: bytes, count: int) -> None:
        async with Producer(bootstrap) as producer:
            for n in range(count):
                await producer.send_and_wait(topic, b"%s %d" % (what, n))

    async def has_all() -> bool:
        found = [r.value for r in await records(bootstrap, out)]
        return {b"new %d" % n for n in range(5)} <= {*found}

    await fill(b"old", 3)
    async with Admin(bootstrap) as admin, running(made()):
        await holds.wait()
        await admin.delete_topics([topic])
        await gone_everywhere(bootstrap, topic)
        await asyncio.sleep(1)
        await create_topic(topic, 1)
        await fill(b"new", 5)
        goes_on.set()
    async with running(made()) as task:
        await until(has_all, task)


@pytest.mark.full
@pytest.mark.local_cluster
async def test_brokers_that_die_cost_no_record(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    for name in (topic, out):
        await create_topic(name, 3, 3)
    app = application(bootstrap, topic, tmp_path, processing_guarantee="exactly_once_v2")

    @app.processor(topic, store="s")
    async def process(record, store, emit) -> None:
        store[record.value] = b"1"
        await emit(out, record.value)

    async def done() -> list[bytes]:
        return sorted(record.value for record in await records(bootstrap, out, 3))

    expected = [b"%04d" % n for n in range(300)]
    try:
        async with Producer(bootstrap) as producer, running(app) as task:
            for n, value in enumerate(expected):
                await producer.send_and_wait(topic, value, partition=n % 3)
                if n == 150:
                    await kafka_cluster.kill(2)
            await kafka_cluster.heal()
            await until(equals(done, expected), task)
    finally:
        await kafka_cluster.heal()


@pytest.mark.full
@pytest.mark.local_cluster
async def test_only_its_own_task_waits_for_a_partition_without_leader(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    alone = {number: [number] for number in range(3)}
    await create_topic(topic, assignments=alone)
    compacted = {"cleanup.policy": "compact"}
    await create_topic(f"app-{topic}-s-changelog", config=compacted, assignments=alone)
    await create_topic(out, assignments={0: [0, 1]})
    app = application(bootstrap, topic, tmp_path)

    @app.processor(topic, store="s")
    async def process(record, store, emit) -> None:
        store[b"last"] = record.value
        await emit(out, record.value, partition=0)

    async def done() -> set[bytes]:
        return {record.value for record in await records(bootstrap, out)}

    async with Producer(bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait(topic, b"%d" % number, partition=number)
    try:
        await kafka_cluster.kill(2)
        async with running(app) as task:
            await until(equals(done, {b"0", b"1"}), task)
            await kafka_cluster.heal()
            await until(equals(done, {b"0", b"1", b"2"}), task)
    finally:
        await kafka_cluster.heal()


@runs("docs/how-to/streams.md", having="StreamsApp(")
async def test_the_word_count_in_the_docs(
    kafka_cluster, topic, create_topic, tmp_path, block
) -> None:
    """Only the address, the directory, the input topic and the application id are replaced."""
    replaced = {
        "localhost:9092": kafka_cluster.bootstrap,
        'application_id="words"': f'application_id="{topic}", state_dir={str(tmp_path)!r}',
        'processor("lines"': f'processor("{topic}"',
    }
    await create_topic(topic, 2)
    app = block.run(replaced=replaced)["app"]
    async with Producer(kafka_cluster.bootstrap) as producer:
        for partition, line in ((0, b"a b a"), (1, b"a"), (0, b"a c")):
            await producer.send_and_wait(topic, line, partition=partition)

    async def last() -> dict[bytes, bytes]:
        if not any(found.state.value == "running" for found in app.tasks()):
            return {}  # the changelog may not exist yet
        found = await records(kafka_cluster.bootstrap, f"{topic}-counts-changelog", 2)
        return {record.key: record.value for record in found}

    async with running(app) as task:
        await until(equals(last, {b"a": b"4", b"b": b"1", b"c": b"1"}), task)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_changelog_that_is_recreated_during_the_run_is_named(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    """Within a second: before the instance looks whether the topic is gone."""
    bootstrap, changelog = kafka_cluster.bootstrap, f"app-{topic}-s-changelog"
    await create_topic(topic, 1)
    app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

    @app.processor(topic, store="s")
    async def process(record, store, emit) -> None:
        store[b"k"] = record.value

    async with Producer(bootstrap) as producer, Admin(bootstrap) as admin:

        async def feed() -> None:
            while True:
                await producer.send_and_wait(topic, b"")
                await asyncio.sleep(0.02)

        async def has_committed() -> bool:
            return app.metrics().instance["commit-total"] >= 3

        feeding, task = asyncio.create_task(feed()), asyncio.create_task(app.run())
        try:
            await until(has_committed, task)
            await admin.delete_topics([changelog])
            for _ in range(100):
                with suppress(TopicExistsError):
                    await create_topic(changelog, 1)
                    break
                await asyncio.sleep(0.05)
            with pytest.raises(StreamsError, match=f"topic {changelog} was deleted while the appl"):
                async with asyncio.timeout(80):
                    await task
        finally:
            for each in (feeding, task):
                each.cancel()
            await asyncio.gather(feeding, task, return_exceptions=True)
