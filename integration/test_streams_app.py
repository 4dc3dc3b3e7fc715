"""Instances of a streams application as processes on real brokers: started, killed, started again.

For every record the application emits the count of its key so far. The counts of a key in the log
are 1, 2, 3, ... if and only if each record was counted once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from integration.streams_support import records
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import StateStoreError, StreamsError
from kafkaclient.streams import Role, StreamsApp, describe_application

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


pytestmark = pytest.mark.timeout(180)

SCRIPT = Path(__file__).parent / "streams_instance.py"
PARTITIONS = 4
KEYS = 40


class Instance:
    """One process, and the states of its tasks that it prints."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.tasks: dict[str, str] = {}
        self.has_started = asyncio.Event()
        """Set when it has printed a line or ended. A busy machine starts a process slowly."""
        self._changed = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.has_started.set()
            async with self._changed:
                self.tasks = json.loads(line)
                self._changed.notify_all()
        self.has_started.set()

    def running(self) -> int:
        return list(self.tasks.values()).count("running")

    async def runs(self, count: int) -> None:
        await self.has_started.wait()
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.running() == count)

    async def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        async with asyncio.timeout(60):
            code = await self.process.wait()
        await self._reading
        return code


@asynccontextmanager
async def instance(source: str, target: str, options: dict[str, Any]) -> AsyncIterator[Instance]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        source,
        target,
        json.dumps(options),
        stdout=PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    started = Instance(process)
    try:
        yield started
    finally:
        if process.returncode is None:
            await started.end(signal.SIGKILL)


@asynccontextmanager
async def load(bootstrap: str, source: str) -> AsyncIterator[Counter[bytes]]:
    """Send some hundred records a second until the block ends. Yields how many of each key."""
    sent: Counter[bytes] = Counter()
    stopped = asyncio.Event()

    async def send() -> None:
        async with Producer(bootstrap, linger_ms=5) as producer:
            while not stopped.is_set():
                keys = [b"key-%d" % ((sent.total() + number) % KEYS) for number in range(10)]
                deliveries = [await producer.send(source, b"", key) for key in keys]
                for key, delivery in zip(keys, deliveries, strict=True):
                    await delivery
                    sent[key] += 1
                await asyncio.sleep(0.02)

    sending = asyncio.create_task(send())
    try:
        yield sent
    finally:
        stopped.set()
        await sending


async def consumed(bootstrap: str, group: str, source: str) -> None:
    """Wait until the group has committed all end offsets."""
    partitions = [TopicPartition(source, number) for number in range(PARTITIONS)]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await admin.start()
    await consumer.start()
    try:
        ends = await consumer.end_offsets(partitions)
        async with asyncio.timeout(60):
            while True:
                found = await admin.list_consumer_group_offsets(group)
                if all(tp in found and found[tp].offset >= ends[tp] for tp in partitions):
                    return
                await asyncio.sleep(0.1)
    finally:
        await consumer.stop()
        await admin.close()


async def numbers(bootstrap: str, target: str) -> dict[bytes, list[int]]:
    """Key -> its counts in the log's order, once no transaction is open."""
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for record in await records(bootstrap, target, PARTITIONS, open_transactions=False):
        found[record.key].append(int(record.value))
    return found


def assert_exact(found: dict[bytes, list[int]], sent: Counter[bytes]) -> None:
    wrong = {
        key: f"{count} sent, {len(found[key])} counted, from {found[key][:5]} to {found[key][-5:]}"
        for key, count in sent.items()
        if found[key] != list(range(1, count + 1))
    }
    assert not wrong


