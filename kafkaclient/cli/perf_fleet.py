"""``kafkaclient perf-test --spark-master``: a load through many producers in Spark's tasks."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkaclient.cli.output import stderr_console
from kafkaclient.cli.perf_report import print_summary, show_run
from kafkaclient.cli.spark import spark_with_progress
from kafkaclient.errors import ConfigError
from kafkaclient.perf.growth import growth_followed
from kafkaclient.perf.run import write_runs
from kafkaclient.perf.spark_load import BARRIER_SETTINGS, check_slots, merged, run_together, shares
from kafkaclient.spark.jobs import report_progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kafkaclient.cli.perf_plan import PerfTestPlan
    from kafkaclient.perf.run import Run


def run_fleet(plan: PerfTestPlan, master: str, producers: int) -> list[Run]:
    """The runs of the load, each through new producers and merged into one."""
    if plan.print_metrics:
        raise ConfigError("--print-metrics is for one producer: leave it out with --spark-master")
    check_slots(master, producers)
    runs, records = [], []
    with spark_with_progress(
        "kafkaclient perf-test", master, BARRIER_SETTINGS, "records", "producers"
    ) as (spark, progress, task):
        for number in range(1, plan.repeat + 1):
            whole, alone = _run(spark, plan, producers, number, progress, task)
            runs.append(whole)
            each = [run.record.as_json() for run in alone]
            records.append({**whole.record.as_json(), "producers": each})
            print_summary(whole)
            show_run(stderr_console(), whole)
    if plan.json is not None:
        write_runs(plan.json, records, **records[-1])
    return runs


def _run(
    spark: Any, plan: PerfTestPlan, producers: int, number: int, progress: Progress, task: TaskID
) -> tuple[Run, list[Run]]:
    load = replace(plan.load, labels=replace(plan.load.labels, run=number))
    total = load.spec.num_records
    name = f"{producers} x {load.client} → {load.topic}"
    name = name if plan.repeat == 1 else f"{name}, run {number}"
    progress.reset(task, total=total, description=name, records="", producers="")

    def ended(done: int, tasks: int) -> None:
        progress.update(task, producers=f"{done} of {tasks} done")

    def arrived(records: int) -> None:
        progress.update(task, completed=records)
        speed = progress.tasks[task].speed or 0
        facts = f"{records:,} of {total:,} arrived, {speed:,.0f}/s"
        progress.update(task, records=facts)

    # The producers may run on other machines, so the bar follows the records in the topic.
    arrivals = growth_followed(load.config, load.topic, arrived)
    with report_progress(spark, ended), nullcontext() if progress.disable else arrivals:
        alone = run_together(spark, shares(load, producers))
    return merged(alone, load.client, load.spec, load.labels), alone
