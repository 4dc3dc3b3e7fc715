"""The campaign: clients send while faults strike; then the log is compared with the outcomes."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.chaos.clients import DROP_IN
from experiments.chaos.fault_runner import FaultRunner, Target
from experiments.chaos.ledger import Ledger
from experiments.chaos.outcomes import read_outcomes
from experiments.chaos.plan import REPLICATION, Plan
from experiments.chaos.results import ClientResult, Latencies, Results, resources
from experiments.chaos.secured import Secured
from experiments.chaos.streams import Spec
from experiments.chaos.tool import JavaLoad
from experiments.chaos.worker_process import WorkerProcess
from experiments.clients import JAVA, OURS
from experiments.experiment import BaseExperiment
from experiments.machine import machine_facts
from experiments.readback import read_topic
from experiments.topics import create_topics
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Experiment"]

_BEGIN_IN_S = 0.5


class Experiment(BaseExperiment[Plan, Results]):
    """Has clients send while faults strike, then looks for every record.

    Each client sends from its own process, all at the same time, so that all clients meet the same
    faults. Raises KafkaError if a load breaks down. Only a complete campaign has results.
    """

    results_type = Results
    _secured: Secured | None = None

    async def run(self) -> None:
        plan = self.plan
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        with Secured(plan) if plan.kerberos else nullcontext() as self._secured:
            await self._campaign()
            if self._secured is not None:
                self.results.logins = self._secured.logins()
        self.results.write(self.folder)

    async def _campaign(self) -> None:
        plan, secured = self.plan, self._secured
        self.watcher.say(f"Starting {plan.brokers} Kafka brokers")
        options = {} if secured is None else secured.cluster_options
        async with LocalCluster(plan.brokers, **options) as cluster:
            self.results.machine = machine_facts(kafka=cluster.version)
            topics = [topic for client in plan.clients for topic in plan.topics(client).values()]
            await create_topics(cluster, topics, plan.partitions, replication=REPLICATION)
            workers = [self._worker(cluster, name) for name in plan.clients if name != JAVA]
            java = JavaLoad(cluster, plan) if JAVA in plan.peers else None
            await self._load(cluster, workers, java)
            clients = [await self._judge(cluster, worker) for worker in workers]
            if java is not None:
                clients.append(await java.judge())
        self.results.clients = clients

    def _worker(self, cluster: ClusterHandle, client: str) -> WorkerProcess:
        plan, secured = self.plan, self._secured
        return WorkerProcess(
            Spec(
                client=client,
                way=DROP_IN if (client, plan.api) == (OURS, "aiokafka") else client,
                bootstrap=cluster.proxied_bootstrap,
                topics=plan.topics(client),
                partitions=plan.partitions,
                producers=plan.producers,
                keys=plan.keys,
                rate=plan.rate,
                seconds=plan.seconds,
                record_size=plan.record_size,
                seed=plan.seed,
                outcomes=str(self.folder / f"outcomes-{client}.bin"),
                options={} if secured is None else secured.client_options(cluster),
            )
        )

    async def _load(
        self, cluster: ClusterHandle, workers: list[WorkerProcess], java: JavaLoad | None
    ) -> None:
        """Send under faults, until every client has its outcomes."""
        plan = self.plan
        async with asyncio.TaskGroup() as tasks:
            for worker in workers:
                tasks.create_task(worker.run())
            for worker in workers:
                await worker.ready.wait()
            begins_at = time.monotonic() + _BEGIN_IN_S
            runner = FaultRunner(
                cluster,
                plan.faults,
                plan.seconds,
                self._target(),
                begins_at,
                self.watcher.say,
            )
            self.results.struck, self.results.outages = runner.struck, runner.outages
            for worker in workers:
                worker.begin(begins_at)
            if java is not None:
                tasks.create_task(java.run())
            async with self.watcher.working(
                f"Sending for {plan.seconds:g} s under {len(plan.faults)} faults",
                int(plan.seconds),
                lambda: max(0, min(int(runner.now()), int(plan.seconds))),
            ):
                await runner.run()
            self.watcher.say("The faults are over; waiting for the last outcomes")

    def _target(self) -> Target:
        topics = [self.plan.topics(client) for client in self.plan.clients]
        return Target(
            fixed=[name for found in topics for kind, name in found.items() if kind != "unkeyed"],
            growing=[found["unkeyed"] for found in topics if "unkeyed" in found],
            partitions=self.plan.partitions,
        )

    async def _judge(self, cluster: ClusterHandle, worker: WorkerProcess) -> ClientResult:
        spec, end = worker.spec, worker.end
        assert end is not None
        path, streams = Path(spec.outcomes), spec.streams
        ledger = Ledger(streams, end.sent)
        await asyncio.to_thread(lambda: ledger.told(read_outcomes(path)))
        read = before = 0

        def progressed(records: int) -> None:
            nonlocal read
            read = before + records

        async with self.watcher.working(
            f"Reading back what {spec.client} sent", sum(end.sent), lambda: read
        ):
            for kind, topic in spec.topics.items():
                await read_topic(
                    cluster.bootstrap, topic, _taker(ledger, kind), on_progress=progressed
                )
                before = read
        path.with_suffix(".log").write_text(worker.log, encoding="utf-8")
        latencies = await asyncio.to_thread(
            Latencies.of, streams, read_outcomes(path), self.plan.seconds
        )
        return ClientResult(
            client=spec.client,
            verdict=await asyncio.to_thread(ledger.verdict),
            latencies=latencies,
            causes=end.causes,
            examples=end.examples,
            retried=end.retried,
            resources=resources(worker.samples, self.plan.seconds),
            first_ack_after=self._first_ack(path) if spec.client == OURS else None,
        )

    def _first_ack(self, path: Path) -> float | None:
        if not self.results.outages:
            return None
        # The last broker could answer from its start on.
        started = self.results.outages[-1].brokers_started or 0.0
        acked = (
            outcome.sent_at + outcome.latency for outcome in read_outcomes(path) if outcome.acked
        )
        return min((round(at, 3) for at in acked if at > started), default=None)


def _taker(ledger: Ledger, kind: str) -> Callable[[Any], None]:
    def take(message: Any) -> None:
        ledger.read(kind, message.partition, message.offset, message.key, message.value)

    return take
