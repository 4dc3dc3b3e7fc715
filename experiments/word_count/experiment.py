"""The experiment: each client counts the words of the same topic, in turns."""

from __future__ import annotations

import asyncio
import shutil

from experiments.experiment import BaseExperiment
from experiments.machine import machine_facts
from experiments.options import STREAMS
from experiments.word_count.clients import CLIENTS, command
from experiments.word_count.counts import Counts
from experiments.word_count.lines import Input
from experiments.word_count.plan import FAUST, FAUST_ROCKSDB, Plan
from experiments.word_count.process import started
from experiments.word_count.progress import Measured, Observer
from experiments.word_count.results import Results, Run, Skipped
from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError
from kafkaclient.testing.cluster import LocalCluster

__all__ = ["Experiment"]

_LINES = "lines"
_HEAP_MB = 1024


class Experiment(BaseExperiment[Plan, Results]):
    """Starts a broker, writes the lines, and has the clients count them, round after round.

    Every client starts with its own group, topics and disk, which are removed after its run.
    """

    results_type = Results
    libraries = STREAMS

    async def run(self) -> None:
        plan = self.plan
        self.watcher.say("Starting Kafka, 1 broker")
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        async with LocalCluster(brokers=1, long_lived=True, heap_mb=_HEAP_MB) as cluster:
            self.results.machine = machine_facts(kafka=cluster.version)
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic(_LINES, plan.partitions, 1)
                written = Input(plan)
                async with self.watcher.working(
                    f"Writing {plan.words:,} words", plan.words, lambda: written.written
                ):
                    await written.write(cluster.bootstrap, _LINES)
                for run in range(1, plan.runs + 1):
                    for client in plan.clients:
                        try:
                            await self._count(client, run, cluster.bootstrap, admin, written)
                        except (KafkaError, TimeoutError, OSError) as error:
                            reason = str(error) or type(error).__name__
                            self.results.skipped.append(Skipped(client, run, reason))
                            self.watcher.say(f"Failed: {client}, run {run}: {reason}")
                        self.results.write(self.folder)
        self.results.complete = True
        self.results.write(self.folder)

    async def _count(
        self, name: str, run: int, bootstrap: str, admin: Admin, written: Input
    ) -> None:
        plan, client = self.plan, CLIENTS[name]
        application = f"count-{name}-{run}"
        state = self.folder / f"state-{name}"
        await asyncio.to_thread(shutil.rmtree, state, ignore_errors=True)
        options = {
            "bootstrap_servers": bootstrap,
            "application_id": application,
            "topic": _LINES,
            "state_dir": str(state.resolve()),
        }
        starting = await command(name, plan, self.folder, options)
        counts = Counts(bootstrap, client.decode)
        observer = Observer(admin, bootstrap, client, application, plan)
        await self._create_topics(admin, name, application)
        try:
            async with (
                started(name, starting, self.folder / f"{name}.log") as process,
                self.watcher.working(
                    f"{name}, run {run} of {plan.runs}", plan.words, lambda: observer.words
                ),
            ):
                measured = await observer.watch(process, counts.read)
                await process.end()
            await counts.read(observer.changelog)
        finally:
            await asyncio.to_thread(shutil.rmtree, state, ignore_errors=True)
            mine = [topic for topic in await admin.list_topics() if application in topic]
            await admin.delete_topics(mine)
        self._add(name, run, measured, counts, written)

    async def _create_topics(self, admin: Admin, name: str, application: str) -> None:
        # faust-streaming does not read a topic that is made while it starts.
        if name in (FAUST, FAUST_ROCKSDB):
            await admin.create_topic(f"{application}-words", self.plan.partitions, 1)

    def _add(self, name: str, run: int, measured: Measured, counts: Counts, written: Input) -> None:
        assert measured.began is not None
        seconds = measured.ended - measured.began
        wrong = counts.wrong(written.counts)
        client = CLIENTS[name]
        found = Run(
            client=name,
            run=run,
            exactly_once=client.exactly_once,
            words=self.plan.words,
            seconds=round(seconds, 3),
            words_per_s=round(self.plan.words / seconds, 1) if seconds else 0.0,
            cpu_s=round(measured.at_end.cpu_s - measured.at_begin.cpu_s, 3),
            startup_s=round(measured.began - measured.started, 3),
            rss_mb=round(measured.at_end.rss_mb, 1),
            changes=counts.changes,
            wrong=wrong.words,
            missing=wrong.missing,
            surplus=wrong.surplus,
            examples=wrong.examples,
        )
        self.results.runs.append(found)
        exact = "every count exact" if not wrong.words else f"{wrong.words:,} counts wrong"
        self.watcher.say(f"{name}, run {run}: {found.words_per_s:,.0f} words/s, {exact}")
