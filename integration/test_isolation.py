"""Brokers in trouble, each in another way: the records for the others are not held up.

Keyed records at a steady rate, by ``send`` from many tasks and by ``send_many``, with a buffer that
the records of the faulty brokers would fill in a second. Afterwards nothing is lost, duplicated or
reordered.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.errors import BufferFullError
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from kafkaclient import Delivery

pytestmark = [pytest.mark.timeout(180), pytest.mark.local_cluster]

PARTITIONS = 10
TICK_S = 0.02
QUIET_S, FAULT_S = 0.5, 2.0
BUFFER = 150_000  # bytes
LONGEST_S = 2.0
"""The p99 of the records for brokers that are well, on a busy machine: on a quiet one it is about
15 ms without the fault. A record that waits for the faulty broker has no outcome by then."""
CLIENT = "isolation"
QUOTA = 20_000  # bytes per second at each broker


@asynccontextmanager
async def paused(cluster: Any, node: int) -> AsyncIterator[None]:
    await cluster.pause(node)
    yield
    await cluster.resume(node)


@asynccontextmanager
async def takes_no_bytes(cluster: Any, *nodes: int) -> AsyncIterator[None]:
    for node in nodes:
        await cluster.proxy(node).stall()
    yield
    for node in nodes:
        await cluster.proxy(node).resume()


@asynccontextmanager
async def answers_nothing(cluster: Any, node: int) -> AsyncIterator[None]:
    """Writes what it gets: the client cannot know."""
    await cluster.proxy(node).delay_produce(60)
    yield
    await cluster.proxy(node).delay_produce(0)
    await cluster.proxy(node).cut()


@asynccontextmanager
async def leaderless(cluster: Any, node: int) -> AsyncIterator[None]:
    """The only replica of its partitions is gone."""
    await cluster.kill(node)
    yield
    await cluster.start_broker(node)


@asynccontextmanager
async def throttled(cluster: Any, _node: int) -> AsyncIterator[None]:
    """Each broker has the quota, but only one gets more bytes than that."""
    entity = ("--entity-type", "clients", "--entity-name", CLIENT)
    address = ("--bootstrap-server", cluster.bootstrap, "--alter")
    tool = "org.apache.kafka.tools.ConfigCommand"
    quota = f"producer_byte_rate={QUOTA}"
    set_up = await cluster.run_tool(tool, *address, *entity, "--add-config", quota)
    assert set_up.returncode == 0, set_up.stderr
    yield
    await cluster.run_tool(tool, *address, *entity, "--delete-config", "producer_byte_rate")


@asynccontextmanager
async def two_of_five(cluster: Any, node: int) -> AsyncIterator[None]:
    async with takes_no_bytes(cluster, node, node + 1):
        yield


class Load:
    """Records with keys at a steady rate. Those for the brokers ``faulty`` are large."""

    def __init__(self, producer: Producer, topic: str, brokers: int, faulty: set[int]) -> None:
        self.latencies: dict[bytes, float] = {}
        """Of the records of ``send`` for the other brokers, by value: seconds."""
        self.due: dict[bytes, float] = {}
        self.sent = 0
        self._producer = producer
        self._topic = topic
        self._keys = [self.key_of(partition) for partition in range(PARTITIONS)]
        self._is_large = [partition % brokers in faulty for partition in range(PARTITIONS)]
        self._tasks = set[asyncio.Task[Any]]()
        self.deliveries: list[Any] = []

    @staticmethod
    def key_of(partition: int) -> bytes:
        keys = (b"key %d" % n for n in count())
        return next(key for key in keys if partition_for_key(key, PARTITIONS) == partition)

    def _row(self, way: bytes, number: int) -> tuple[bytes, bytes]:
        partition = number % PARTITIONS
        size = 1000 if self._is_large[partition] else 60
        return self._keys[partition], b"%s %07d " % (way, number) + bytes(size)

    async def run(self, seconds: float) -> None:
        until, tick = time.monotonic() + seconds, 0
        while (now := time.monotonic()) < until:
            for _ in range(PARTITIONS):
                key, value = self._row(b"send", self.sent)
                if not self._is_large[self.sent % PARTITIONS]:
                    self.due[value] = now
                self._start(self._send(key, value))
                self.sent += 1
            if tick % 5 == 0:
                rows = [self._row(b"many%d" % self.sent, n) for n in range(2 * PARTITIONS)]
                keys, values = zip(*rows, strict=True)
                self._start(self._send_many(list(values), list(keys)))
                self.sent += len(rows)
            tick += 1
            await asyncio.sleep(max(0.0, now + TICK_S - time.monotonic()))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, key: bytes, value: bytes) -> None:
        delivery: Delivery = await self._producer.send(self._topic, value, key)
        self.deliveries.append(delivery)
        if value in self.due:
            await delivery
            self.latencies[value] = time.monotonic() - self.due[value]

    async def _send_many(self, values: list[bytes], keys: list[bytes]) -> None:
        self.deliveries.append(await self._producer.send_many(self._topic, values, keys=keys))

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks)
        for delivery in self.deliveries:
            await delivery

    def fill(self, partition: int) -> BufferFullError:
        """Send more records for one partition, until one finds no room."""
        for _ in range(BUFFER // len(b"full")):
            try:
                delivery = self._producer.send_nowait(self._topic, b"full", partition=partition)
            except BufferFullError as error:
                return error
            self.deliveries.append(delivery)
            self.sent += 1
        raise AssertionError("the records of one broker have no bound")


def assert_in_order(read: list[Any]) -> None:
    values = [record.value for record in read if record.value != b"full"]
    assert len(values) == len(set(values)), "duplicated"
    rows = defaultdict(list)
    for record in read:  # by partition and offset; all records of a partition have one key
        if record.value != b"full":
            way, number, _ = record.value.split(b" ", 2)
            rows[record.partition, way].append(int(number))
    for numbers in rows.values():
        assert all(before < after for before, after in pairwise(numbers)), "reordered"


FULL = pytest.mark.full
FIVE = pytest.mark.kafka_cluster(brokers=5)
CASES = [
    pytest.param(paused, id="SIGSTOP"),
    pytest.param(takes_no_bytes, id="takes no bytes"),
    pytest.param(answers_nothing, id="answers nothing"),
    pytest.param(leaderless, id="no leader", marks=FULL),
    pytest.param(throttled, id="throttled", marks=FULL),
    pytest.param(two_of_five, id="two of five", marks=[FULL, FIVE]),
]


@pytest.mark.parametrize("fault", CASES)
async def test_records_for_the_other_brokers_flow_on(
    kafka_cluster: Any,
    topic: str,
    create_topic: Any,
    read_topic: Any,
    fault: Callable[..., AbstractAsyncContextManager[None]],
) -> None:
    brokers, node = len(kafka_cluster.brokers), 1
    faulty = {node, node + 1} if fault is two_of_five else {node}
    await create_topic(topic, assignments={p: [p % brokers] for p in range(PARTITIONS)})
    async with Producer(
        kafka_cluster.proxied_bootstrap, buffer_memory=BUFFER, client_id=CLIENT
    ) as producer:
        for partition in range(PARTITIONS):
            await producer.send_and_wait(topic, b"full", partition=partition)
        load = Load(producer, topic, brokers, faulty)
        await load.run(QUIET_S)
        async with fault(kafka_cluster, node):
            before = len(load.due)
            await load.run(FAULT_S)
            during = list(load.due)[before:]
            refused = load.fill(node)
            await asyncio.sleep(LONGEST_S)
            took = sorted(load.latencies.get(value, 60.0) for value in during)
        await asyncio.wait_for(load.finish(), 60)
    own, *most = refused.holder.split("; most of the buffer, ")
    assert f"wait for broker {node}" in own or "wait for a leader of their partition" in own
    assert all(any(f"wait for broker {number}" in one for number in faulty) for one in most)
    assert took[int(len(took) * 0.99)] <= LONGEST_S, (fault, took[len(took) // 2], took[-10:])
    read = await read_topic(topic)
    assert len(read) == load.sent + PARTITIONS
    assert_in_order(read)
