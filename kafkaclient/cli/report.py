"""``kafkaclient report``: Spark aggregates telemetry into tables and a page."""

from __future__ import annotations

import re
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from kafkaclient.cli.connection import ConnectionOptions, with_connection
from kafkaclient.cli.output import (
    WIDE,
    plain_table,
    progress_bar,
    run_blocking,
    run_command,
    stderr_console,
    stdout_console,
    stop_noted,
)
from kafkaclient.errors import ConfigError
from kafkaclient.pages import check_plotly
from kafkaclient.spark.jobs import report_progress, spark_failures
from kafkaclient.spark.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.progress import Progress, TaskID
    from rich.table import Table

    from kafkaclient.spark.report.findings import Findings


# --- ``kafkaclient report``: Spark aggregates telemetry into tables and a page --------------------

_FOLLOWED = "10m"
_POLL_S = 0.5
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RUN_COLUMNS = (
    *("run", "batches", "records/s", "MB/s", "failed", "avg ms", "p50", "p99", "p99.9", "max"),
    *("p99/first", "broker skew", "regretted", "saved ms"),
)
_BROKER_COLUMNS = (
    *("run", "broker", "batches", "deciding p99", "waiting p99"),
    *("answering p50", "answering p99", "whole p99", "took", "others took", "regretted"),
)


@with_connection
def report(
    connection: ConnectionOptions,
    *,
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DIR...",
            help="Folders (paths or URIs) with telemetry; each folder, and each in it, is a run.",
        ),
    ] = None,
    out: Annotated[Path, "Folder for the page, summary.json, CSV and Parquet tables."],
    since: Annotated[
        str | None, "Only batches with an outcome from then on: a time, or 1h ago (s, m, h, d)."
    ] = None,
    until: Annotated[str | None, "Only batches with an outcome before then."] = None,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Show this topic's telemetry as it comes, until Ctrl-C. Begins 10m ago, or at "
            "--since.",
        ),
    ] = None,
    master: Annotated[
        str | None, "Spark's master URL; its workers must see the folders. [local[*]]"
    ] = None,
    window_ms: Annotated[
        float | None,
        typer.Option(min=1, help="Milliseconds within which decisions are compared. [100]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of tables.")
    ] = False,
) -> None:
    """Report on the batches that producers recorded with the option telemetry.

    Shows percentiles of latency by run, topic, broker and partition, the skew in each second, the
    latency of chosen brokers beside the other brokers, and what the choices saved. Each run is
    compared with the first.

    Example:

    - `kafkaclient report facts/before facts/after --out build/report`
    - `kafkaclient report s3://bucket/facts --since 1h --out build/report`
    - `kafkaclient report --follow telemetry -b localhost:9092 --out build/live`
    """
    if follow is not None:
        only_folders = bool(folders) or until is not None or window_ms is not None or as_json
        run_blocking(lambda: _follow(connection, follow, only_folders, since, out, master))
        return
    found = run_blocking(lambda: _report(connection, folders, since, until, out, master, window_ms))
    if as_json:
        sys.stdout.write((out / "summary.json").read_text("utf-8"))
    else:
        stdout_console(WIDE).print(Group(*_tables(found)))
    typer.echo(f"written: {out / 'report.html'}", err=True)


def _follow(
    connection: ConnectionOptions,
    topic: str,
    only_folders: bool,
    since: str | None,
    out: Path,
    master: str | None,
) -> None:
    """``only_folders``: whether something was given that only a report of folders has."""
    if only_folders:
        raise ConfigError(
            "--follow TOPIC writes a page of the topic only: give no DIR, --until, --window-ms or "
            "--json"
        )
    check_plotly()
    options, _timeout_s = connection.options("kafkaclient-report")
    begin = _time(since or _FOLLOWED, "--since").timestamp()
    run_command(_check_topic(connection, topic))
    follow: Any = import_module("kafkaclient.spark.report.follow")
    job: Any = import_module("kafkaclient.spark.report.job")
    _make_folder(out)
    with spark_with_progress("kafkaclient report", master, job.SETTINGS, "behind") as shown:
        spark, progress, task = shown
        made_with = f"kafkaclient {version('kafkaclient')}, Spark {spark.version}"
        follow.write_live_page(out, topic, made_with)
        typer.echo(f"open {out / 'live.html'}; Ctrl-C ends", err=True)

        def show(view: Mapping[str, Any]) -> None:
            newest_s = view["newest_outcome_s"]
            ago = "" if newest_s is None else f"newest batch {time.time() - newest_s:,.1f} s ago"
            progress.update(task, behind=ago or "no batch yet")

        progress.update(task, description=f"following {topic}")
        with (
            stop_noted() as stopped,
            spark_failures(f"following {topic}"),
            follow.following(spark, topic, options, begin, out, show) as query,
        ):
            while query.isActive and not stopped.wait(_POLL_S):
                pass
            if not stopped.is_set():
                query.awaitTermination()  # raises why the query has ended


