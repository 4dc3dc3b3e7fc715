"""The experiment: topics of more and more partitions are created, written to and deleted."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from experiments.clients import JAVA, OURS, client_config
from experiments.experiment import BaseExperiment
from experiments.java import run_java
from experiments.machine import cluster_facts
from experiments.partition_limits.plan import Plan
from experiments.partition_limits.results import Cell, Results, Sent
from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError, UnknownTopicError
from kafkaclient.perf.clients import KafkaclientClient
from kafkaclient.perf.load import Load, LoadSpec
from kafkaclient.perf.run import Labels, measure
from kafkaclient.perf.traffic import random_payloads
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kafkaclient.perf.run import RunRecord
    from kafkaclient.perf.traffic import KeyValue
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Experiment"]

_AT_ONCE = 5_000
"""Partitions to create by one request: Kafka refuses more than about 10,000."""

_POLL_S = 0.1
_TIMEOUT_S = 300.0
_WARM_UP_S = 10.0
_JAVA_SLOWER = 30
"""Times that Java's run may take longer than ours: 11 were seen with a thousand partitions."""
_SPARE_MB = 1_500  # memory of the machine that no broker uses


class Experiment(BaseExperiment[Plan, Results]):
    """Creates topics of more and more partitions, writes to them, and deletes them.

    Raises KafkaError if the machine has too little memory for the brokers.
    """

    results_type = Results

    async def run(self) -> None:
        plan = self.plan
        _check_memory(plan)
        self.watcher.say(f"Starting {plan.brokers} Kafka brokers with {plan.heap_mb} MB each")
        # By default brokers keep deleted files for a minute, which would slow the next topic down.
        config = {"log.segment.delete.delay.ms": 1000, "min.insync.replicas": 1}
        async with (
            LocalCluster(
                plan.brokers, long_lived=True, heap_mb=plan.heap_mb, config=config
            ) as cluster,
            Admin(cluster.bootstrap, default_api_timeout_ms=int(_TIMEOUT_S * 1e3)) as admin,
        ):
            self.results.machine = await cluster_facts(cluster)
            await self._warm_up(cluster, admin)
            cells = plan.cells()
            for place, (replication, count) in enumerate(cells, 1):
                self.watcher.say(
                    f"{place}/{len(cells)} {count:,} partitions on each broker, "
                    f"replication factor {replication}"
                )
                await self._cell(cluster, admin, replication, count)
        self.results.complete = not self.results.left_out
        self.results.write(self.folder)

    async def _warm_up(self, cluster: ClusterHandle, admin: Admin) -> None:
        """Give the brokers' virtual machines time to compile before the first topic."""
        self.watcher.say("Warming the brokers up")
        await admin.create_topic("warm-up", 10, 1)
        await self._ours(cluster, "warm-up", _WARM_UP_S)
        await admin.delete_topic("warm-up")

    async def _cell(
        self, cluster: ClusterHandle, admin: Admin, replication: int, count: int
    ) -> None:
        name = f"replication factor {replication}, {count:,} on each broker"
        topic = _Topic(self, cluster, admin, replication, count)
        try:
            cell = await topic.run()
        except KafkaError as error:
            self.results.left_out[name] = str(error)
            self.watcher.say(f"Failed: {name}: {error}")
            await topic.drop()
        else:
            self.results.cells.append(cell)
            self.watcher.say(_verdict(cell))
        self.results.write(self.folder)

    async def _ours(self, cluster: ClusterHandle, topic: str, seconds: float) -> RunRecord:
        client = KafkaclientClient(client_config(cluster.bootstrap), topic)
        load = Load(client, LoadSpec(num_records=sys.maxsize))
        run = await measure(
            client, load, _for_seconds(seconds, self.plan.record_size), Labels("default", None)
        )
        return run.record

    async def _java(self, cluster: ClusterHandle, topic: str, records: int) -> RunRecord:
        spec = LoadSpec(num_records=records)
        size = self.plan.record_size
        limit = self.plan.seconds * _JAVA_SLOWER + 30.0
        try:
            async with asyncio.timeout(limit):
                # Not through the proxies, which carry less than the brokers.
                outcome = await run_java(
                    cluster, topic, {}, spec, size, bootstrap=cluster.bootstrap
                )
        except TimeoutError:
            raise KafkaError(f"{records:,} records took more than {limit:.0f} s") from None
        return outcome.whole.record(spec, Labels("default", None), size, records)

    async def sent(self, cluster: ClusterHandle, topic: str) -> tuple[list[Sent], list[str]]:
        """The runs of the clients, and the errors of those that failed."""
        found: list[Sent] = []
        failures: list[str] = []
        records = 0
        for client in self.plan.clients:
            try:
                if client == JAVA:
                    record = await self._java(cluster, topic, records or 1)
                else:
                    record = await self._ours(cluster, topic, self.plan.seconds)
                    records = record.records
            except KafkaError as error:
                failures.append(f"{client}: {error}")
                self.watcher.say(f"Failed: {client}: {error}")
                continue
            found.append(
                Sent(
                    client=client,
                    records=record.records,
                    records_per_s=record.records_per_s,
                    mbps=record.records_per_s * self.plan.record_size * 8 / 1e6,
                    avg_ms=record.avg_ms,
                    p99_ms=record.p99_ms,
                    failed=record.errors,
                )
            )
        return found, failures


