"""The experiment: every run goes through the same proxies, which delay one broker's responses."""

from __future__ import annotations

import asyncio
import gc
import itertools
import multiprocessing
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.clients import FRANZ, JAVA, OURS, client_config
from experiments.experiment import BaseExperiment
from experiments.figures import points
from experiments.franz import run_franz
from experiments.java import run_java
from experiments.machine import cluster_facts
from experiments.payload import numbered_payloads
from experiments.readback import read_back
from experiments.slow_broker.fleet import fleet
from experiments.slow_broker.plan import Plan, PlannedRun, refusal
from experiments.slow_broker.results import Latencies, Recorded, Results, Skipped
from experiments.slow_broker.rules import with_rule
from experiments.slow_broker.settings import Setting
from experiments.topics import create_topics, delete_topics, produce_count
from kafkaclient.errors import KafkaError
from kafkaclient.perf.clients import make_client
from kafkaclient.perf.load import Load, LoadSpec
from kafkaclient.perf.run import Labels, measure, summary_record
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.watcher import Watcher
    from kafkaclient.perf.run import RunRecord
    from kafkaclient.perf.traffic import KeyValue
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["SLOW_BROKER", "Experiment"]

SLOW_BROKER = 0

_TOOLS = (JAVA, FRANZ)
"""The clients that are driven by a program, which prints the result; all others run here."""
_WARM_UP_S = 5.0
_SETTLE_S = 0.5


@dataclass(frozen=True, slots=True)
class _Measured:
    record: RunRecord
    steady_state: RunRecord | None
    points: Sequence[tuple[float, float]]