async def _check_topic(connection: ConnectionOptions, topic: str) -> None:
    """Raises UnknownTopicError at once: Spark would print stack traces."""
    async with connection.admin() as admin:
        await admin.describe_topic(topic)


def _report(
    connection: ConnectionOptions,
    folders: Sequence[str] | None,
    since: str | None,
    until: str | None,
    out: Path,
    master: str | None,
    window_ms: float | None,
) -> Any:
    if not folders:
        raise ConfigError("give folders with telemetry, or --follow TOPIC")
    given = {name for name, value in asdict(connection).items() if value}
    if given - connection.from_environment - {"from_environment"}:
        raise ConfigError(
            "a report of DIR connects to no brokers: give options for the connection to --follow"
        )
    # plotly, pyarrow and Spark may be missing, and --help must work without them.
    check_plotly()
    begin = None if since is None else _time(since, "--since")
    end = None if until is None else _time(until, "--until")
    if begin is not None and end is not None and begin >= end:
        raise ConfigError(f"--since {since} is not before --until {until}")
    import_module("kafkaclient.telemetry")
    found_runs: Any = import_module("kafkaclient.spark.report.queries")
    runs = found_runs.find_runs(folders, begin, end)
    _make_folder(out)
    job: Any = import_module("kafkaclient.spark.report.job")
    findings: Any = import_module("kafkaclient.spark.report.findings")
    judgement = job.Judgement() if window_ms is None else job.Judgement(window_s=window_ms / 1e3)
    period = job.Period(begin and begin.timestamp(), end and end.timestamp())
    with spark_with_progress("kafkaclient report", master, job.SETTINGS, "tasks") as shown:
        spark, progress, task = shown

        def begin_step(step: str) -> None:
            place = job.STEPS.index(step)
            progress.update(task, description=step, completed=place, tasks="")

        def show_tasks(done: int, tasks: int) -> None:
            progress.update(task, tasks=f"{done} of {tasks} tasks")

        progress.update(task, total=len(job.STEPS))
        with report_progress(spark, show_tasks), spark_failures("the report"):
            tables = job.aggregate(spark, runs, out / "tables", judgement, period, begin_step)
        made_with = f"kafkaclient {version('kafkaclient')}, Spark {spark.version}"
    found = findings.findings(runs, tables)
    if tables.deleted_files:
        typer.echo(
            f"not counted: {tables.deleted_files:,} files were deleted while the report read",
            err=True,
        )
    if not found:
        limits = found_runs.period_text(begin, end)
        raise ConfigError(
            f"no batch had its outcome in the period{limits}"
            if limits
            else "the files hold no batches: nothing was sent while they were written"
        )
    findings.write_findings(out, found, judgement)
    page: Any = import_module("kafkaclient.spark.report.page")
    page.write_report(out / "report.html", found, judgement, made_with)
    return found


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder --out {out} cannot be created: {error.strerror}") from error


def _time(text: str, option: str) -> datetime:
    """The moment that an option names: ``90s``, ``15m``, ``1h`` or ``7d`` ago, or ISO 8601."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    try:
        if match:
            ago = timedelta(seconds=float(match[1]) * _UNITS_S[match[2]])
            return datetime.now(UTC) - ago
        at = datetime.fromisoformat(text)
        return at.astimezone() if at.tzinfo is None else at
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{option} {text} is no time: give 90s, 15m, 1h or 7d (without a sign) for that long "
            "ago, or a time such as 2026-03-01T12:00Z"
        ) from None


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
            _ms(run.saving.get("saved_ms")),
        )
    yield runs
    yield ""
    brokers = plain_table("Brokers, ms", _BROKER_COLUMNS, left=("run",))
    for run in found:
        decided = {row["broker"]: row for row in run.decisions}
        by_part = [
            {row["broker"]: row for row in run.by("broker", part)}
            for part in ("deciding", "waiting", "answering")
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


# --- A Spark session with a progress bar, for the commands that run on Spark ----------------------


def job_progress(*fields: str) -> Progress:
    """The progress bar of a job in other processes; its task has ``fields`` to be shown."""
    return progress_bar(
        stderr_console(),
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in fields),
        TimeElapsedColumn(),
    )


@contextmanager
def spark_with_progress(
    application: str, master: str | None, settings: Mapping[str, str], *fields: str
) -> Iterator[tuple[Any, Progress, TaskID]]:
    """A session, its progress bar and the bar's task, which has ``fields`` to be shown."""
    with job_progress(*fields) as progress:
        texts: dict[str, Any] = dict.fromkeys(fields, "")
        task = progress.add_task("starting Spark", total=None, **texts)
        with spark_failures("starting Spark"):
            spark = spark_session(application, master, settings, java_options=QUICK_START)
        try:
            yield spark, progress, task
        finally:
            spark.stop()
