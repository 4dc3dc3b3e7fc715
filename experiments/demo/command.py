"""``python -m experiments demo``: a real data set through three real brokers, one of them slow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from experiments.command import print_files
from experiments.demo.experiment import DemoPlan, DemoRun, run_demo
from experiments.demo.report import write_report
from experiments.experiment import REPORT, SUMMARY
from experiments.watcher import ConsoleWatcher
from kafkaclient.cli.output import FAILED, WIDE, run_command, stderr_console, stdout_console
from kafkaclient.perf.run import write_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["demo"]


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for summary.json and report.html.")] = Path(
        "build/demo"
    ),
    rows: Annotated[
        int | None, typer.Option(min=1, help="Publish the first ROWS flights only.")
    ] = None,
    rate: Annotated[float, typer.Option(min=1, help="Rows per second.")] = 8000.0,
    delay_ms: Annotated[
        float, typer.Option(min=0, help="Delay of each Produce response of broker 0.")
    ] = 20.0,
) -> None:
    """Publish 336,776 flights to three real Kafka brokers, one of them slow, in four settings,
    and with keys while that broker takes nothing for ten seconds, beside confluent-kafka.

    Starts the brokers itself (the first time, it downloads Kafka), reads every topic back with
    another client's consumer, prints one table, and writes OUT/summary.json and OUT/report.html.
    Takes six to seven minutes. The exit status is 1 if a row is lost, duplicated or reordered.
    """
    plan = DemoPlan(rows=rows, rate=rate, delay_ms=delay_ms)
    runs = run_command(run_demo(plan, ConsoleWatcher(stderr_console())))
    write_runs(out / SUMMARY, [run.as_json() for run in runs])
    write_report(out / REPORT, plan, runs)
    console = stdout_console(WIDE)
    console.print(_table(runs))
    print_files(console, out)
    if not all(run.read_back.is_exact for run in runs):
        raise typer.Exit(FAILED)


def _table(runs: Sequence[DemoRun]) -> Table:
    table = Table(title="One slow broker of three: broker 0 answers late", title_style="bold")
    table.add_column("setting", overflow="fold")
    for heading in (
        *("rows/s", "avg ms", "p50", "p95", "p99", "p99.9", "MB to broker 0 / 1 / 2"),
        "to 1 and 2/s, stalled",
        *("requests", "lost", "duplicated", "reordered"),
    ):
        table.add_column(
            heading, justify="right", no_wrap=heading not in {"MB to broker 0 / 1 / 2"}
        )
    for run in runs:
        record = run.record
        latencies = (record.avg_ms, record.p50_ms, record.p95_ms, record.p99_ms, record.p999_ms)
        table.add_row(
            record.setting,
            f"{record.records_per_s:,.0f}",
            *("?" if latency is None else f"{latency:,.1f}" for latency in latencies),
            " / ".join(f"{sent / 1e6:.1f}" for sent in record.bytes_per_broker or ()),
            "" if run.to_others is None else "{:,.0f} → {:,.0f}".format(*run.to_others),
            f"{sum(record.requests_per_broker or ()):,}",
            *(_count(count) for count in (record.lost, record.duplicated, record.reordered)),
        )
    return table


def _count(count: int | None) -> str | Text:
    return Text(f"{count:,}", "bold red") if count else "0"
