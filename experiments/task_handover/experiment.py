"""The experiment: each mode makes the same steps, with its own topics and disks."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.counting.group_log import EVICTED, REBALANCED, read_group_log
from experiments.counting.instances import OUR_COMMAND, Fleet
from experiments.counting.load import Load
from experiments.counting.outcome import Outcome, Window, read_counts
from experiments.experiment import BaseExperiment
from experiments.machine import machine_facts
from experiments.options import STREAMS
from experiments.task_handover.plan import QUIX, STEPS, Plan, Step
from experiments.task_handover.results import Results, Run, Skipped
from kafkaclient.admin import Admin
from kafkaclient.errors import KafkaError
from kafkaclient.streams.description import describe_application
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from experiments.counting.group_log import GroupEvent
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Experiment"]

_POLL_S = 0.2
_STEADY_S = 1.0
"""The group must be balanced for this time: instances report their status a little later."""
_LEFT_S = 1.0
"""A group has caught up when fewer records wait than are sent in this time."""
_MEMBERS = {Step.START: 1, Step.JOIN_2: 2, Step.JOIN_3: 3, Step.CRASH: 2, Step.RESTART: 2}


_QUIX_WORKER = Path(__file__).parents[1] / "counting" / "quix_worker.py"


class _Stepped(NamedTuple):
    window: Window
    staying: list[int]
    """Partitions of the tasks that stayed where they were."""
    balanced_s: float
    restored: int
    followed: int


class Experiment(BaseExperiment[Plan, Results]):
    """Has instances join, crash and restart, mode by mode."""

    results_type = Results
    libraries = STREAMS

    async def run(self) -> None:
        self.watcher.say(f"Starting Kafka, {self.plan.brokers} broker(s)")
        self.folder.mkdir(parents=True, exist_ok=True)
        async with LocalCluster(brokers=self.plan.brokers, long_lived=True) as cluster:
            self.results.machine = machine_facts(kafka=cluster.version)
            for mode in self.plan.modes:
                try:
                    async with Admin(cluster.bootstrap) as admin:
                        await _Mode(self, mode, cluster, admin).run()
                except (KafkaError, TimeoutError, OSError) as error:
                    reason = str(error) or type(error).__name__
                    self.results.skipped.append(Skipped(mode, reason))
                    self.watcher.say(f"Failed: {mode}: {reason}")
                self.results.write(self.folder)
        self.results.complete = True
        self.results.write(self.folder)


class _Mode:
    """All steps of a mode."""

    def __init__(
        self, experiment: Experiment, mode: str, cluster: ClusterHandle, admin: Admin
    ) -> None:
        self._plan = experiment.plan
        self._results = experiment.results
        self._watcher = experiment.watcher
        self._mode = mode
        self._cluster = cluster
        self._admin = admin
        self._application = f"handover-{mode}"
        self._source, self._target = f"{self._application}-in", f"{self._application}-out"
        self._changelog = f"{self._application}-counts-changelog"
        self._load = Load(self._plan.load, cluster.bootstrap, self._source)
        self._fleet = Fleet(mode, self._command(), self._options(), experiment.folder)

    def _command(self) -> tuple[str, ...]:
        if self._mode != QUIX:
            return OUR_COMMAND
        return (str(self._plan.peer_python or sys.executable), str(_QUIX_WORKER))

    def _options(self) -> dict[str, Any]:
        return {
            "processors": [[self._source, self._target, "counts"]],
            "value_size": self._plan.value_size,
            "cpu_ms": self._plan.cpu_ms,
            "app": {
                "bootstrap_servers": self._cluster.bootstrap,
                "application_id": self._application,
                **self._plan.app_options(self._mode),
            },
        }

    async def run(self) -> None:
        try:
            await self._create_topics()
            async with self._fleet.running():
                await self._prefill()
                sending = asyncio.create_task(self._load.run())
                try:
                    stepped = [await self._step(step, sending) for step in STEPS]
                finally:
                    self._load.stop()
                    await sending
                await self._done(_MEMBERS[STEPS[-1]], left=0)
                for name in list(self._fleet.instances):
                    await self._fleet.end(name, signal.SIGTERM)
            await self._read(stepped)
        finally:
            names = (self._source, self._target, self._changelog)
            await self._admin.delete_topics(names)

    async def _create_topics(self) -> None:
        tasks = self._plan.tasks
        await self._admin.create_topic(self._source, tasks, 1)
        await self._admin.create_topic(
            # The broker's time replaces the time that a library writes into its records.
            *(self._target, tasks, 1),
            configs={"message.timestamp.type": "LogAppendTime"},
        )
        if self._mode != QUIX:
            await self._admin.create_topic(
                self._changelog, tasks, 1, configs={"cleanup.policy": "compact"}
            )

    async def _prefill(self) -> None:
        load = self._load
        async with self._watcher.working(
            f"{self._mode}: writing the state", self._plan.keys, lambda: load.prefilled
        ):
            if self._mode != QUIX:
                await load.prefill_changelog(self._changelog)
                return
            # Only the library can write its changelog; after that its disk is removed.
            await load.prefill_source()
            await self._fleet.start("first")
            await self._done(1, left=0)
            await self._fleet.end("first", signal.SIGTERM)
            await self._fleet.lose_disk("first")

    async def _step(self, step: Step, sending: asyncio.Task[None]) -> _Stepped:
        restored, followed = self._fleet.bytes_read()
        before = self._fleet.runners()
        begins, clock = time.time(), time.monotonic()
        await self._act(step)
        members = _MEMBERS[step]
        async with self._watcher.working(
            f"{self._mode}: {step}", members, lambda: len(self._fleet.instances)
        ):
            done = asyncio.create_task(self._done(members))
            await asyncio.wait({done, sending}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                done.cancel()
                await sending  # raises what ended the load
            balanced_s = await done - clock
        await asyncio.sleep(self._plan.settle_s)
        after = self._fleet.runners()
        now_restored, now_followed = self._fleet.bytes_read()
        self._watcher.say(f"{self._mode}: {step}: balanced after {balanced_s:.1f} s")
        return _Stepped(
            Window(step, begins, time.time()),
            # The second instance is another process after its restart.
            [
                int(task.partition("_")[2])
                for task, name in after.items()
                if before.get(task) == name and not (step is Step.RESTART and name == "second")
            ],
            balanced_s,
            now_restored - restored,
            now_followed - followed,
        )

    async def _act(self, step: Step) -> None:
        fleet = self._fleet
        match step:
            case Step.START:
                await fleet.start("first")
            case Step.JOIN_2:
                await fleet.start("second")
            case Step.JOIN_3:
                await fleet.start("third")
            case Step.CRASH:
                await fleet.end("third", signal.SIGKILL)
            case Step.RESTART:
                await fleet.end("second", signal.SIGTERM)
                await fleet.start("second")

    async def _done(self, members: int, left: float | None = None) -> float:
        """The time at which the group became balanced, once it has stayed so for a moment.

        It is balanced with ``members`` and at most ``left`` waiting records (None: a second's).
        """
        left = self._plan.rate * _LEFT_S if left is None else left
        since = None
        try:
            async with asyncio.timeout(self._plan.step_timeout_s):
                while since is None or time.monotonic() - since < _STEADY_S:
                    await asyncio.sleep(_POLL_S)
                    now = time.monotonic()
                    self._fleet.check()
                    if not (
                        self._settled()
                        and await self._balanced(members)
                        and await self._left() <= left
                    ):
                        since = None
                    elif since is None:
                        since = now
        except TimeoutError:
            raise KafkaError(
                f"{self._mode}: not balanced within {self._plan.step_timeout_s:g} s: "
                f"{[i.status for i in self._fleet.instances.values()]}"
            ) from None
        return since

    def _settled(self) -> bool:
        if self._mode == QUIX:  # it reports no status; the group's lag shows the same
            return True
        return self._fleet.settled(self._plan.tasks, self._plan.acceptable_recovery_lag)

    async def _balanced(self, members: int) -> bool:
        if self._mode == QUIX:
            group = await self._admin.describe_group(self._application)
            return group.state == "Stable" and len(group.members) == members
        found = await describe_application(self._admin, self._application)
        return found.is_balanced and len(found.members) == members

    async def _left(self) -> int:
        partitions = [TopicPartition(self._source, number) for number in range(self._plan.tasks)]
        ends = await self._admin.end_offsets(partitions)
        committed = await self._admin.committed_offsets(self._application, partitions)
        return sum(end - committed.get(partition, 0) for partition, end in ends.items())

    async def _read(self, stepped: list[_Stepped]) -> None:
        tasks = self._plan.tasks
        outcome = Outcome(tasks, [each.window for each in stepped])
        await read_counts(self._cluster.bootstrap, self._target, tasks, outcome)
        outcome.end(self._load.sent)
        known = self._mode != QUIX
        events = await asyncio.to_thread(read_group_log, self._cluster, self._application)
        gaps = self._results.gaps[self._mode] = {}
        for window, staying, balanced_s, restored, followed in stepped:
            step = gaps[window.name] = [round(gap, 3) for gap in outcome.gaps(window)]
            self._results.runs.append(
                Run(
                    mode=self._mode,
                    step=window.name,
                    longest_gap_s=max(step),
                    longest_gap_staying_s=max((step[task] for task in staying), default=None),
                    time_to_balance_s=round(balanced_s, 3),
                    warmup_bytes=followed if known else None,
                    restored_bytes=restored if known else None,
                    rebalances=_count(events, REBALANCED, window),
                    # A member that was killed is removed in this way, too.
                    evictions=max(0, _count(events, EVICTED, window) - (window.name == Step.CRASH)),
                    counts_exact=not outcome.wrong[window.name],
                )
            )
        self._watcher.say(
            f"{self._mode}: {sum(self._load.sent.values()):,} records counted, "
            f"{sum(outcome.wrong.values()):,} wrong"
        )
        for example in outcome.examples:
            self._watcher.say(f"{self._mode}: {example}")


def _count(events: list[GroupEvent], kind: str, window: Window) -> int:
    return sum(e.kind == kind and window.begins <= e.at < window.ends for e in events)
