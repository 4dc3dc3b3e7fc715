"""The common commit of an instance's tasks on real brokers: processes are killed or paused with an
open transaction, brokers are killed during commits, and many tasks share few connections."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.brokers import configured_everywhere
from integration.streams_support import GUARANTEES, application, equals, records, running, until
from integration.test_streams_app import (
    PARTITIONS,
    assert_exact,
    consumed,
    instance,
    load,
    numbers,
)
from kafkaclient import Producer
from kafkaclient.admin import Admin, ConfigResource
from kafkaclient.errors import ProcessingError

if TYPE_CHECKING:
    from kafkaclient.streams import StreamsApp

pytestmark = pytest.mark.timeout(180)


def options(bootstrap: str, topic: str, path: Path, **more: Any) -> dict[str, Any]:
    """Transactions are nearly always open, and brokers end none of them."""
    return {
        "bootstrap_servers": bootstrap,
        "application_id": f"app-{topic}",
        "state_dir": str(path),
        "processing_guarantee": "exactly_once_v2",
        "commit_interval_ms": 1000,
        "session_timeout_ms": 6000,
        "producer_options": {"transaction_timeout_ms": 120_000},
        **more,
    }


async def open_transactions(bootstrap: str, topic: str) -> list[str]:
    async with Admin(bootstrap) as admin:
        listed = await admin.list_transactions(f"app-{topic}-")
        return [each.transactional_id for each in listed if each.state == "Ongoing"]


@pytest.mark.full
async def test_the_next_owner_ends_a_killed_processs_transaction(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """It does not wait for transaction.timeout.ms."""
    bootstrap, target = kafka_cluster.bootstrap, f"{topic}-counts"
    await create_topic(topic, PARTITIONS)
    await create_topic(target, PARTITIONS)
    async with AsyncExitStack() as stack:
        async with load(bootstrap, topic) as sent:
            first = await stack.enter_async_context(
                instance(topic, target, options(bootstrap, topic, tmp_path / "a"))
            )
            await first.runs(4)
            second = await stack.enter_async_context(
                instance(topic, target, options(bootstrap, topic, tmp_path / "b"))
            )
            await second.runs(2)
            while len(await open_transactions(bootstrap, topic)) < 2:
                await asyncio.sleep(0.01)
            first.process.send_signal(signal.SIGKILL)
            killed = time.monotonic()
            await second.runs(4)
            took_s = time.monotonic() - killed
            print(f"tasks of the killed process run again after {took_s:.1f} s")
            assert took_s < 6 + 4
            await asyncio.sleep(2)
        await consumed(bootstrap, f"app-{topic}", topic)
        assert await second.end(signal.SIGTERM) == 0
    assert_exact(await numbers(bootstrap, target), sent)


@pytest.mark.full
async def test_a_paused_process_is_fenced_and_nothing_of_it_is_seen(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap, target = kafka_cluster.bootstrap, f"{topic}-counts"
    await create_topic(topic, PARTITIONS)
    await create_topic(target, PARTITIONS)
    async with AsyncExitStack() as stack:
        async with load(bootstrap, topic) as sent:
            first = await stack.enter_async_context(
                instance(topic, target, options(bootstrap, topic, tmp_path / "a"))
            )
            await first.runs(4)
            second = await stack.enter_async_context(
                instance(topic, target, options(bootstrap, topic, tmp_path / "b"))
            )
            await second.runs(2)
            while len(await open_transactions(bootstrap, topic)) < 2:
                await asyncio.sleep(0.01)
            first.process.send_signal(signal.SIGSTOP)
            await second.runs(4)
            await asyncio.sleep(2)
            first.process.send_signal(signal.SIGCONT)
            await second.runs(2)
            await first.runs(2)
            await asyncio.sleep(1)
        await consumed(bootstrap, f"app-{topic}", topic)
        assert await first.end(signal.SIGTERM) == 0
        assert await second.end(signal.SIGTERM) == 0
    assert_exact(await numbers(bootstrap, target), sent)


@pytest.mark.full
@pytest.mark.local_cluster
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_brokers_are_killed_during_commits(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    """One after the other: among them are the coordinators of the transactions and of the group.

    The topics are replicated: a coordinator ends a transaction without a marker in a partition that
    has no leader (docs/concepts/guarantees.md)."""
    bootstrap, target = kafka_cluster.bootstrap, f"{topic}-counts"
    replicated = (PARTITIONS, 3, {"min.insync.replicas": "2"})
    await create_topic(topic, *replicated)
    await create_topic(target, *replicated)
    app = application(
        bootstrap, topic, tmp_path, processing_guarantee=guarantee, commit_interval_ms=20
    )

    @app.processor(topic, store="counts")
    async def count(record, store, emit) -> None:
        number = int(store.get(record.key) or 0) + 1
        store[record.key] = b"%d" % number
        await emit(target, b"%d" % number, record.key)

    async with running(app) as task:
        async with load(bootstrap, topic) as sent:
            for node in range(3):
                await asyncio.sleep(2)
                await kafka_cluster.kill(node)
                await asyncio.sleep(1)
                await kafka_cluster.heal()
            await asyncio.sleep(2)
        assert not task.done()
        await consumed(bootstrap, f"app-{topic}", topic)
    found = await numbers(bootstrap, target)
    if guarantee == "exactly_once_v2":
        assert_exact(found, sent)
    else:
        assert all(max(found[key]) >= count for key, count in sent.items())


def connections(ports: set[int]) -> int:
    """Established connections of this machine to the ports."""
    found = 0
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(name).read_text().splitlines()[1:]:
            _, _, remote, state, *_ = line.split()
            found += state == "01" and int(remote.rpartition(":")[2], 16) in ports
    return found


@pytest.mark.full
@pytest.mark.local_cluster
async def test_many_tasks_need_no_more_connections_than_two(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap = kafka_cluster.bootstrap
    out = f"{topic}-out"
    await create_topic(out, 1)
    ports = {int(each.rpartition(":")[2]) for each in bootstrap.split(",")}

    async def used(partitions: int) -> int:
        source = f"{topic}-{partitions}"
        await create_topic(source, partitions)
        before = connections(ports)
        app = application(bootstrap, source, tmp_path)

        @app.processor(source, store="s")
        async def copy(record, store, emit) -> None:
            store[b"last"] = record.value
            await emit(out, record.value, partition=0)

        async def committed() -> int:
            found = await records(bootstrap, out)
            return len({record.value for record in found if record.value.startswith(prefix)})

        prefix = b"%d " % partitions
        async with Producer(bootstrap) as producer:
            for number in range(partitions):
                await producer.send(source, b"%d %d" % (partitions, number), partition=number)
        async with running(app) as task:
            await until(equals(committed, partitions), task, 100)
            await asyncio.sleep(1)
            return connections(ports) - before

    few, many = await used(2), await used(200)
    print(f"connections: {few} with 2 tasks, {many} with 200")
    assert many <= few + 12, "more brokers lead partitions, but no task has its own"


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_changes_that_are_too_large_are_named(
    kafka_cluster, topic, create_topic, tmp_path, guarantee, caplog
) -> None:
    """Too large for the producer or for the changelog: the record's error."""
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, 1)

    def made(**handler: Any) -> StreamsApp:
        app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

        @app.processor(topic, store="s", **handler)
        async def keep(record, store, emit) -> None:
            store[b"key"] = bytes(int(record.value))

        return app

    async with Producer(bootstrap) as producer, Admin(bootstrap) as admin:
        await producer.send_and_wait(topic, b"2000000")
        with pytest.raises(
            ProcessingError, match=r"-0, offset 0, .*store 's': the value of key b'key' has 2000000"
        ):
            await made().run()
        changelog = ConfigResource.topic(f"app-{topic}-s-changelog")
        await admin.alter_configs(changelog, {"max.message.bytes": "10000"})
        await configured_everywhere(bootstrap, changelog.name, "max.message.bytes", "10000")
        await producer.send_and_wait(topic, b"50000")
        message = r"-0, offset 1, .*a change of 50003 bytes, with the key b'key', .*s-changelog-0"

        async def is_skipped() -> bool:
            return re.search(f"{message}.*it was skipped", caplog.text) is not None

        async with running(made(on_error="skip")) as task:
            await until(is_skipped, task)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_missing_output_topic_ends_the_application(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    """Also with on_error="skip": all records would be skipped in silence."""
    await create_topic(topic, 1)
    app = application(
        kafka_cluster.bootstrap,
        topic,
        tmp_path,
        processing_guarantee=guarantee,
        producer_options={"max_block_ms": 3000},
    )

    @app.processor(topic, store="s", on_error="skip")
    async def copy(record, store, emit) -> None:
        await emit(f"{topic}-nowhere", record.value)

    async with Producer(kafka_cluster.bootstrap) as producer:
        await producer.send_and_wait(topic, b"1")
    began = time.monotonic()
    with pytest.raises(ProcessingError, match=f"offset 0, .*{topic}-nowhere"):
        await app.run()
    assert time.monotonic() - began < 30, "max.block.ms is 3 s, by default 60"
