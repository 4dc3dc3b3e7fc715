"""``kafkaclient report``: Spark aggregates telemetry into tables and a page."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from kafkaclient.cli.options import described
from kafkaclient.cli.output import WIDE, plain_table, stdout_console
from kafkaclient.cli.run import run_blocking
from kafkaclient.cli.spark import spark_with_progress
from kafkaclient.errors import ConfigError
from kafkaclient.pages.page import check_plotly
from kafkaclient.spark.jobs import report_progress, spark_failures
from kafkaclient.spark.report.findings import findings, write_findings
from kafkaclient.spark.report.page import write_report
from kafkaclient.spark.report.runs import find_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from kafkaclient.spark.report.findings import Findings

_RUN_COLUMNS = (
    *("run", "batches", "records/s", "MB/s", "failed", "avg ms", "p50", "p99", "p99.9", "max"),
    *("p99/first", "broker skew", "regretted"),
)
_BROKER_COLUMNS = (
    *("run", "broker", "batches", "deciding p99", "waiting p99", "broker p50", "broker p99"),
    *("whole p99", "took", "others took", "regretted"),
)


@described
def report(
    *,
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            exists=True,
            file_okay=False,
            help="Folders with telemetry; each folder, and each folder in it, is a run.",
        ),
    ],
    out: Annotated[Path, "Folder for report.html, summary.json, CSV and Parquet tables."],
    master: Annotated[
        str | None, "Spark's master URL; its workers must see the folders. [local[*]]"
    ] = None,
    window_ms: Annotated[
        float, typer.Option(min=1, help="Milliseconds within which decisions are compared.")
    ] = 100.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of tables.")
    ] = False,
) -> None:
    """Report on the batches that producers recorded with the option telemetry.

    Shows percentiles of latency by run, topic, broker and partition, the skew in each second, and
    the latency of chosen brokers beside the other brokers. Each run is compared with the first.

    Example:

    - `kafkaclient report facts/before facts/after --out build/report`
    """
    found = run_blocking(lambda: _report(folders, out, master, window_ms))
    if as_json:
        sys.stdout.write((out / "summary.json").read_text("utf-8"))
    else:
        stdout_console(WIDE).print(Group(*_tables(found)))
    typer.echo(f"written: {out / 'report.html'}", err=True)


def _report(folders: Sequence[Path], out: Path, master: str | None, window_ms: float) -> Any:
    # plotly, pyarrow and Spark may be missing, and --help must work without them.
    check_plotly()
    telemetry: Any = import_module("kafkaclient.telemetry")
    job: Any = import_module("kafkaclient.spark.report.job")
    runs = find_runs(folders, telemetry.started_at)
    judgement = job.Judgement(window_s=window_ms / 1e3)
    with spark_with_progress("kafkaclient report", master, job.SETTINGS, "tasks") as shown:
        spark, progress, task = shown

        def begin(step: str) -> None:
            place = job.STEPS.index(step)
            progress.update(task, description=step, completed=place, tasks="")

        def show_tasks(done: int, tasks: int) -> None:
            progress.update(task, tasks=f"{done} of {tasks} tasks")

        progress.update(task, total=len(job.STEPS))
        with report_progress(spark, show_tasks), spark_failures("the report"):
            tables = job.aggregate(spark, runs, out / "tables", judgement, begin)
        made_with = f"kafkaclient {version('kafkaclient')}, Spark {spark.version}"
    found = findings(runs, tables)
    if not found:
        raise ConfigError("the files hold no batches: nothing was sent while they were written")
    write_findings(out, found, judgement)
    write_report(out / "report.html", found, judgement, made_with)
    return found


def _tables(found: Sequence[Findings]) -> Iterator[Table | str]:
    runs = plain_table("Runs", _RUN_COLUMNS, left=("run",))
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
    brokers = plain_table("Brokers, ms", _BROKER_COLUMNS, left=("run",))
    for run in found:
        decided = {row["broker"]: row for row in run.decisions}
        by_part = [
            {row["broker"]: row for row in run.by("broker", part)}
            for part in ("deciding", "waiting", "broker")
        ]
        for whole in run.by("broker"):
            broker = whole["broker"]
            verdict = decided.get(broker, {})
            deciding, waiting, answering = (rows.get(broker, {}) for rows in by_part)
            times = (
                *(deciding.get("p99_ms"), waiting.get("p99_ms")),
                *(answering.get("p50_ms"), answering.get("p99_ms"), whole["p99_ms"]),
                *(verdict.get("took_ms"), verdict.get("others_ms")),
            )
            brokers.add_row(
                run.run,
                str(broker),
                f"{whole['batches']:,}",
                *map(_ms, times),
                _share(verdict.get("regretted")),
            )
    yield brokers


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
