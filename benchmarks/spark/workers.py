"""Sparks in processes of their own, and topics, for the benchmarks of this folder."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.admin import Admin
from kafkaclient.testing.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["OURS", "PEER", "Worker", "at", "spark_worker", "temporary_topics"]

_PROGRAM = Path(__file__).with_name("worker.py")
_PARTITIONS = 6
OURS, PEER = "kafkaclient", "kafka"


class Worker:
    """A Spark in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, connector: str) -> None:
        self.connector = connector
        self.spark = ""
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the Spark of {self.connector} ended; see what it wrote above")
        found: dict[str, Any] = json.loads(line)
        return found

    async def tell(self, **job: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        await self._process.stdin.drain()

    async def do(self, **job: Any) -> dict[str, Any]:
        await self.tell(**job)
        return await self.answer()


@asynccontextmanager
async def spark_worker(
    python: Path, connector: str, settings: Sequence[str] = ()
) -> AsyncIterator[Worker]:
    environ = os.environ | {
        "JAVA_HOME": str(find_java().path.resolve().parent.parent),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    process = await asyncio.create_subprocess_exec(
        *(str(python), str(_PROGRAM), connector, *settings),
        stdin=-1,
        stdout=-1,
        env=environ,
        limit=2**24,
    )
    try:
        worker = Worker(process, connector)
        worker.spark = (await worker.answer())["spark"]
        yield worker
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.wait_for(process.wait(), 60)


@asynccontextmanager
async def temporary_topics(
    bootstrap: str, *names: str, partitions: int = _PARTITIONS
) -> AsyncIterator[None]:
    """Topics for the length of the block; brokers time what is appended to those named out-."""
    async with Admin(bootstrap) as admin:
        for name in names:
            times = "LogAppendTime" if name.startswith("out-") else "CreateTime"
            configs = {"message.timestamp.type": times}
            await admin.create_topic(name, partitions, 1, configs=configs)
        try:
            yield
        finally:
            for name in names:
                await admin.delete_topic(name)


def at(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap}
