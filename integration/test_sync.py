"""``SyncProducer`` with real brokers: forked workers, threads, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from kafkaclient import SyncConsumer, SyncProducer

if TYPE_CHECKING:
    from kafkaclient.testing.cluster import ClusterHandle

pytestmark = pytest.mark.timeout(180)

WORKERS = """
import os, sys, threading
from kafkaclient import SyncProducer

producer = SyncProducer(sys.argv[1])
producer.send(sys.argv[2], b"parent 0", key=b"parent")  # the thread runs when the children begin


def work(name):
    for n in range(500):
        producer.send(sys.argv[2], b"%s %d" % (name, n), key=name)


def worker(name):
    threads = [threading.Thread(target=work, args=(b"%s-%d" % (name, n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


children = []
for name in (b"one", b"two"):
    child = os.fork()
    if child == 0:
        worker(name)
        sys.exit()
    children.append(child)
producer.send(sys.argv[2], b"parent 1", key=b"parent")
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


async def test_forked_workers_that_nobody_closes_lose_nothing(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 3)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKERS, kafka_cluster.bootstrap, topic, stderr=PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    written: dict[bytes | None, list[int]] = {}
    for record in sorted(await read_topic(topic), key=lambda r: (r.partition, r.offset)):
        written.setdefault(record.key, []).append(int(record.value.split()[1]))
    assert written.pop(b"parent") == [0, 1]
    assert len(written) == 8
    assert all(numbers == list(range(500)) for numbers in written.values())


def send(cluster: ClusterHandle, topic: str, records: int, key: bytes | None = None) -> None:
    with SyncProducer(cluster.bootstrap) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number, key, partition=number % 4)
            time.sleep(0.001)


async def test_consumers_in_threads_share_a_group_and_lose_nothing(
    kafka_cluster, topic, create_topic
):
    """Two consumers with a pool of workers each; one leaves in the middle, by an exception."""
    await create_topic(topic, 4)
    seen: Counter[bytes] = Counter()
    consumers: list[SyncConsumer] = []

    def consume(stop_after: int | None) -> None:
        with (
            ThreadPoolExecutor(4) as pool,
            SyncConsumer(
                kafka_cluster.bootstrap,
                group_id=f"g-{topic}",
                topics=[topic],
                auto_offset_reset="earliest",
                heartbeat_interval_ms=300,
            ) as consumer,
        ):
            consumers.append(consumer)
            for taken, record in enumerate(consumer.tracked()):
                pool.submit(lambda one=record: (seen.update([one.value]), one.done()))
                if taken == stop_after:
                    raise RuntimeError("enough")
                if len(seen) == 3000 and record.key == b"last":
                    return

    def have_two_partitions_each() -> bool:
        return [len(consumer.assignment) for consumer in consumers] == [2, 2]

    leaving = asyncio.create_task(asyncio.to_thread(consume, 500))
    staying = asyncio.create_task(asyncio.to_thread(consume, None))
    try:
        async with asyncio.timeout(150):
            # One that joins late may find that the other has taken all records.
            while not await asyncio.to_thread(have_two_partitions_each):
                await asyncio.sleep(0.1)
            await asyncio.to_thread(send, kafka_cluster, topic, 3000)
            with pytest.raises(RuntimeError, match="enough"):
                await leaving
            while len(seen) < 3000:
                await asyncio.sleep(0.1)
            await asyncio.to_thread(send, kafka_cluster, topic, 4, b"last")
            await asyncio.shield(staying)
    finally:
        for consumer in consumers:
            await asyncio.to_thread(consumer.stop)
    assert sum(seen.values()) < 3000 + 600, "only what the leaving one had in hand comes again"
