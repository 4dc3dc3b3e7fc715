"""A Spark session with a progress bar, for the commands that run on Spark."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from kafkaclient.cli.output import progress_bar, stderr_console
from kafkaclient.spark.jobs import spark_failures
from kafkaclient.spark.session import QUICK_START, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.progress import Progress, TaskID


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
