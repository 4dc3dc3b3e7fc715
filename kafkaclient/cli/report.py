"""``kafkaclient report``: Spark aggregates telemetry into tables and a page."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from kafkaclient.cli.run import WIDE, run_blocking, stderr_console, stdout_console
from kafkaclient.errors import ConfigError
from kafkaclient.spark.jobs import report_progress, spark_failures
from kafkaclient.spark.report.findings import findings, write_findings
from kafkaclient.spark.report.page import write_report
from kafkaclient.spark.report.runs import find_runs
from kafkaclient.spark.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkaclient.spark.report.findings import Findings

__all__ = ["report"]

_STARTING = "starting Spark"


def report(
    *,
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            exists=True,
            file_okay=False,
            help="Folders of telemetry; each folder, and each folder in it, is a run.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, summary.json, CSV and Parquet tables.")
    ],
    master: Annotated[
        str | None,
        typer.Option(help="Spark's master URL; its workers must see the folders. [local[*]]"),
    ] = None,
    window_ms: Annotated[
        float, typer.Option(min=1, help="Milliseconds within which decisions are compared.")
    ] = 100.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of tables.")
    ] = False,
) -> None:
    """Report on the batches that producers recorded with the option telemetry.

    Percentiles of latency by run, topic, broker and partition; skew in every second; the latency of
    chosen brokers beside the other brokers; runs side by side, each compared with the first.

    Example: kafkaclient report facts/before facts/after --out build/report
    """
    found = run_blocking(lambda: _report(folders, out, master, window_ms))
    if as_json:
        sys.stdout.write((out / "summary.json").read_text("utf-8"))
    else:
        stdout_console(WIDE).print(Group(*_tables(found)))
    stderr_console().print(f"written: {out / 'report.html'}", markup=False, soft_wrap=True)


def _report(folders: Sequence[Path], out: Path, master: str | None, window_ms: float) -> Any:
    # pyarrow and Spark may be missing, and --help must work without them.
    telemetry: Any = import_module("kafkaclient.telemetry")
    job: Any = import_module("kafkaclient.spark.report.job")
    runs = find_runs(folders, telemetry.started_at)
    judgement = job.Judgement(window_s=window_ms / 1e3)
    with _shown() as (progress, task):
        with spark_failures("starting Spark"):
            spark = spark_session(
                "kafkaclient report", master, job.SETTINGS, java_options=QUICK_START
            )
        try:

            def begin(step: str) -> None:
                place = job.STEPS.index(step)
                progress.update(task, description=step, completed=place, tasks="")

            def show_tasks(done: int, tasks: int) -> None:
                progress.update(task, tasks=f"{done} of {tasks} tasks")

            progress.update(task, total=len(job.STEPS))
            with report_progress(spark, show_tasks), spark_failures("the report"):
                tables = job.aggregate(spark, runs, out / "tables", judgement, begin)
            made_with = f"kafkaclient {version('kafkaclient')}, Spark {spark.version}"
        finally:
            spark.stop()
    found = findings(runs, tables)
    if not found:
        raise ConfigError("the files hold no batches: nothing was sent while they were written")
    write_findings(out, found, judgement)
    write_report(out / "report.html", found, judgement, made_with)
    return found


@contextmanager
def _shown() -> Iterator[tuple[Progress, Any]]:
    console = stderr_console()
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield progress, progress.add_task(_STARTING, total=None, tasks="")


def _tables(found: Sequence[Findings]) -> Iterator[Table | str]:
    runs = _table(
        "Runs",
        *("run", "batches", "records/s", "MB/s", "failed", "avg ms", "p50", "p99", "p99.9", "max"),
        *("p99/first", "broker skew", "regretted"),
    )
    first = found[0].part("whole").get("p99_ms")
    for run in found:
        whole = run.part("whole")
        p99 = whole.get("p99_ms")
        runs.add_row(
            run.run,
            f"{run.batches:,}",
            f"{run.records_per_s:,.0f}",
            f"{run.mb_per_s:,.2f}",
            f"{run.failed_records:,}",
            *(_ms(whole.get(n)) for n in ("avg_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")),
            f"{p99 / first:.2f}" if p99 and first else "",
            _ms(run.skew.get("broker_skew_p50")),
            _share(run.verdict.get("regretted")),
        )
    yield runs
    yield ""
    brokers = _table(
        "Brokers, ms",
        *("run", "broker", "batches", "deciding p99", "waiting p99", "broker p50", "broker p99"),
        *("whole p99", "took", "others took", "regretted"),
    )
    for run in found:
        decided = {row["broker"]: row for row in run.decisions if row["broker"] is not None}
        by_part = {
            part: {row["broker"]: row for row in run.by("broker", part)}
            for part in ("deciding", "waiting", "broker")
        }
        for whole in run.by("broker"):
            broker = whole["broker"]
            verdict = decided.get(broker, {})
            deciding, waiting, answering = (rows.get(broker, {}) for rows in by_part.values())
            brokers.add_row(
                run.run,
                str(broker),
                f"{whole['batches']:,}",
                _ms(deciding.get("p99_ms")),
                _ms(waiting.get("p99_ms")),
                _ms(answering.get("p50_ms")),
                _ms(answering.get("p99_ms")),
                _ms(whole["p99_ms"]),
                _ms(verdict.get("took_ms")),
                _ms(verdict.get("others_ms")),
                _share(verdict.get("regretted")),
            )
    yield brokers


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    return table


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
