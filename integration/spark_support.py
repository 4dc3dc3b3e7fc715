"""Records for tests of Spark's reads."""

from __future__ import annotations

import time

from aiokafka import AIOKafkaProducer

BEGAN = int(time.time() * 1000) - 100_000
"""The timestamp of record 0, in milliseconds: recent, because brokers delete old records."""


async def fill(bootstrap: str, topic: str, numbers: range, partitions: int = 3) -> None:
    """Write a record for each number, with aiokafka."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    await producer.start()
    try:
        for n in numbers:
            headers = [("n", b"%d" % n)] if n % 2 else None
            key = None if n % 3 else b"k%d" % n
            await producer.send(topic, b"%d" % n, key, n % partitions, BEGAN + n, headers)
    finally:
        await producer.stop()
