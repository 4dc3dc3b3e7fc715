"""The output of ``perf-test``: lines of results on stdout, a bar and tables on stderr."""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from kafkaclient.cli.connection import check_reachable
from kafkaclient.cli.live_view import OwnProducerView, with_view
from kafkaclient.cli.output import (
    exit_on_signals,
    plain_table,
    print_message,
    progress_bar,
    stderr_console,
)
from kafkaclient.cli.report import job_progress, spark_with_progress
from kafkaclient.errors import ConfigError
from kafkaclient.perf.clients import KafkaclientClient
from kafkaclient.perf.latency import growth_followed
from kafkaclient.perf.run import merged, run_in_processes, shares, write_runs
from kafkaclient.perf.spark_load import BARRIER_SETTINGS, check_slots, run_together
from kafkaclient.spark.jobs import report_progress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rich.console import Console
    from rich.live import Live
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from kafkaclient.cli.perf_plan import PerfTestPlan
    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.perf.load import Load
    from kafkaclient.perf.run import LoadRun
    from kafkaclient.perf.traffic import Traffic


# --- The output of ``perf-test``: lines of results on stdout, a bar -------------------------------

_REFRESH_S = 0.25
_LOOK_EVERY = 4  # refreshes: the view changes each second
_BROKER_COLUMNS = (
    *("broker", "bytes", "share", "requests", "bytes/request", "median ms", "window"),
    "exclusions",
)
_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)
_MOST_PARTITIONS = 48


def producer_view(console: Console, client: str) -> OwnProducerView | None:
    """A view of the client's producer; None without a terminal, or for other clients."""
    on_a_terminal = console.is_terminal and sys.stdout.isatty()
    return OwnProducerView() if on_a_terminal and client == KafkaclientClient.name else None


@asynccontextmanager
async def progress_shown(
    console: Console, load: Load, plan: PerfTestPlan, run: int, view: OwnProducerView | None
) -> AsyncIterator[None]:
    """Show a bar that follows the load, below a view of the producer; the event loop draws."""
    name = plan.load.client if plan.repeat == 1 else f"{plan.load.client} {run}/{plan.repeat}"
    progress = progress_bar(
        console,
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        # A thread that draws would compete with the load for the interpreter.
        auto_refresh=False,
    )
    task = progress.add_task(f"{name} → {plan.load.topic}", total=load.spec.num_records, rate="")
    screen = progress if view is None else with_view(progress, view)
    with screen:
        follower = asyncio.create_task(_follow(screen, progress, task, load, view))
        try:
            yield
        finally:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)


async def _follow(
    screen: Progress | Live,
    progress: Progress,
    task: TaskID,
    load: Load,
    view: OwnProducerView | None,
) -> None:
    seen = 0
    for number in itertools.count(1):
        await asyncio.sleep(_REFRESH_S)
        if view is not None and number % _LOOK_EVERY == 0:
            view.refresh()
        done = load.acknowledged + load.failed
        rate = f"{(done - seen) / _REFRESH_S:,.0f}/s"
        seen = done
        progress.update(task, completed=done, rate=rate)
        screen.refresh()


def print_summary(run: LoadRun) -> None:
    """Print the final lines of a run on stdout."""
    print_line(run.outcome.summary.line())
    if run.outcome.steady_state is not None:
        print_line(run.outcome.steady_state.line(steady_state=True))


def print_line(line: str) -> None:
    """Print a line on stdout, above the progress bar."""
    # typer.echo would bypass the redirection with which the bar protects a terminal's stdout.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def metrics_lines(metrics: MetricsSnapshot) -> str:
    """Metrics in the form of Kafka's tools (Java: ``ToolsUtils.printMetrics``)."""
    flat = {
        f"{group}:{name}": value
        for group, values in chain(
            [("producer-metrics", metrics.producer)],
            ((f"producer-node-metrics:node-{id_}", v) for id_, v in metrics.brokers.items()),
            ((f"producer-partition-metrics:{tp}", v) for tp, v in metrics.partitions.items()),
            ((f"producer-topic-metrics:{topic}", v) for topic, v in metrics.topics.items()),
        )
        for name, value in values.items()
    }
    width = max(map(len, flat))
    lines = (f"{name:<{width}} : {value:.3f}" for name, value in flat.items())
    return "\n".join(chain(["", f"{'Metric Name':<{width}}   Value"], lines))


def show_run(console: Console, run: LoadRun) -> None:
    """Print tables of latency percentiles, and of bytes and requests by broker and partition."""
    console.print()
    tables = [_latency_table(run)]
    if run.traffic is not None:
        tables += [_broker_table(run.traffic), _partition_table(run.traffic)]
    console.print(Group(*tables))
    for cause, count in run.outcome.errors.most_common(5):
        print_message(f"{count:,} failed", cause)


def _latency_table(run: LoadRun) -> Table:
    percentile_ms = run.outcome.summary.distribution.percentile_ms
    table = plain_table("Latency, ms", ("avg", *(f"p{p:g}" for p in _PERCENTILES), "max"))
    times = (run.record.avg_ms, *map(percentile_ms, _PERCENTILES), run.record.max_ms)
    table.add_row(*map(_ms, times))
    return table


def _broker_table(traffic: Traffic) -> Table:
    table = plain_table("Brokers", _BROKER_COLUMNS)
    total = sum(traffic.bytes_per_broker)
    for broker in traffic.brokers:
        requests = broker.requests_sent
        table.add_row(
            str(broker.node_id),
            f"{broker.bytes_sent:,}",
            _share(broker.bytes_sent, total),
            _count(requests),
            f"{broker.bytes_sent / requests:,.0f}" if requests else "",
            _ms(None if broker.latency_s is None else broker.latency_s * 1e3),
            _count(broker.window),
            _count(broker.exclusions),
        )
    return table


def _partition_table(traffic: Traffic) -> Table:
    shown = traffic.partitions[:_MOST_PARTITIONS]
    more = len(traffic.partitions) - len(shown)
    title = "Partitions" + (f" (first {len(shown)}, {more} more)" if more else "")
    table = plain_table(title, ("partition", "leader", "records", "batches", "bytes", "share"))
    if traffic.skew is not None:
        table.caption = f"skew {traffic.skew:.2f} (most bytes of a partition / mean)"
    total = sum(partition.bytes_sent for partition in traffic.partitions)
    for partition in shown:
        table.add_row(
            str(partition.partition),
            str(partition.leader),
            f"{partition.records_sent:,}",
            _count(partition.batches_sent),
            f"{partition.bytes_sent:,}",
            _share(partition.bytes_sent, total),
        )
    return table


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{value:,.2f}"


def _share(part: int, total: int) -> str:
    return f"{part / total:.1%}" if total else ""


# --- ``perf-test --producers N``: a load through many producers -----------------------------------

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import Progress, TaskID

    from kafkaclient.cli.perf_plan import PerfTestPlan
    from kafkaclient.perf.run import LoadRun, ProducerPlan

    RunAll: TypeAlias = Callable[[Sequence[ProducerPlan]], list[LoadRun]]

_TITLE = "kafkaclient perf-test"
_FIELDS = ("records", "producers")


def run_shared(plan: PerfTestPlan, master: str | None, producers: int) -> list[LoadRun]:
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

        def run_all(plans: Sequence[ProducerPlan]) -> list[LoadRun]:
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
) -> tuple[LoadRun, list[LoadRun]]:
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
