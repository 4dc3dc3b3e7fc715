"""``kafkaclient perf-test --spark-master``: the load through many producers in Spark's tasks."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from kafkaclient.cli.perf_report import show_run
from kafkaclient.cli.run import stderr_console
from kafkaclient.errors import ConfigError
from kafkaclient.experiments.growth import growth_followed
from kafkaclient.experiments.record import write_runs
from kafkaclient.experiments.spark_load import Fleet, check_slots, merged, shares
from kafkaclient.spark.failures import spark_failures
from kafkaclient.spark.progress import report_progress
from kafkaclient.spark.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rich.console import Console

    from kafkaclient.cli.perf_test import PerfTestPlan
    from kafkaclient.experiments.run import Run

__all__ = ["run_fleet"]


def run_fleet(plan: PerfTestPlan, master: str, producers: int) -> list[Run]:
    """Run the load as often as asked; each run by as many new producers, merged into one."""
    if plan.print_metrics:
        raise ConfigError("--print-metrics tells of one producer: it goes without --spark-master")
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
                sys.stdout.write(whole.outcome.summary.line() + "\n")
                if whole.outcome.steady_state is not None:
                    sys.stdout.write(whole.outcome.steady_state.line(steady_state=True) + "\n")
                sys.stdout.flush()
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
    plan: PerfTestPlan, progress: Progress, tell: Callable[[int], None]
) -> AbstractContextManager[None]:
    """The producers may be on other machines; that their records arrive can be seen from here."""
    if progress.disable:
        return nullcontext()
    return growth_followed(plan.config, plan.topic, tell)


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