class Experiment(BaseExperiment[Plan, Results]):
    """Sends with every client and setting while one broker answers late.

    Skips each setting of ours that this build refuses. Raises ConfigError for a peer that is not
    installed.
    """

    results_type = Results

    def __init__(self, plan: Plan, folder: Path, watcher: Watcher) -> None:
        super().__init__(plan, folder, watcher)
        self._topics = itertools.count()

    async def run(self) -> None:
        settings = self._accepted()
        self.watcher.say(f"Starting {self.plan.brokers} Kafka brokers")
        async with LocalCluster(brokers=self.plan.brokers, long_lived=True) as cluster:
            self.results.machine = await cluster_facts(cluster)
            rows = numbered_payloads(
                self.plan.record_size, self.plan.spec(max(self.plan.rates)).num_records
            )
            # The rows live until the end. Collections that look through them would show as latency
            # of the clients in this process.
            gc.collect()
            gc.freeze()
            await self._warm_up(cluster, rows)
            await self._make_late(cluster)
            await self._measure_all(cluster, settings, rows)
            if self.plan.decisions:
                await self._record_all(cluster, settings, rows)
        await self._fleets(settings)
        self.results.complete = True
        self.results.write(self.folder)

    def _accepted(self) -> tuple[Setting, ...]:
        accepted = []
        for setting in self.plan.settings:
            reason = refusal(setting)
            if reason is None:
                accepted.append(setting)
            else:
                self.results.skipped.append(Skipped(setting.client, setting.name, reason))
                self.watcher.say(f"Left out {setting.label}: {reason}")
        return tuple(accepted)

    async def _warm_up(self, cluster: ClusterHandle, rows: Sequence[KeyValue]) -> None:
        """Give the brokers' virtual machines time to compile before the first run."""
        topic = await self._new_topic(cluster)
        rate = max(self.plan.rates)
        spec = LoadSpec(num_records=min(len(rows), int(rate * _WARM_UP_S)), rate=rate)
        client = make_client(OURS, client_config(cluster.proxied_bootstrap), topic)
        load = Load(client, spec)
        async with self.watcher.working(
            "Warming the brokers up", spec.num_records, lambda: load.acknowledged
        ):
            await measure(client, load, rows, Labels("warm-up", None))
        await delete_topics(cluster, [topic])

    async def _make_late(self, cluster: ClusterHandle) -> None:
        delay_s = self.plan.delay_ms / 1e3
        if self.plan.all_late:
            for broker in range(self.plan.brokers):
                await cluster.proxy(broker).delay_produce(delay_s, overlapping=True)
            who = "Every broker"
        else:
            await cluster.delay_produce(SLOW_BROKER, delay_s)
            who = f"Broker {SLOW_BROKER}"
        self.watcher.say(f"{who} now answers each Produce {self.plan.delay_ms:g} ms late")

    async def _measure_all(
        self, cluster: ClusterHandle, settings: tuple[Setting, ...], rows: Sequence[KeyValue]
    ) -> None:
        planned = list(self.plan.runs(settings))
        for place, run in enumerate(planned, 1):
            label = run.label + (f", run {run.number}" if self.plan.repeat > 1 else "")
            try:
                async with self.watcher.running(
                    label, place, len(planned), self.plan.seconds + _SETTLE_S
                ):
                    measured = await self._measure(cluster, run, rows)
            except KafkaError as error:
                self._failed(run, str(error))
                continue
            self._take(run, measured)
            self.watcher.say(f"{place}/{len(planned)} {label}: {_verdict(measured.record)}")

    async def _measure(
        self, cluster: ClusterHandle, run: PlannedRun, rows: Sequence[KeyValue]
    ) -> _Measured:
        spec = self.plan.spec(run.rate)
        labels = Labels(run.setting.name, run.setting.linger_ms, run.number)
        topic = await self._new_topic(cluster)
        await asyncio.sleep(_SETTLE_S)
        before = await produce_count(cluster)
        if run.setting.client in _TOOLS:
            measured = await self._tool(cluster, run.setting, topic, spec, labels)
        else:
            measured = await self._python(
                cluster, run.setting.options, topic, spec, labels, rows, run.setting.client
            )
        counted = (await produce_count(cluster)).since(before)
        record = counted.added_to(measured.record)
        if run.setting.client not in _TOOLS:
            found = await read_back(cluster.bootstrap, topic, rows[: spec.num_records])
            record = found.added_to(record)
        await delete_topics(cluster, [topic])
        return _Measured(record, measured.steady_state, measured.points)

    async def _tool(
        self,
        cluster: ClusterHandle,
        setting: Setting,
        topic: str,
        spec: LoadSpec,
        labels: Labels,
    ) -> _Measured:
        size = self.plan.record_size
        if setting.client == JAVA:
            outcome = await run_java(cluster, topic, setting.options, spec, size)
        else:
            outcome = await run_franz(cluster.proxied_bootstrap, topic, setting.options, spec, size)
        whole, steady = outcome.whole, outcome.steady_state
        due = spec.num_records - spec.warmup_records
        return _Measured(
            whole.record(spec, labels, size, spec.num_records, setting.client),
            None if steady is None else steady.record(spec, labels, size, due, setting.client),
            whole.points(),
        )

    async def _python(
        self,
        cluster: ClusterHandle,
        options: Mapping[str, str],
        topic: str,
        spec: LoadSpec,
        labels: Labels,
        rows: Sequence[KeyValue],
        client_name: str = OURS,
    ) -> _Measured:
        config, rule = with_rule(client_config(cluster.proxied_bootstrap, options))
        client = make_client(client_name, config, topic, rule)
        gc.collect()
        run = await measure(client, Load(client, spec), rows, labels)
        steady = run.outcome.steady_state
        return _Measured(
            run.record,
            None if steady is None else summary_record(client.name, spec.rate, steady, labels),
            points(run.outcome.summary.distribution),
        )

    async def _record_all(
        self, cluster: ClusterHandle, settings: tuple[Setting, ...], rows: Sequence[KeyValue]
    ) -> None:
        """Run our settings again with telemetry, which the measured runs do not have."""
        ours = [setting for setting in settings if setting.client == OURS]
        if not ours:
            return
        reason = refusal(Setting(OURS, "telemetry", {"telemetry": str(self.folder)}))
        if reason is not None:
            self.results.skipped.append(Skipped(OURS, "telemetry", reason))
            self.watcher.say(f"No decisions are recorded: {reason}")
            return
        for place, setting in enumerate(ours, 1):
            run = PlannedRun(setting, self.plan.rates[0], 1)
            try:
                async with self.watcher.running(
                    f"{run.label}, recorded", place, len(ours), self.plan.recorded_s
                ):
                    self.results.recorded.append(await self._record(cluster, run, rows))
            except KafkaError as error:
                self._failed(run, f"with telemetry: {error}")
            self.results.write(self.folder)
        self.watcher.say(f"Recorded the decisions of {len(self.results.recorded)} runs")

    async def _record(
        self, cluster: ClusterHandle, run: PlannedRun, rows: Sequence[KeyValue]
    ) -> Recorded:
        relative = f"telemetry/{re.sub(r'[^a-z0-9]+', '-', run.setting.name)}"
        folder = self.folder / relative
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        topic = await self._new_topic(cluster)
        await asyncio.sleep(_SETTLE_S)
        before = await produce_count(cluster)
        measured = await self._python(
            cluster,
            {**run.setting.options, "telemetry": str(folder)},
            topic,
            self.plan.spec(run.rate, self.plan.recorded_s),
            Labels(run.setting.name, run.setting.linger_ms),
            rows,
        )
        counted = (await produce_count(cluster)).since(before)
        await delete_topics(cluster, [topic])
        return Recorded(counted.added_to(measured.record), relative)

    async def _fleets(self, settings: tuple[Setting, ...]) -> None:
        """Many producers in virtual time, on all processors: no clock of the machine counts."""
        ours = [setting for setting in settings if setting.client == OURS]
        if not ours or not self.plan.producers:
            return
        self.watcher.say("Many producers at once, in virtual time")
        loop = asyncio.get_running_loop()
        with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
            delay_s, brokers = self.plan.delay_ms / 1e3, self.plan.brokers
            running = [
                loop.run_in_executor(
                    pool, fleet, setting.name, dict(setting.options), count, delay_s, brokers
                )
                for setting in ours
                for count in self.plan.producers
            ]
            self.results.fleets += await asyncio.gather(*running)

    async def _new_topic(self, cluster: ClusterHandle) -> str:
        topic = f"slow-broker-{next(self._topics)}"
        await create_topics(cluster, [topic], self.plan.partitions, config=self.plan.topic_config)
        return topic

    def _take(self, run: PlannedRun, measured: _Measured) -> None:
        self.results.runs.append(measured.record)
        if measured.steady_state is not None:
            self.results.steady_state.append(measured.steady_state)
        self.results.latencies.append(
            Latencies(
                run.setting.client,
                run.setting.name,
                run.rate,
                run.number,
                tuple((share, round(ms, 3)) for share, ms in measured.points),
            )
        )
        self.results.write(self.folder)

    def _failed(self, run: PlannedRun, reason: str) -> None:
        skipped = Skipped(run.setting.client, run.setting.name, reason, run.rate, run.number)
        self.results.skipped.append(skipped)
        self.results.write(self.folder)
        self.watcher.say(f"Failed: {run.label}: {reason}")


def _verdict(record: RunRecord) -> str:
    sent = record.bytes_per_broker or ()
    share = f"{sent[SLOW_BROKER] / sum(sent):.2f}" if sum(sent) else "?"
    avg, p99 = (
        "?" if value is None else f"{value:,.1f}" for value in (record.avg_ms, record.p99_ms)
    )
    bad = {
        name: count
        for name in ("errors", "lost", "duplicated", "reordered")
        if (count := getattr(record, name))
    }
    counts = "".join(f", {count:,} {name}" for name, count in bad.items())
    return f"avg {avg} ms, p99 {p99} ms, slow broker's share {share}{counts}"
