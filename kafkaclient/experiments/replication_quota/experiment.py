"""The experiment itself: brokers up, topics filled, replicas moved there and back."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError
from kafkaclient.experiments.machine import machine_facts
from kafkaclient.experiments.replication_quota.load import SteadyLoad
from kafkaclient.experiments.replication_quota.plan import TOPIC
from kafkaclient.experiments.replication_quota.results import MoveResult, Results
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.jre import find_java

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from kafkaclient.admin.reassign.estimate import Estimate
    from kafkaclient.experiments.replication_quota.plan import Plan, Scenario
    from kafkaclient.experiments.replication_quota.results import Latency
    from kafkaclient.testing.cluster import ClusterHandle
    from kafkaclient.types import TopicPartition

__all__ = ["Experiment", "Watcher"]

_FILL_RECORD = 10_000
"""Small enough for usual batches: a follower throws away the incomplete batch at the end of what a
fetch brings of a partition, and brokers count it as moved."""
_SETTLE_S = 3.0
_WARM_UP_S = 20.0  # of brokers that have just been started, before they are compared with
_MEASURE_S = 3.0
_LOOK_EVERY_S = 0.5
_GONE_WITHIN_S = 30.0
_HEARD_WITHIN_S = 10.0
_UNTHROTTLED_AT_LEAST_S = 3.0


class Watcher(Protocol):
    """Shows somebody what the experiment is doing."""

    def say(self, text: str) -> None:
        """Something begins, or has ended."""

    def working(
        self, text: str, total: int, done: Callable[[], int]
    ) -> AbstractAsyncContextManager[object]:
        """Something with a measurable progress goes on while the block lasts."""


@dataclass(slots=True)
class Experiment:
    """``await run()`` makes the runs and keeps ``results``, also in ``folder``, up to date.

    Raises what starting a cluster raises. A run that fails is told, and the next one made.
    """

    plan: Plan
    folder: Path
    watcher: Watcher
    results: Results = field(init=False)

    def __post_init__(self) -> None:
        self.results = Results(self.plan.as_json(), {})

    async def run(self) -> Results:
        java = await asyncio.to_thread(find_java)
        for brokers, runs in groupby(self.plan.runs(), key=lambda run: run[0].brokers):
            self.watcher.say(f"Starting {brokers} Kafka brokers")
            async with (
                LocalCluster(brokers, config=self.plan.broker_config) as cluster,
                Admin(cluster.bootstrap, limits=None) as admin,
            ):
                self.results.machine = machine_facts(
                    kafka=cluster.version, java=java.banner.splitlines()[0]
                )
                for scenario, load in runs:
                    await self._scenario(cluster, admin, scenario, load)
        self.results.complete = not self.results.failed
        self.results.write(self.folder)
        return self.results

    async def _scenario(
        self, cluster: ClusterHandle, admin: Admin, scenario: Scenario, load: float
    ) -> None:
        name = f"{scenario.name}{', with load' if load else ''}"
        try:
            result = await _Run(self.plan, self.watcher, cluster, admin, scenario, load).run()
        except KafkaError as error:
            self.results.failed[name] = str(error)
            self.watcher.say(f"Failed: {name}: {error}")
        else:
            self.results.runs.append(result)
            self.watcher.say(f"{name}: {_verdict(result)}")
        self.results.write(self.folder)
        await _delete(admin)


@dataclass(slots=True)
class _Run:
    """One scenario, from an empty cluster to its result."""

    plan: Plan
    watcher: Watcher
    cluster: ClusterHandle
    admin: Admin
    scenario: Scenario
    load: float

    async def run(self) -> MoveResult:
        plan, scenario = self.plan, self.scenario
        await self.admin.create_topic(
            TOPIC,
            replica_assignment=scenario.replicas(plan.partitions),
            # More than there are replicas would have records wait for the new ones (KIP-966).
            configs={"min.insync.replicas": str(len(scenario.before[0]))},
        )
        await self._fill()
        found, quiet = await self._quiet()
        samples, left, throttled = await self._throttled(found)
        unthrottled_s, unthrottled = await self._way_back() if self.load else (None, None)
        return MoveResult(
            scenario=scenario.name,
            load=self.load,
            quota=plan.quota,
            inbound=found.inbound,
            bytes_to_move=found.bytes_to_move,
            seconds=samples[-1][0],
            move_time_s=found.move_time_s(plan.quota),
            expected_s=found.expected_s(plan.quota),
            samples=tuple(samples),
            left=left,
            quiet=quiet,
            throttled=throttled,
            unthrottled=unthrottled,
            unthrottled_s=unthrottled_s,
        )

    async def _fill(self) -> None:
        records = self.plan.bytes_to_move // _FILL_RECORD
        value, sent = bytes(_FILL_RECORD), 0
        async with (
            Producer(self.cluster.bootstrap, linger_ms=20) as producer,
            self.watcher.working(
                f"{self.scenario.name}: writing {self.plan.bytes_to_move / 1e6:,.0f} MB",
                records,
                lambda: sent,
            ),
        ):
            for sent in range(records):
                await producer.send(TOPIC, value, partition=sent % self.plan.partitions)
            await producer.flush()

    async def _quiet(self) -> tuple[Estimate, Latency | None]:
        """What clients wait without a move, and the estimate, made as before any move."""
        moves = self.scenario.moves(self.plan.partitions)
        if not self.load:
            found = await self.admin.reassigner.estimate(moves, measure_s=_MEASURE_S)
            return found, None
        async with self._clients("latency without a move", _WARM_UP_S) as load:
            await asyncio.sleep(max(0.0, self.plan.quiet_s - _MEASURE_S))
            found = await self.admin.reassigner.estimate(moves, measure_s=_MEASURE_S)
        return found, load.latency

    async def _throttled(
        self, found: Estimate
    ) -> tuple[list[tuple[float, int]], bool, Latency | None]:
        load: SteadyLoad | None = None
        async with AsyncExitStack() as stack:
            if self.load:
                load = await stack.enter_async_context(self._clients("clients begin"))
            samples = await self._move(
                self.scenario.moves(self.plan.partitions), self.plan.quota, found
            )
        return samples, await self._left(), load.latency if load else None

    async def _way_back(self) -> tuple[float, Latency | None]:
        async with self._clients("clients begin") as load:
            began = time.monotonic()
            samples = await self._move(self.scenario.way_back(self.plan.partitions), None, None)
            # So few records as are sent in a second or two have no p99.
            rest = _UNTHROTTLED_AT_LEAST_S - (time.monotonic() - began)
            await asyncio.sleep(max(0.0, rest))
        return samples[-1][0], load.latency

    async def _move(
        self,
        plan: Mapping[TopicPartition, tuple[int, ...]],
        quota: int | None,
        found: Estimate | None,
    ) -> list[tuple[float, int]]:
        """(seconds since it began, bytes that have arrived), until all have."""
        throttle = "without a quota" if quota is None else f"at {quota / 1e6:g} MB/s"
        total = self.plan.bytes_to_move if found is None else found.bytes_to_move
        done = 0
        samples = [(0.0, 0)]
        async with self.watcher.working(
            f"{self.scenario.name}: moving {throttle}, MB",
            round(total / 1e6),
            lambda: round(done / 1e6),
        ):
            began = time.monotonic()
            async with self.admin.throttled(plan, bytes_per_second=quota) as moves:
                async for progress in moves.progress(every_s=_LOOK_EVERY_S):
                    done = progress.bytes_done
                    samples.append((round(time.monotonic() - began, 3), done))
        return samples

    async def _left(self) -> bool:
        """Whether a throttle is there some seconds after it was removed everywhere."""
        until = time.monotonic() + _HEARD_WITHIN_S
        while True:
            told = await self.admin.replication_quotas.describe()
            left = any(now.any for now in told.topics.values()) or any(
                now.rates or now.mark for now in told.brokers.values()
            )
            if not left or time.monotonic() > until:
                return left
            await asyncio.sleep(_LOOK_EVERY_S)

    @asynccontextmanager
    async def _clients(self, text: str, settle_s: float = _SETTLE_S) -> AsyncIterator[SteadyLoad]:
        plan = self.plan
        load = SteadyLoad(
            self.cluster.bootstrap, TOPIC, rate=self.load, record_size=plan.record_size
        )
        self.watcher.say(f"{self.scenario.name}: {text}, {self.load:,g} records/s")
        async with load.running(settle_s):
            yield load


async def _delete(admin: Admin) -> None:
    """Delete the topic of a run, and what moves there still are; until nobody knows of it."""
    await admin.reassigner.cancel()
    if TOPIC not in await admin.list_topics():
        return
    await admin.delete_topic(TOPIC)
    try:
        async with asyncio.timeout(_GONE_WITHIN_S):
            while TOPIC in await admin.list_topics():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        raise KafkaError(
            f"topic {TOPIC} is still there {_GONE_WITHIN_S:.0f} s after it was deleted; see the "
            "brokers' logs"
        ) from None


def _verdict(result: MoveResult) -> str:
    words = [
        f"{result.bytes_to_move / 1e6:,.0f} MB in {result.seconds:.1f} s",
        f"{result.rate / 1e6:.2f} MB/s of {result.dictated / 1e6:.2f} MB/s",
    ]
    if result.p99_ratio is not None:
        words.append(f"clients' p99 {result.p99_ratio:.2f} x")
    if result.left:
        words.append("a throttle was left behind")
    return ", ".join(words)
