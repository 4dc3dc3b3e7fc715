"""faust-streaming's producer over ``install()``: ``python faust_service.py BOOTSTRAP TOPIC``.

Sends records in each way that faust's producer has, and prints what it was told as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from kafkaclient.aiokafka import install

install()

import faust  # noqa: E402 - after install(), as docs/how-to/aiokafka.md says


async def main(bootstrap: str, topic: str) -> None:
    app = faust.App(
        "neighbour",
        broker=f"kafka://{bootstrap.replace(',', ';')}",
        topic_allow_declare=False,  # it creates topics by aiokafka's own requests
    )
    producer = app.producer
    await producer.start()
    try:
        print(json.dumps(await told(producer, topic)))
    finally:
        await producer.stop()


async def told(producer: Any, topic: str) -> dict[str, Any]:
    keyed = await producer.send_and_wait(topic, b"key", b"keyed", None, None, None)
    await producer.send_and_wait(topic, None, b"explicit", 3, 1_500_000_000.0, {"h": b"v"})
    future = await producer.send(topic, b"other key", b"buffered", None, None, None)
    await producer.flush()
    assert future.done()
    await producer.begin_transaction("neighbour-1")
    await producer.send(topic, b"k", b"committed", 0, None, None, transactional_id="neighbour-1")
    await producer.commit_transaction("neighbour-1")
    await producer.begin_transaction("neighbour-1")
    gone = await producer.send(
        topic, b"k", b"aborted", 0, None, None, transactional_id="neighbour-1"
    )
    await producer.abort_transaction("neighbour-1")
    assert gone.done()
    gone.exception()  # whether the record was sent before the abort depends on the time
    used = type(producer._producer)
    return {
        "producer": f"{used.__module__}.{used.__qualname__}",
        "keyed": [keyed.partition, keyed.offset],
        "key_partition": producer.key_partition(topic, b"key").partition,
    }


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
