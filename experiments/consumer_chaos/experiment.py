"""The campaign: a group consumes while faults strike; then every record is looked for."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from experiments.consumer_chaos.commit_log import read_commits
from experiments.consumer_chaos.load import Load, Log
from experiments.consumer_chaos.member_log import read_logs
from experiments.consumer_chaos.oracle import judge
from experiments.consumer_chaos.plan import GROUP, Plan
from experiments.consumer_chaos.results import Campaign, Results
from experiments.consumer_chaos.strikes import ConsumerStrikes
from experiments.counting.instances import Fleet
from experiments.counting.outcome import Gap
from experiments.counting.routes import Routes
from experiments.experiment import BaseExperiment
from experiments.machine import machine_facts
from experiments.streams_chaos.gaps import gaps_by_kind
from experiments.streams_chaos.strikes import instance_name
from kafkaclient.admin import Admin
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from experiments.consumer_chaos.member_log import Stint
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Experiment"]

# A signal that arrives before the member handles it must not end it.
_IGNORING = 'trap "" USR1 USR2; exec "$0" -m experiments.consumer_chaos.worker'
_COMMAND = ("/bin/sh", "-c", _IGNORING, sys.executable)
_POLL_S = 0.2
_LOOK_S = 2.0
_MORE_S = 4.0
_LEAST_GAP_S = 0.3


class Experiment(BaseExperiment[Plan, Results]):
    """Sends records, has the group consume them under faults, and looks for every record.

    Raises KafkaError if the members do not start.
    """

    results_type = Results

    @property
    def _logs(self) -> Path:
        return self.folder / "members"

    async def run(self) -> None:
        plan = self.plan
        await asyncio.to_thread(shutil.rmtree, self._logs, ignore_errors=True)
        await asyncio.to_thread(self._logs.mkdir, parents=True)
        self.watcher.say(f"Starting Kafka, {plan.brokers} broker(s)")
        async with (
            LocalCluster(brokers=plan.brokers, config=plan.broker_config) as cluster,
            Admin(cluster.bootstrap) as admin,
        ):
            self.results.machine = machine_facts(kafka=cluster.version)
            for topic in plan.topic_names:
                await admin.create_topic(topic, plan.partitions, plan.replication)
            self.results.campaign = await self._campaign(cluster, admin)
        self.results.complete = True
        self.results.write(self.folder)

    async def _campaign(self, cluster: ClusterHandle, admin: Admin) -> Campaign:
        plan = self.plan
        aftermath_s = plan.session_timeout_ms / 1000 + _MORE_S
        options = {
            "logs": str(self._logs),
            "app": {"bootstrap_servers": cluster.bootstrap, **plan.member_options},
        }
        fleet = Fleet("chaos", _COMMAND, options, self.folder)
        load = Load(cluster.bootstrap, plan.topic_names, plan.rate, plan.seed)
        async with AsyncExitStack() as stack:
            addresses = [cluster.address(broker) for broker in cluster.brokers]
            routes = {
                instance_name(number): await stack.enter_async_context(Routes.opened(addresses))
                for number in range(plan.members)
            }
            await stack.enter_async_context(fleet.running())
            strikes = ConsumerStrikes(
                *(cluster, fleet, routes, plan.faults, self.watcher.say),
                admin=admin,
                load=load,
                topics=plan.topic_names,
                partitions=plan.partitions,
            )
            ports = {name: each.ports for name, each in routes.items()}
            await fleet.start_all(ports, plan.topics * plan.partitions)
            begins, drained_s = await strikes.under_load(
                *(load, self.watcher, "Consuming"),
                seconds=plan.seconds,
                aftermath_s=aftermath_s,
                drain=partial(self._drain, load),
            )
            for name in list(fleet.instances):
                await fleet.end(name, signal.SIGTERM)
        stints = await asyncio.to_thread(read_logs, self._logs)
        verdict = judge(
            load.acked, load.lives, stints, await read_commits(cluster.bootstrap, GROUP)
        )
        gaps = list(_gaps(stints, begins))
        return Campaign(
            records=load.records,
            verdict=verdict,
            drained_s=round(drained_s, 3),
            longest_gap_s=round(max((gap.seconds for gap in gaps), default=0.0), 3),
            ended=tuple(strikes.ended),
            gaps=tuple(gaps_by_kind(strikes.struck, gaps, plan.members, aftermath_s)),
            struck=tuple(sorted(strikes.struck, key=lambda each: each.began)),
        )

    async def _drain(self, load: Load) -> None:
        """Wait until every record is processed, or for ``drain_timeout_s``: what is missing then is
        lost."""
        expected = {
            (log, offset)
            for log, acked in load.acked.items()
            if log.life == load.lives[log.topic]
            for offset in acked
        }
        ends = time.monotonic() + self.plan.drain_timeout_s
        while time.monotonic() < ends:
            for stint in await asyncio.to_thread(read_logs, self._logs):
                for each in stint.records:
                    log = Log(stint.topic, each.life, stint.partition)
                    expected.discard((log, each.offset))
            if not expected:
                return
            await asyncio.sleep(_LOOK_S)


def _gaps(stints: Iterable[Stint], begins: float) -> Iterable[Gap]:
    """The times since ``begins`` without a record, of each life of a partition."""
    times: dict[Log, list[float]] = {}
    for stint in stints:
        for each in stint.records:
            log = Log(stint.topic, each.life, stint.partition)
            times.setdefault(log, []).append(each.finished)
    for number, finished in enumerate(times.values()):
        for before, after in pairwise(sorted(at for at in finished if at >= begins)):
            if after - before >= _LEAST_GAP_S:
                yield Gap(number, before, after)
