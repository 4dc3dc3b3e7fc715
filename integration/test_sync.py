"""``SyncProducer`` with real brokers: forked workers, threads, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

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
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    written: dict[bytes | None, list[int]] = {}
    for record in sorted(await read_topic(topic), key=lambda r: (r.partition, r.offset)):
        written.setdefault(record.key, []).append(int(record.value.split()[1]))
    assert written.pop(b"parent") == [0, 1]
    assert len(written) == 8
    assert all(numbers == list(range(500)) for numbers in written.values())