async def assert_described(bootstrap: str, group: str) -> None:
    """The group is described as balanced, with two tasks on each of two processes."""
    async with Admin(bootstrap) as admin:
        found = await describe_application(admin, group)
        while found.is_rebalancing or not found.is_balanced:
            await asyncio.sleep(0.1)
            found = await describe_application(admin, group)
    tasks = [{str(copy.task) for copy in member.copies} for member in found.members]
    assert [len(each) for each in tasks] == [2, 2]
    assert set.union(*tasks) == {"0_0", "0_1", "0_2", "0_3"}
    copies = [copy for member in found.members for copy in member.copies]
    assert {copy.role for copy in copies} == {Role.ACTIVE}
    assert all(copy.lag is not None and copy.position and copy.end for copy in copies)


@pytest.mark.full
async def test_every_record_counts_once_while_instances_start_and_end(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    source, target, bootstrap = topic, f"{topic}-counts", kafka_cluster.bootstrap
    await create_topic(source, PARTITIONS)
    await create_topic(target, PARTITIONS)
    common = {
        "bootstrap_servers": bootstrap,
        "application_id": f"app-{topic}",
        "processing_guarantee": "exactly_once_v2",
        "acceptable_recovery_lag": 100,
        "session_timeout_ms": 6000,
    }
    a = {**common, "state_dir": str(tmp_path / "a")}
    b = {**common, "state_dir": str(tmp_path / "b")}
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(instance(source, target, a))
        async with load(bootstrap, source) as sent:
            await first.runs(4)
            await asyncio.sleep(2)  # exceeds acceptable.recovery.lag: the next instance warms up
            second = await stack.enter_async_context(instance(source, target, b))
            await second.runs(2)
            await first.runs(2)
            await assert_described(bootstrap, common["application_id"])
            await second.end(signal.SIGKILL)
            await first.runs(4)
            third = await stack.enter_async_context(instance(source, target, b))
            await third.runs(2)
            await first.runs(2)
            assert await first.end(signal.SIGTERM) == 0
            await third.runs(4)
            await asyncio.sleep(0.5)
        await consumed(bootstrap, common["application_id"], source)
        assert await third.end(signal.SIGTERM) == 0
    assert sent.total() > 1000
    assert_exact(await numbers(bootstrap, target), sent)


async def test_a_second_instance_cannot_use_the_same_directory(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """The second instance ends with an error, and the first one goes on, with at_least_once."""
    target = f"{topic}-counts"
    await create_topic(topic, PARTITIONS)
    await create_topic(target, PARTITIONS)
    options = {
        "bootstrap_servers": kafka_cluster.bootstrap,
        "application_id": f"app-{topic}",
        "state_dir": str(tmp_path),
    }
    async with instance(topic, target, options) as first:
        await first.runs(4)
        async with instance(topic, target, options) as second, asyncio.timeout(60):
            assert await second.process.wait() == 1
        async with load(kafka_cluster.bootstrap, topic) as sent:
            await asyncio.sleep(0.5)
        await consumed(kafka_cluster.bootstrap, options["application_id"], topic)
        assert first.running() == 4
        assert await first.end(signal.SIGTERM) == 0
    assert_exact(await numbers(kafka_cluster.bootstrap, target), sent)


@pytest.mark.parametrize("partitions", [PARTITIONS - 1, None])
async def test_errors_name_wrong_and_missing_topics(
    kafka_cluster, topic, create_topic, tmp_path, partitions
) -> None:
    """A changelog has a wrong number of partitions, or the input topic is missing."""

    app = StreamsApp(kafka_cluster.bootstrap, application_id=f"app-{topic}", state_dir=tmp_path)

    @app.processor(topic, store="counts")
    async def count(record, store, emit) -> None:
        """Never called."""

    if partitions is None:
        with pytest.raises(StreamsError, match=f"topic {topic} does not exist"):
            await app.run()
        return
    await create_topic(topic, PARTITIONS)
    changelog = f"app-{topic}-counts-changelog"
    async with Admin(kafka_cluster.bootstrap) as admin:
        await admin.create_topic(changelog, partitions, configs={"cleanup.policy": "compact"})
    with pytest.raises(StateStoreError, match=f"has 3 partitions, but {topic}"):
        await app.run()
