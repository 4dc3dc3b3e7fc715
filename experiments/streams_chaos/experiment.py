"""The campaign: instances count while faults strike; then every count is compared."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from experiments.counting.drain import wait_until_processed
from experiments.counting.group_log import EVICTED, REBALANCED, read_group_log
from experiments.counting.instances import OUR_COMMAND, Fleet
from experiments.counting.load import Load
from experiments.counting.outcome import Outcome, Window, read_counts
from experiments.counting.routes import Routes
from experiments.experiment import BaseExperiment
from experiments.machine import machine_facts
from experiments.options import STREAMS
from experiments.streams_chaos.gaps import gaps_by_kind
from experiments.streams_chaos.plan import APPLICATION, Plan
from experiments.streams_chaos.results import Campaign, Results
from experiments.streams_chaos.strikes import Strikes, instance_name
from kafkaclient.admin import Admin
from kafkaclient.streams.config import AT_LEAST_ONCE
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Experiment"]

_SOURCE, _TARGET = "chaos-in", "chaos-out"
_MORE_S = 4.0
_LEAST_GAP_S = 0.05


class Experiment(BaseExperiment[Plan, Results]):
    """Sends records, has the instances count them under faults, and compares every count.

    Raises KafkaError if the instances do not start, or do not process what is left after the
    faults; then the counts are unknown.
    """

    results_type = Results
    libraries = STREAMS

    @property
    def _aftermath_s(self) -> float:
        """How long after a fault a gap may end that it has made."""
        return self.plan.session_timeout_ms / 1000 + _MORE_S

    async def run(self) -> None:
        plan = self.plan
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        self.watcher.say(f"Starting Kafka, {plan.brokers} broker(s)")
        async with LocalCluster(brokers=plan.brokers) as cluster, Admin(cluster.bootstrap) as admin:
            self.results.machine = machine_facts(kafka=cluster.version)
            await admin.create_topic(_SOURCE, plan.tasks, plan.replication)
            await admin.create_topic(
                *(_TARGET, plan.tasks, plan.replication),
                configs={"message.timestamp.type": "LogAppendTime"},
            )
            self.results.campaign = await self._campaign(cluster, admin)
        self.results.complete = True
        self.results.write(self.folder)

    async def _campaign(self, cluster: ClusterHandle, admin: Admin) -> Campaign:
        plan = self.plan
        app = {"bootstrap_servers": cluster.bootstrap, **plan.app_options}
        options = {
            "processors": [[_SOURCE, _TARGET, "counts"]],
            "value_size": plan.value_size,
            "cpu_ms": 0,
            "app": app,
        }
        fleet = Fleet("chaos", OUR_COMMAND, options, self.folder)
        load = Load(plan.load, cluster.bootstrap, _SOURCE)
        async with AsyncExitStack() as stack:
            addresses = [cluster.address(broker) for broker in cluster.brokers]
            routes = {
                instance_name(number): await stack.enter_async_context(Routes.opened(addresses))
                for number in range(plan.instances)
            }
            await stack.enter_async_context(fleet.running())
            strikes = Strikes(cluster, fleet, routes, plan.faults, self.watcher.say)
            ports = {name: each.ports for name, each in routes.items()}
            await fleet.start_all(ports, plan.tasks)
            inputs = [TopicPartition(_SOURCE, number) for number in range(plan.tasks)]
            begins, drained_s = await strikes.under_load(
                *(load, self.watcher, "Counting"),
                seconds=plan.seconds,
                aftermath_s=self._aftermath_s,
                drain=partial(
                    wait_until_processed, admin, APPLICATION, inputs, plan.drain_timeout_s
                ),
            )
            window = Window("campaign", begins, time.time())
            for name in list(fleet.instances):
                await fleet.end(name, signal.SIGTERM)
        return await self._judge(cluster, load, strikes, window, drained_s)

    async def _judge(
        self,
        cluster: ClusterHandle,
        load: Load,
        strikes: Strikes,
        window: Window,
        drained_s: float,
    ) -> Campaign:
        plan = self.plan
        outcome = Outcome(plan.tasks, [window], may_repeat=plan.guarantee == AT_LEAST_ONCE)
        async with self.watcher.working(
            "Reading the counts back", load.sent.total(), lambda: outcome.records
        ):
            await read_counts(cluster.bootstrap, _TARGET, plan.tasks, outcome)
        outcome.end(load.sent)
        events = [
            event
            for event in await asyncio.to_thread(read_group_log, cluster, APPLICATION)
            if event.at >= window.begins
        ]
        # No record comes after the load's end; a gap there is none of a task.
        last = Window(window.name, window.begins, outcome.last_at)
        gaps = outcome.all_gaps(last, _LEAST_GAP_S)
        return Campaign(
            records=load.sent.total(),
            repeated=max(0, outcome.records - load.sent.total()),
            wrong=sum(outcome.wrong.values()),
            examples=tuple(outcome.examples),
            rebalances=sum(event.kind == REBALANCED for event in events),
            evictions=sum(event.kind == EVICTED for event in events),
            longest_gap_s=round(max((gap.seconds for gap in gaps), default=0.0), 3),
            drained_s=round(drained_s, 3),
            ended=tuple(strikes.ended),
            gaps=tuple(gaps_by_kind(strikes.struck, gaps, plan.instances, self._aftermath_s)),
            struck=tuple(sorted(strikes.struck, key=lambda each: each.began)),
        )
