"""The experiment: a topic is filled, and its replicas are moved and moved back."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from experiments.experiment import BaseExperiment
from experiments.machine import cluster_facts
from experiments.replication_quota.load import SteadyLoad
from experiments.replication_quota.plan import TOPIC, Plan
from experiments.replication_quota.results import MoveResult, Results
from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from experiments.replication_quota.plan import Scenario
    from experiments.replication_quota.results import Latency
    from experiments.watcher import Watcher
    from kafkaclient.admin.reassign.estimate import Estimate
    from kafkaclient.testing.cluster import ClusterHandle
    from kafkaclient.types import TopicPartition

__all__ = ["Experiment"]

_FILL_RECORD = 10_000
"""Bytes, fewer than a batch of default size has: a follower discards an incomplete batch at the end
of a fetch response, and brokers count the discarded bytes as moved."""
_SETTLE_S = 3.0
_WARM_UP_S = 20.0  # brokers that have just started are slower
_MEASURE_S = 3.0
_POLL_S = 0.5
_GONE_WITHIN_S = 30.0
_HEARD_WITHIN_S = 10.0
_UNTHROTTLED_AT_LEAST_S = 3.0


class Experiment(BaseExperiment[Plan, Results]):
    """Moves a topic's replicas within a quota, scenario by scenario."""

    results_type = Results

    async def run(self) -> None:
        for brokers, runs in groupby(self.plan.runs(), key=lambda run: run[0].brokers):
            self.watcher.say(f"Starting {brokers} Kafka brokers")
            async with (
                LocalCluster(brokers, config=self.plan.broker_config) as cluster,
                Admin(cluster.bootstrap) as admin,
            ):
                self.results.machine = await cluster_facts(cluster)
                for scenario, load in runs:
                    await self._scenario(cluster, admin, scenario, load)
        self.results.complete = not self.results.failed
        self.results.write(self.folder)

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
    """A run of a scenario, on a cluster without topics."""

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
            # With a higher minimum, records would wait for the new replicas (KIP-966).
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
        """The estimate of the move, and the latency of clients without a move."""
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
            # A second or two have too few records for a p99.
            rest = _UNTHROTTLED_AT_LEAST_S - (time.monotonic() - began)
            await asyncio.sleep(max(0.0, rest))
        return samples[-1][0], load.latency

    async def _move(
        self,
        plan: Mapping[TopicPartition, tuple[int, ...]],
        quota: int | None,
        found: Estimate | None,
    ) -> list[tuple[float, int]]:
        """(seconds since the move began, bytes that have arrived), until the move is over."""
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
                async for progress in moves.progress(every_s=_POLL_S):
                    done = progress.bytes_done
                    samples.append((round(time.monotonic() - began, 3), done))
        return samples

    async def _left(self) -> bool:
        """Whether brokers still know a throttle some seconds after its removal."""
        until = time.monotonic() + _HEARD_WITHIN_S
        while True:
            found = await self.admin.replication_quotas.describe()
            left = any(now.any for now in found.topics.values()) or any(
                now.rates or now.mark for now in found.brokers.values()
            )
            if not left or time.monotonic() > until:
                return left
            await asyncio.sleep(_POLL_S)

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
    """Delete the topic of a run and its moves, and return once no broker knows the topic."""
    await admin.reassigner.cancel()
    if TOPIC not in await admin.list_topics():
        return
    await admin.delete_topic(TOPIC)
    try:
        async with asyncio.timeout(_GONE_WITHIN_S):
            while TOPIC in await admin.list_topics():  # noqa: ASYNC110 - brokers do not notify
                await asyncio.sleep(_POLL_S)
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
