"""Runs the entries in turn on one broker, each in a process of its own, and checks what came of it.

A run is good when the topic's end offsets grew by exactly the records that it says it sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError as PeerError

from benchmarks.produce.entries import FRANZ, JAVA, OURS
from benchmarks.produce.entry import Entry, Job
from benchmarks.produce.perf_tool import run_perf_tool
from benchmarks.produce.result import Measured, UnavailableError, run_fields
from benchmarks.produce.topics import Topics, records_in
from kafkaclient.errors import KafkaError
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from benchmarks.produce.topics import Topic

__all__ = ["Limits", "Outcome", "in_turn", "run_all"]

_SPARE_S = 240.0
_SETTLE_S = 0.5
_WARM_UP_S = 6.0
_KEPT_OUTPUT = 600
_KB = 1024
# A run at full speed writes hundreds of megabytes a second; nobody reads them.
_BROKER = {
    "log.segment.bytes": 128 * _KB * _KB,
    "log.retention.bytes": 256 * _KB * _KB,
    "log.retention.check.interval.ms": 5000,
    "log.segment.delete.delay.ms": 1000,
}
_LARGEST_BATCH = _KB * _KB


@dataclass(frozen=True, slots=True)
class Limits:
    """How long runs are."""

    seconds: float
    overload_seconds: float
    records: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that is over: the fields of its record, or why there are none."""

    entry: Entry
    run: int
    fields: dict[str, Any] | None = None
    unavailable: str | None = None
    failed: str | None = None

    def as_json(self) -> dict[str, Any]:
        if self.fields is not None:
            return self.fields | ({"failed": self.failed} if self.failed else {})
        reason = {"failed": self.failed} if self.failed else {"unavailable": self.unavailable}
        return {
            "client": self.entry.client,
            "setting": self.entry.setting,
            "run": self.run,
            **reason,
        }


def in_turn(entries: Sequence[Entry], repeat: int) -> list[tuple[int, Entry]]:
    """Every entry once, then every entry again: (run from 1, entry)."""
    return [(run, entry) for run in range(1, repeat + 1) for entry in entries]


async def run_all(entries: Sequence[Entry], repeat: int, limits: Limits) -> AsyncIterator[Outcome]:
    """Run the entries of each stage in turn on a fresh broker that has been warmed up."""
    with TemporaryDirectory(prefix="kafkaclient-bench-") as folder:
        for stage in sorted({entry.stage for entry in entries}):
            chosen = [entry for entry in entries if entry.stage == stage]
            async with LocalCluster(brokers=1, config=_BROKER, long_lived=True) as cluster:
                runner = _Runner(cluster, limits, folder)
                await runner.warm_up()
                for run, entry in in_turn(chosen, repeat):
                    yield await runner.run(entry, run)
                    await asyncio.sleep(_SETTLE_S)


class _Runner:
    """Runs on one cluster."""

    def __init__(self, cluster: LocalCluster, limits: Limits, folder: str) -> None:
        self._cluster = cluster
        self._limits = limits
        self._folder = folder
        self._topics = Topics(cluster)
        self._last: dict[str, dict[str, Any]] = {}

    async def warm_up(self) -> None:
        """The broker's JVM is slow at first."""
        entry = Entry(client=OURS, setting="warm-up", way="send_nowait")
        limits, self._limits = self._limits, Limits(_WARM_UP_S, _WARM_UP_S, None)
        await self.run(entry, 0)
        self._limits = limits

    async def run(self, entry: Entry, run: int) -> Outcome:
        try:
            async with self._topics.topic(entry.partitions) as topic:
                return await self._run(entry, run, topic)
        except UnavailableError as error:
            return Outcome(entry, run, unavailable=str(error))
        except (KafkaError, PeerError, OSError, TimeoutError) as error:
            return Outcome(entry, run, failed=f"{type(error).__name__}: {error}")

    async def _run(self, entry: Entry, run: int, topic: Topic) -> Outcome:
        job = self._job(entry, topic.name)
        before = await records_in(job.bootstrap, topic) if topic.kept else 0
        measured = await self._measure(job)
        grown = await records_in(job.bootstrap, topic) - before
        fields = run_fields(job, measured, run)
        self._last[entry.name] = fields
        wrong = None
        if grown != measured.written or measured.errors:
            wrong = (
                f"the topic grew by {grown} records, {measured.written} were sent; "
                f"{measured.errors} errors"
            )
        return Outcome(entry, run, fields, failed=wrong)

    def _job(self, entry: Entry, topic: str) -> Job:
        limits = self._limits
        job = Job(
            entry=entry,
            bootstrap=self._cluster.bootstrap,
            topic=topic,
            folder=self._folder,
            seconds=limits.overload_seconds if entry.overload else limits.seconds,
            records=None if entry.overload else limits.records,
            batch_bytes=entry.batch_bytes,
        )
        if entry.like is None:
            return job
        like = self._last.get(entry.like, {})
        if not like.get("batch_bytes_avg"):
            raise UnavailableError(f"{entry.like} has not run, so its batches are not known")
        return replace(
            job,
            batch_bytes=min(_LARGEST_BATCH, round(like["batch_bytes_avg"])),
            batches_per_request=max(1, min(entry.partitions, round(like["batches_per_request"]))),
        )

    async def _measure(self, job: Job) -> Measured:
        limit = 2 * job.seconds + _SPARE_S
        async with asyncio.timeout(limit):
            if job.entry.client in (JAVA, FRANZ):
                return await run_perf_tool(self._cluster, job)
            return await _in_worker(job)


async def _in_worker(job: Job) -> Measured:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.produce.worker"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        told, complaint = await process.communicate(job.to_json().encode())
    except BaseException:
        process.kill()
        await process.wait()
        raise
    lines = told.decode().splitlines()
    if process.returncode or not lines:
        end = complaint.decode("utf-8", "replace").strip()[-_KEPT_OUTPUT:]
        raise KafkaError(f"the run's process ended with {process.returncode}: {end}")
    result = json.loads(lines[-1])
    if "unavailable" in result:
        raise UnavailableError(result["unavailable"])
    return Measured(**result)