@dataclass(slots=True)
class _Topic:
    """A topic of the experiment."""

    experiment: Experiment
    cluster: ClusterHandle
    admin: Admin
    replication: int
    count: int
    name: str = field(init=False)
    partitions: int = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"limits-{self.replication}-{self.count}"
        self.partitions = self.experiment.plan.topic_partitions(self.count, self.replication)

    async def run(self) -> Cell:
        began = time.monotonic()
        await self._create()
        answered = time.monotonic() - began
        # Without a bar: a terminal shows one at a time.
        led = asyncio.create_task(self._polled("leaders", self._led, self.partitions, began))
        replicas = self.partitions * self.replication
        try:
            directories = await self._until("directories", self._directories, replicas, began)
            led_s = await led
        finally:
            led.cancel()
            await asyncio.gather(led, return_exceptions=True)
        sent, failures = await self.experiment.sent(self.cluster, self.name)
        unknown, removed = await self.drop()
        return Cell(
            replication=self.replication,
            partitions=self.count,
            topic_partitions=self.partitions,
            answered_s=answered,
            led_s=led_s,
            directories_s=directories,
            sent=tuple(sent),
            failures=tuple(failures),
            unknown_s=unknown,
            removed_s=removed,
        )

    async def _create(self) -> None:
        first = min(self.partitions, _AT_ONCE)
        await self.admin.create_topic(self.name, first, self.replication)
        if self.partitions > first:
            await self.admin.add_partitions(self.name, self.partitions)

    async def drop(self) -> tuple[float, float]:
        """Delete the topic: seconds until no broker knows it, and until its files are removed.

        Both are 0 if there is no such topic.
        """
        began = time.monotonic()
        try:
            await self.admin.delete_topic(self.name)
        except UnknownTopicError:
            return 0.0, 0.0
        unknown = await self._until("forgotten", self._unknown, 1, began)
        return unknown, await self._until("removed", self._no_directories, 1, began)

    async def _until(
        self, what: str, done: Callable[[], Awaitable[int]], total: int, began: float
    ) -> float:
        """As :meth:`_polled`, with a bar."""
        have = 0

        async def counted() -> int:
            nonlocal have
            have = await done()
            return have

        async with self.experiment.watcher.working(f"{self.name}: {what}", total, lambda: have):
            return await self._polled(what, counted, total, began)

    async def _polled(
        self, what: str, done: Callable[[], Awaitable[int]], total: int, began: float
    ) -> float:
        """Seconds from ``began`` until ``done()`` is ``total``. Raises KafkaError on a timeout."""
        have = 0
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while True:
                    asked = time.monotonic()
                    have = await done()
                    now = time.monotonic()
                    if have >= total:
                        return now - began
                    # Requests are work for the brokers, too: they take a tenth of the time at most.
                    await asyncio.sleep(max(_POLL_S, 9 * (now - asked)))
        except TimeoutError:
            raise KafkaError(
                f"{self.name}: {what}: {have:,} of {total:,} after {_TIMEOUT_S:.0f} s; see the "
                "brokers' logs"
            ) from None

    async def _led(self) -> int:
        try:
            found = await self.admin.describe_topic(self.name)
        except UnknownTopicError:
            return 0
        return sum(
            partition.leader is not None and len(partition.isr) == self.replication
            for partition in found.partitions
        )

    async def _directories(self) -> int:
        return await asyncio.to_thread(self._count, False)

    async def _no_directories(self) -> int:
        return not await asyncio.to_thread(self._count, True)

    async def _unknown(self) -> int:
        return self.name not in await self.admin.list_topics()

    def _count(self, deleted: bool) -> int:
        prefix = f"{self.name}-"
        return sum(
            name.startswith(prefix) and (deleted or not name.endswith("-delete"))
            for node in self.cluster.brokers
            for name in os.listdir(self.cluster.log_dir(node))
        )


def _check_memory(plan: Plan) -> None:
    psutil = import_module("psutil")
    free_mb = psutil.virtual_memory().available // 2**20
    need_mb = plan.heap_mb * plan.brokers + _SPARE_MB
    if free_mb < need_mb:
        raise KafkaError(
            f"{max(plan.partitions):,} partitions on each of {plan.brokers} brokers need about "
            f"{need_mb:,} MB of memory, and {free_mb:,} MB are free; ask for fewer (--partitions)"
        )


def _for_seconds(seconds: float, size: int) -> Iterator[KeyValue]:
    end = time.perf_counter() + seconds
    for record in random_payloads(size):
        if time.perf_counter() > end:
            return
        yield record


def _verdict(cell: Cell) -> str:
    rates = ", ".join(f"{sent.client} {sent.mbps:,.0f} Mbit/s" for sent in cell.sent)
    ours = next((sent for sent in cell.sent if sent.client == OURS), None)
    failed = f", {ours.failed:,} records failed" if ours and ours.failed else ""
    return (
        f"{cell.topic_partitions:,} partitions: created in {cell.directories_s:.1f} s; {rates}"
        f"{failed}; deleted in {cell.removed_s or 0.0:.1f} s"
    )
