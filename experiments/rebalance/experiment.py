"""The experiment: a large group is started; one more instance joins."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from experiments.counting.drain import wait_until_processed
from experiments.counting.group_log import EVICTED, REBALANCED, read_group_log
from experiments.counting.instances import OUR_COMMAND, Fleet
from experiments.counting.load import Load
from experiments.counting.outcome import Outcome, Window, read_counts
from experiments.experiment import BaseExperiment
from experiments.machine import machine_facts
from experiments.options import STREAMS
from experiments.rebalance.balance import Balance
from experiments.rebalance.plan import APPLICATION, Plan
from experiments.rebalance.results import Joined, Results
from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from experiments.watcher import Watcher
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Experiment"]

_POLL_S = 0.1
_STEADY_S = 3.0
"""The group must be balanced for this time."""
_HEAP_MB = 2048


class Experiment(BaseExperiment[Plan, Results]):
    """Starts the instances on a prepared state, has one join, and compares every count.

    Raises KafkaError if the group is not balanced in time.
    """

    results_type = Results
    libraries = STREAMS

    def __init__(self, plan: Plan, folder: Path, watcher: Watcher) -> None:
        super().__init__(plan, folder, watcher)
        self._sources = [f"{APPLICATION}-in-{number}" for number in range(plan.topics)]
        self._targets = [f"{APPLICATION}-out-{number}" for number in range(plan.topics)]

    async def run(self) -> None:
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        self.watcher.say("Starting Kafka, 1 broker")
        async with (
            LocalCluster(brokers=1, long_lived=True, heap_mb=_HEAP_MB) as cluster,
            Admin(cluster.bootstrap) as admin,
        ):
            self.results.machine = machine_facts(kafka=cluster.version)
            self.results.joined = await self._joined(cluster, admin)
        self.results.complete = True
        self.results.write(self.folder)

    async def _joined(self, cluster: ClusterHandle, admin: Admin) -> Joined:
        plan = self.plan
        loads = [
            Load(plan.load(number), cluster.bootstrap, source)
            for number, source in enumerate(self._sources)
        ]
        await self._prepare(admin, loads)
        options = {
            "processors": [
                [source, target, f"counts-{number}"]
                for number, (source, target) in enumerate(
                    zip(self._sources, self._targets, strict=True)
                )
            ],
            "value_size": plan.value_size,
            "cpu_ms": 0,
            "app": {"bootstrap_servers": cluster.bootstrap, **plan.app_options},
        }
        fleet = Fleet("group", OUR_COMMAND, options, self.folder)
        began = time.time()
        async with fleet.running():
            started = time.monotonic()
            for number in range(plan.instances):
                await fleet.start(f"instance-{number}")
            first = await self._balanced(fleet, f"Starting {plan.instances} instances")
            sending = [asyncio.create_task(load.run()) for load in loads]
            try:
                joins, clock = time.time(), time.monotonic()
                await fleet.start("joined")
                balance = await self._balanced(fleet, "One more joins")
                ends = time.time()
            finally:
                for load in loads:
                    load.stop()
                await asyncio.gather(*sending)
            assert first.balanced_at is not None
            assert balance.balanced_at is not None
            inputs = [
                TopicPartition(source, number)
                for source in self._sources
                for number in range(self.plan.partitions)
            ]
            await wait_until_processed(admin, APPLICATION, inputs, self.plan.timeout_s)
            moved, rss_mb = len(fleet.instances["joined"].status.running), fleet.rss_mb()
            for name in list(fleet.instances):
                await fleet.end(name, signal.SIGTERM)
        outcomes = await self._read(cluster, loads, began)
        events = [
            event
            for event in await asyncio.to_thread(read_group_log, cluster, APPLICATION)
            if joins <= event.at < ends
        ]
        return Joined(
            tasks=plan.tasks,
            instances=plan.instances + 1,
            started_s=round(first.balanced_at - started, 3),
            balanced_s=round(balance.balanced_at - clock, 3),
            after_warmup_s=round(balance.balanced_at - (balance.warmed_at or clock), 3),
            most_warmups=balance.most_copies,
            moved=moved,
            rebalances=sum(event.kind == REBALANCED for event in events),
            evictions=sum(event.kind == EVICTED for event in events),
            records=sum(load.sent.total() for load in loads),
            wrong=sum(sum(outcome.wrong.values()) for outcome in outcomes),
            examples=tuple(example for outcome in outcomes for example in outcome.examples),
            rss_mb=round(rss_mb, 1),
        )

    async def _prepare(self, admin: Admin, loads: list[Load]) -> None:
        plan = self.plan
        for number in range(plan.topics):
            changelog = f"{APPLICATION}-counts-{number}-changelog"
            await admin.create_topic(self._sources[number], plan.partitions, 1)
            await admin.create_topic(self._targets[number], plan.partitions, 1)
            await admin.create_topic(
                *(changelog, plan.partitions, 1), configs={"cleanup.policy": "compact"}
            )
            async with self.watcher.working(
                f"Writing the state of topic {number + 1} of {plan.topics}",
                plan.keys * plan.partitions,
                _prefilled(loads[number]),
            ):
                await loads[number].prefill_changelog(changelog)

    async def _balanced(self, fleet: Fleet, text: str) -> Balance:
        """The balance, once the group has been balanced for a moment."""
        plan = self.plan
        balance = Balance(plan.tasks, plan.acceptable_recovery_lag)
        since = time.monotonic()
        async with self.watcher.working(text, plan.tasks, lambda: len(fleet.runners())):
            while balance.balanced_at is None or time.monotonic() - balance.balanced_at < _STEADY_S:
                await asyncio.sleep(_POLL_S)
                fleet.check()
                statuses = {name: each.status for name, each in fleet.instances.items()}
                balance.look(statuses, time.monotonic())
                if time.monotonic() - since > plan.timeout_s:
                    told = {name: len(each.running) for name, each in statuses.items()}
                    raise KafkaError(
                        f"not balanced within {plan.timeout_s:g} s; tasks that run: {told}"
                    )
        self.watcher.say(f"{text}: balanced")
        return balance

    async def _read(self, cluster: ClusterHandle, loads: list[Load], began: float) -> list[Outcome]:
        outcomes = []
        for load, target in zip(loads, self._targets, strict=True):
            outcome = Outcome(self.plan.partitions, [Window("join", began, time.time())])
            await read_counts(cluster.bootstrap, target, self.plan.partitions, outcome)
            outcome.end(load.sent)
            outcomes.append(outcome)
        return outcomes


def _prefilled(load: Load) -> Callable[[], int]:
    return lambda: load.prefilled
