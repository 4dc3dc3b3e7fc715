"""Publish readings of ten sensors, and tell where they went.

    python examples/produce.py localhost:9092 readings --count 1000

A sensor's readings share its key, so they stay in one partition and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from typing import Any

from kafkaclient import KafkaError, Producer


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


async def publish(bootstrap: str, topic: str, count: int) -> Counter[int]:
    """Records written, by partition."""
    async with Producer(
        bootstrap, compression_type="lz4", key_serializer=str.encode, value_serializer=as_json
    ) as producer:
        # send() hands a record over; awaiting what it returns waits until brokers have written it.
        deliveries = [
            await producer.send(topic, {"sensor": n % 10, "reading": n}, key=f"sensor-{n % 10}")
            for n in range(count)
        ]
        written = await asyncio.gather(*deliveries)
    return Counter(metadata.partition for metadata in written)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish readings of ten sensors.")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    parser.add_argument("topic")
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    try:
        written = asyncio.run(publish(options.bootstrap, options.topic, options.count))
    except KafkaError as error:
        sys.exit(f"not published: {error}")
    for partition, records in sorted(written.items()):
        print(f"{options.topic}-{partition}: {records} records")


if __name__ == "__main__":
    main()
