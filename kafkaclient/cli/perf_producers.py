"""``perf-test --producers N``: a load through many producers, in processes or in Spark's tasks."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.cli.connection import check_reachable
from kafkaclient.cli.output import stderr_console
from kafkaclient.cli.perf_report import print_summary, show_run
from kafkaclient.cli.run import exit_on_signals
from kafkaclient.cli.spark import job_progress, spark_with_progress
from kafkaclient.errors import ConfigError
from kafkaclient.perf.growth import growth_followed
from kafkaclient.perf.processes import run_in_processes
from kafkaclient.perf.run import write_runs
from kafkaclient.perf.shared_load import merged, shares
from kafkaclient.perf.spark_load import BARRIER_SETTINGS, check_slots, run_together
from kafkaclient.spark.jobs import report_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import Progress, TaskID

    from kafkaclient.cli.perf_plan import PerfTestPlan
    from kafkaclient.perf.run import Run
    from kafkaclient.perf.shared_load import ProducerPlan

    RunAll: TypeAlias = Callable[[Sequence[ProducerPlan]], list[Run]]

_TITLE = "kafkaclient perf-test"
_FIELDS = ("records", "producers")


def run_shared(plan: PerfTestPlan, master: str | None, producers: int) -> list[Run]:
    """The runs of the load, each through new producers and merged into one.

    The producers run in tasks of the Spark master; without a master, in processes.
    """
    for flag, given in (
        ("--print-metrics", plan.print_metrics),
        ("--flame-graph", plan.flame_graph),
    ):
        if given:
            raise ConfigError(
                f"{flag} is for one producer: leave it out with --producers and --spark-master"
            )
    if master is None:  # Spark's workers may be in another network
        asyncio.run(check_reachable(plan.load.config, plan.timeout_s))
    runs, records = [], []
    with _in_processes() if master is None else _on_spark(master, producers) as shared:
        for number in range(1, plan.repeat + 1):
            whole, alone = _run(plan, producers, number, *shared)
            runs.append(whole)
            each = [run.record.as_json() for run in alone]
            records.append({**whole.record.as_json(), "producers": each})
            print_summary(whole)
            show_run(stderr_console(), whole)
    if plan.json is not None:
        write_runs(plan.json, records, **records[-1])
    return runs


@contextmanager
def _in_processes() -> Iterator[tuple[RunAll, Progress, TaskID]]:
    with exit_on_signals(), job_progress(*_FIELDS) as progress:
        task = progress.add_task("starting processes", total=None, records="", producers="")
        yield run_in_processes, progress, task


@contextmanager
def _on_spark(master: str, producers: int) -> Iterator[tuple[RunAll, Progress, TaskID]]:
    check_slots(master, producers)
    with spark_with_progress(_TITLE, master, BARRIER_SETTINGS, *_FIELDS) as (spark, progress, task):

        def ended(done: int, tasks: int) -> None:
            progress.update(task, producers=f"{done} of {tasks} done")

        def run_all(plans: Sequence[ProducerPlan]) -> list[Run]:
            with report_progress(spark, ended):
                return run_together(spark, plans)

        yield run_all, progress, task


def _run(
    plan: PerfTestPlan,
    producers: int,
    number: int,
    run_all: RunAll,
    progress: Progress,
    task: TaskID,
) -> tuple[Run, list[Run]]:
    load = replace(plan.load, labels=replace(plan.load.labels, run=number))
    total = load.spec.num_records
    name = f"{producers} x {load.client} → {load.topic}"
    name = name if plan.repeat == 1 else f"{name}, run {number}"
    progress.reset(task, total=total, description=name, records="", producers="")

    def arrived(records: int) -> None:
        progress.update(task, completed=records)
        speed = progress.tasks[task].speed or 0
        facts = f"{records:,} of {total:,} arrived, {speed:,.0f}/s"
        progress.update(task, records=facts)

    # The producers may run on other machines, so the bar follows the records in the topic.
    arrivals = growth_followed(load.config, load.topic, arrived)
    with nullcontext() if progress.disable else arrivals:
        alone = run_all(shares(load, producers))
    return merged(alone, load.client, load.spec, load.labels), alone
