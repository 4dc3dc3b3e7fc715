"""``kafkaclient perf-test --spark-master``: a load through many producers in Spark's tasks."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from kafkaclient.cli.perf_report import print_summary, show_run
from kafkaclient.cli.run import stderr_console
from kafkaclient.errors import ConfigError
from kafkaclient.perf.growth import growth_followed
from kafkaclient.perf.record import write_runs
from kafkaclient.perf.spark_load import Fleet, check_slots, merged, shares
from kafkaclient.spark.jobs import report_progress, spark_failures
from kafkaclient.spark.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rich.console import Console

    from kafkaclient.cli.perf_plan import PerfTestPlan
    from kafkaclient.perf.run import Run

__all__ = ["run_fleet"]


def run_fleet(plan: PerfTestPlan, master: str, producers: int) -> list[Run]:
    """The runs of the load, each through new producers and merged into one."""
    if plan.print_metrics:
        raise ConfigError("--print-metrics is for one producer: leave it out with --spark-master")
    check_slots(master, producers)
    console = stderr_console()
    runs, records = [], []
    with _progress(console) as progress:
        task = progress.add_task("starting Spark", total=None, records="", producers="")
        with spark_failures("starting Spark"):
            spark = spark_session(
                "kafkaclient perf-test", master, Fleet.settings, java_options=QUICK_START
            )
        try:
            for number in range(1, plan.repeat + 1):
                whole, alone = _run(spark, plan, producers, number, progress, task)
                runs.append(whole)
                each = [run.record.as_json() for run in alone]
                records.append({**whole.record.as_json(), "producers": each})
                print_summary(whole)
                show_run(console, whole)
        finally:
            spark.stop()
    if plan.json is not None:
        write_runs(plan.json, records, **records[-1])
    return runs


def _run(
    spark: Any, plan: PerfTestPlan, producers: int, number: int, progress: Progress, task: TaskID
) -> tuple[Run, list[Run]]:
    labels = replace(plan.labels, run=number)
    config = plan.config
    plans = shares(plan.producer, plan.topic, config, plan.spec, labels, plan.records, producers)
    name = f"{producers} x {plan.producer} → {plan.topic}"
    name = name if plan.repeat == 1 else f"{name}, run {number}"
    progress.reset(task, total=plan.spec.num_records, description=name, records="", producers="")

    def ended(done: int, tasks: int) -> None:
        progress.update(task, producers=f"{done} of {tasks} done")

    def arrived(records: int) -> None:
        progress.update(task, completed=records)
        speed = progress.tasks[task].speed or 0
        facts = f"{records:,} of {plan.spec.num_records:,} arrived, {speed:,.0f}/s"
        progress.update(task, records=facts)

    with report_progress(spark, ended), _arrivals(plan, progress, arrived):
        alone = Fleet(spark).run(plans)
    return merged(alone, plan.producer, plan.spec, labels), alone


def _arrivals(
    plan: PerfTestPlan, progress: Progress, on_progress: Callable[[int], None]
) -> AbstractContextManager[None]:
    """Follow the records that arrive in the topic: the producers may run on other machines."""
    if progress.disable:
        return nullcontext()
    return growth_followed(plan.config, plan.topic, on_progress)


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[records]}"),
        TextColumn("{task.fields[producers]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
