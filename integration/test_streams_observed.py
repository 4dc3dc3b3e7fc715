"""Applications on real brokers, seen from outside: listeners, metrics, queries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from integration.streams_support import application, running, until
from kafkaclient import Producer
from kafkaclient.errors import ConfigError, StoreUnavailableError
from kafkaclient.prometheus import StreamsMetricsCollector
from kafkaclient.streams import AppState, RestoreListener, Store, StreamsApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kafkaclient.types import TopicPartition

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 4
KEYS = [f"key-{number}" for number in range(40)]
COUNTS = Store("counts", key=str, value=int)
EXAMPLE = Path(__file__).parents[1] / "examples" / "word_count_service.py"


class Restores(RestoreListener):
    """Remembers what was restored."""

    def __init__(self) -> None:
        self.calls: dict[TopicPartition, list[str]] = {}
        self.records = 0

    def _note(self, partition: TopicPartition, what: str) -> None:
        self.calls.setdefault(partition, []).append(what)

    def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        assert store == "counts"
        assert 0 <= start <= end
        self._note(partition, "start")

    def on_batch_restored(
        self, partition: TopicPartition, store: str, offset: int, records: int
    ) -> None:
        self._note(partition, "batch")

    def on_restore_end(self, partition: TopicPartition, store: str, records: int) -> None:
        self.records += records
        self._note(partition, "end")

    def on_restore_suspended(self, partition: TopicPartition, store: str, records: int) -> None:
        self._note(partition, "suspended")


class Counting:
    """An instance that counts keys, and what its listeners were told."""

    def __init__(self, bootstrap: str, topic: str, path: Path, number: int, **options: Any) -> None:
        self.states: list[AppState] = []
        self.restores = Restores()
        self.address = ("127.0.0.1", 9000 + number)
        options = {"application_server": f"127.0.0.1:{9000 + number}", **options}
        self.app: StreamsApp = application(
            bootstrap,
            topic,
            path / str(number),
            state_listener=self._on_state,
            restore_listener=self.restores,
            **options,
        )

        @self.app.processor(topic, key=str, store=COUNTS)
        async def count(record, store, emit) -> None:
            store[record.key] = store.get(record.key, 0) + 1

        self.store = self.app.store(COUNTS)

    def _on_state(self, new: AppState, old: AppState) -> None:
        assert self.app.state is new
        self.states.append(new)


async def send(bootstrap: str, topic: str, times: int) -> None:
    async with Producer(bootstrap) as producer:
        for _ in range(times):
            for key in KEYS:
                await producer.send(topic, b"", key.encode())


def query(instances: list[Counting], key: str) -> int:
    """The count of a key, asked of the first instance, which may name the one to ask."""
    try:
        return instances[0].store.get(key, 0)
    except StoreUnavailableError as error:
        found = [each for each in instances if each.address == error.instance]
        if not found:  # it has just ended, or the key is being restored here
            raise
        (other,) = found
        assert instances[0].app.instance_for("counts", key) == other.address
        return other.store.get(key, 0)


def have_counted(instances: list[Counting], times: int) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        try:
            return {query(instances, key) for key in KEYS} == {times}
        except StoreUnavailableError:
            return False

    return condition


def has_committed_and_followed(instance: Counting) -> Callable[[], Awaitable[bool]]:
    """A query finds what is not committed yet, and a standby follows later."""

    async def condition() -> bool:
        found = instance.app.metrics().instance
        return found["commit-total"] > 0 and found["standby-update-records-total"] > 0

    return condition


async def test_queries_listeners_and_metrics_while_tasks_move(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, PARTITIONS)
    await send(bootstrap, topic, 3)
    options = {"num_standby_replicas": 1, "probing_rebalance_interval_ms": 60_000}
    one, two = (Counting(bootstrap, topic, tmp_path, number, **options) for number in (1, 2))
    registry = CollectorRegistry()
    StreamsMetricsCollector(one.app, registry, tasks=True)
    assert one.app.state is AppState.CREATED
    with pytest.raises(StoreUnavailableError, match="does not run"):
        one.store.get(KEYS[0])
    async with running(one.app) as task:
        await until(have_counted([one], 3), task)
        assert one.states[:2] == [AppState.REBALANCING, AppState.RUNNING]
        assert dict(one.store.items()) == dict.fromkeys(KEYS, 3)
        assert KEYS[0] in one.store
        assert "missing" not in one.store
        with pytest.raises(ConfigError, match="has no partition 4: it has 4 partitions"):
            one.store.get(KEYS[0], partition=4)

        async def spread() -> bool:
            counted = [app.metrics().instance["running-tasks"] for app in (one.app, two.app)]
            scrape = await asyncio.to_thread(generate_latest, registry)
            assert b'kafkaclient_streams_up{application_id="' in scrape
            return counted == [2, 2]

        async with running(two.app) as second:
            await until(spread, second)
            await until(have_counted([one, two], 3), second)
            await until(have_counted([two, one], 3), second)
            assert len(dict(one.store.items())) + len(dict(two.store.items())) == len(KEYS)
            await send(bootstrap, topic, 2)
            await until(have_counted([one, two], 5), second)
            values = two.app.metrics().instance
            assert values["rebalance-total"] >= 1
            assert values["standby-tasks"] == 2
            assert values["process-total"] > 0
            assert len(two.app.metrics().tasks) == 4
            await until(has_committed_and_followed(two), second)
        # Its tasks are promoted from standbys, so almost nothing is restored.
        await until(have_counted([one], 5), task)
        assert two.app.state is AppState.NOT_RUNNING
        assert two.states[-2:] == [AppState.PENDING_SHUTDOWN, AppState.NOT_RUNNING]
    assert one.app.state is AppState.NOT_RUNNING
    processed = one.app.metrics().instance["process-total"]
    assert processed + two.app.metrics().instance["process-total"] >= 5 * len(KEYS)
    for calls in (*one.restores.calls.values(), *two.restores.calls.values()):
        # Each restoration has a start, batches and an end.
        assert re.fullmatch("(start (batch )*(end|suspended) )+", " ".join(calls) + " ")
    one.app.clean_up()
    async with running(one.app) as task:
        await until(have_counted([one], 5), task)
        assert one.restores.records >= len(KEYS)
        assert one.app.metrics().instance["restore-records-total"] >= len(KEYS)
        assert one.app.metrics().instance["process-total"] == processed  # over both runs


async def test_without_application_server_the_error_says_so(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, 2)
    await send(bootstrap, topic, 1)
    instances = [
        Counting(bootstrap, topic, tmp_path, number, application_server=None) for number in (1, 2)
    ]
    one, two = instances
    async with running(one.app) as task, running(two.app):

        async def spread() -> bool:
            return all(each.app.metrics().instance["running-tasks"] == 1 for each in instances)

        await until(spread, task)
        errors = []
        for key in KEYS:
            with contextlib.suppress(StoreUnavailableError):
                one.store.get(key)
                continue
            with pytest.raises(StoreUnavailableError) as caught:
                one.store.get(key)
            errors.append(caught.value)
        assert errors
        assert all("has no application_server" in str(each) for each in errors)
        assert {each.instance for each in errors} == {None}
        with pytest.raises(StoreUnavailableError, match="has no application_server"):
            one.app.instance_for("counts", KEYS[0])
        with pytest.raises(ConfigError, match="has no store 'other'"):
            one.app.instance_for("other", KEYS[0])


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def service(bootstrap: str, lines: str, port: int, path: Path) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLE), bootstrap, lines, "--port", str(port)),
        *("--application", f"app-{lines}", "--state-dir", str(path)),
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0


@pytest.mark.full
async def test_the_example_forwards_questions(kafka_cluster, topic, create_topic, tmp_path) -> None:
    bootstrap, ports = kafka_cluster.bootstrap, [free_port(), free_port()]
    await create_topic(topic, 2)
    words = [f"w{number}" for number in range(12)]
    async with Producer(bootstrap) as producer:
        for number in range(20):
            line = " ".join(words).encode()
            await producer.send_and_wait(topic, line, partition=number % 2)

    async def answers(http: httpx.AsyncClient, port: int) -> set[Any]:
        found: set[Any] = set()
        for word in words:
            try:
                answer = await http.get(f"http://127.0.0.1:{port}/counts/{word}")
            except httpx.HTTPError as error:
                return {repr(error)}
            is_ok = answer.status_code == 200
            found.add(answer.json()["count"] if is_ok else answer.status_code)
        return found

    async with httpx.AsyncClient() as http, service(bootstrap, topic, ports[0], tmp_path):
        async with service(bootstrap, topic, ports[1], tmp_path), asyncio.timeout(90):
            while not all([await answers(http, port) == {20} for port in ports]):
                await asyncio.sleep(0.3)
            for word in words:  # one of the instances forwards the question
                for unknown in (f"{word}%3Fforwarded=true", f"{word}%23", f"{word}%00"):
                    for port in ports:
                        answer = await http.get(f"http://127.0.0.1:{port}/counts/{unknown}")
                        assert (answer.status_code, answer.json()["count"]) == (200, 0)
        async with asyncio.timeout(60):
            while await answers(http, ports[0]) != {20}:
                await asyncio.sleep(0.3)
        assert (await http.get(f"http://127.0.0.1:{ports[0]}/ready")).status_code == 200
