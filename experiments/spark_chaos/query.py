"""The driver's program: a query that copies a topic, until it is killed or the topic ends.

The only argument is a JSON object, which :class:`experiments.spark_chaos.drivers.Driver` makes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from kafkaclient.spark import spark_session

_SERVER_WITHIN_S = 120.0


def in_order(batches: Any) -> Any:
    """The rows of a task in the order of their source, which a shuffle has mixed."""
    import pyarrow as pa  # noqa: PLC0415 - on the worker

    if found := list(batches):
        table = pa.Table.from_batches(found).sort_by(
            [("partition", "ascending"), ("offset", "ascending")]
        )
        yield from table.select(["key", "value"]).to_batches()


def main(text: str) -> None:
    given = json.loads(text)
    if given["master"].startswith("sc://"):
        _wait_for_server(given["master"])
    spark = spark_session("spark-chaos", given["master"], given["config"])
    frame = spark.readStream.format("kafkaclient").options(**given["read"]).load()
    frame = frame.select("partition", "offset", "key", "value").repartition("key")
    stream = frame.mapInArrow(in_order, "key binary, value binary").writeStream
    stream = stream.format("kafkaclient").options(**given["write"])
    query = stream.trigger(**given["trigger"]).start()
    threading.Thread(target=_tell, args=(query, os.getppid()), daemon=True).start()
    query.awaitTermination()
    spark.stop()


def _wait_for_server(url: str) -> None:
    address = urlsplit(url)
    deadline = time.monotonic() + _SERVER_WITHIN_S
    while True:
        with suppress(OSError), socket.create_connection((address.hostname, address.port), 1):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no Connect server at {url} within {_SERVER_WITHIN_S:g} s")
        time.sleep(0.2)


def _tell(query: Any, parent: int) -> None:
    """Print the number of each batch. End with the campaign."""
    told = -1
    while True:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)
        last = query.lastProgress
        if last is not None and last["batchId"] > told:
            told = last["batchId"]
            sys.stdout.write(f"batch {told}\n")
            sys.stdout.flush()
        time.sleep(0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
