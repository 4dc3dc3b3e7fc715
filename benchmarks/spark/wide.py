"""What do very many rows, and very many partitions, cost a Spark query?

    python -m benchmarks.spark.wide [--rows 100000000] [--topics 200] [--peer-python PYTHON]
                                    [--out FILE]

One local broker; PySpark with this data source and, with ``--peer-python``, with spark-sql-kafka,
on two cores, one after the other. Rows have 100 bytes. Each writes a tenth of the rows, then all,
and reads both. Memory is the most that a Spark's Python workers, and its JVM, had at one time for
themselves. Then a stream reads ``--topics`` topics of ten partitions: the time of a trigger's steps
without its rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.spark.workers import OURS, PEER, at, spark_worker, temporary_topics
from experiments.machine import machine_facts
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from benchmarks.spark.workers import Worker

_MB = 1024 * 1024
_LOOK_EVERY_S = 0.2
_STREAM_S = 240  # a batch of 2,000 partitions takes a minute
_PARTITIONS = 10


class Memory:
    """Looks at the processes of a Spark while a block runs."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._task: asyncio.Task[None] | None = None
        self.python_mb = self.jvm_mb = 0.0

    async def __aenter__(self) -> Memory:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _watch(self) -> None:
        while True:
            python = jvm = 0
            try:
                processes = self._root.children(recursive=True)
            except psutil.NoSuchProcess:  # has ended just now
                return
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    memory = process.memory_full_info().uss
                    if process.name() == "java":
                        jvm += memory
                    else:
                        python += memory
            self.python_mb = max(self.python_mb, python / _MB)
            self.jvm_mb = max(self.jvm_mb, jvm / _MB)
            await asyncio.sleep(_LOOK_EVERY_S)


async def _rows(bootstrap: str, worker: Worker, most: int) -> list[dict[str, Any]]:
    runs = []
    topics = {rows: f"wide-{worker.connector}-{rows}" for rows in (most // 10, most)}
    async with temporary_topics(bootstrap, *topics.values()):
        for job in ("write", "read"):  # each twice in a row: Spark keeps Python workers
            for rows, topic in topics.items():
                async with Memory(worker.pid) as memory:
                    done = await worker.do(do=job, rows=rows, topic=topic, options=at(bootstrap))
                assert done["rows"] == rows, (worker.connector, job, done)
                found = {
                    "client": worker.connector,
                    "job": job,
                    "rows": rows,
                    "seconds": round(done["seconds"], 1),
                    "python_mb": round(memory.python_mb),
                    "jvm_mb": round(memory.jvm_mb),
                }
                sys.stderr.write(f"{found}\n")
                runs.append(found)
    return runs


async def _trigger(bootstrap: str, worker: Worker, topics: int) -> dict[str, Any]:
    names = [f"narrow-{number}" for number in range(topics)]
    async with (
        temporary_topics(bootstrap, *names, partitions=_PARTITIONS),
        temporary_topics(bootstrap, f"copied-{worker.connector}"),
    ):
        async with Producer(bootstrap) as producer:
            for name in names:
                await producer.send_many(name, [bytes(100)] * _PARTITIONS)
        with TemporaryDirectory() as checkpoint:
            await worker.tell(
                do="copy",
                topic=",".join(names),
                to=f"copied-{worker.connector}",
                options=at(bootstrap),
                checkpoint=checkpoint,
                trigger="1 second",
                seconds=_STREAM_S,
            )
            started = asyncio.create_task(worker.answer())
            async with Producer(bootstrap) as producer:
                await started
                feed = asyncio.create_task(_feed(producer, names))
                done = await worker.answer()
                feed.cancel()
                await asyncio.wait({feed})
    triggers = [batch["steps_ms"] for batch in done["batches"][1:] if batch["rows"]]
    planned = [sum(ms for step, ms in each.items() if step in _PLANNING) for each in triggers]
    found = {
        "client": worker.connector,
        "topics": topics,
        "partitions": topics * _PARTITIONS,
        "triggers": len(triggers),
        "planning_ms": round(median(planned)),
        "planning_most_ms": round(max(planned)),
        "trigger_ms": round(median(each["triggerExecution"] for each in triggers)),
    }
    sys.stderr.write(f"{found}\n")
    return found


_PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets")


async def _feed(producer: Producer[Any, Any], names: list[str]) -> None:
    while True:
        for name in names:
            await producer.send_many(name, [bytes(100)] * _PARTITIONS)
        await asyncio.sleep(0.5)


async def _main(given: argparse.Namespace) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster(1, long_lived=True, heap_mb=1024))
        workers = [await stack.enter_async_context(spark_worker(Path(sys.executable), OURS))]
        if given.peer_python:
            peer = spark_worker(given.peer_python, PEER)
            workers.append(await stack.enter_async_context(peer))
        rows = [run for each in workers for run in await _rows(cluster.bootstrap, each, given.rows)]
        many = workers if given.topics else ()
        triggers = [await _trigger(cluster.bootstrap, each, given.topics) for each in many]
    return {"machine": machine_facts(), "rows": rows, "triggers": triggers}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.wide", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000, help="of 100 bytes (100,000,000)")
    parser.add_argument("--topics", type=int, default=200, help="of ten partitions (200); 0: none")
    parser.add_argument("--peer-python", type=Path, help="an interpreter with pyspark==3.5.1")
    parser.add_argument("--out", type=Path, help="a file for the results")
    given = parser.parse_args()
    found = json.dumps(asyncio.run(_main(given)), indent=1) + "\n"
    if given.out:
        given.out.write_text(found, encoding="utf-8")
    else:
        print(found)


if __name__ == "__main__":
    main()
