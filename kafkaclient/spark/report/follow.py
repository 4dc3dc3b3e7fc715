"""``kafkaclient report --follow``: a Structured Streaming job over a topic of telemetry.

Tasks decode and count messages; the driver keeps the windows, and writes the table and the page.
Windows are in the driver's memory only, so a new start reads the topic again from a given time. It
replaces the minutes that it reads again.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from math import ceil
from shutil import rmtree
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from kafkaclient.errors import ConfigError
from kafkaclient.pages import filled, write_page
from kafkaclient.spark.report.job import no_pandas_warning
from kafkaclient.spark.report.live import LATENESS_S, SHIPPED, WINDOWS, LiveWindows, count_messages
from kafkaclient.spark.session import register
from kafkaclient.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

WINDOW_S = 5.0
_MINUTE_MS = 60_000
_TRIGGER = "1 second"

Row = dict[str, Any]


@contextmanager
def following(
    spark: Any,
    topic: str,
    client: Mapping[str, str],
    since_s: float,
    out: Path,
    on_view: Callable[[Row], None] = lambda view: None,
) -> Iterator[Any]:
    """The running query. It writes the table and the page's data to ``out``.

    ``client`` are Kafka's options. ``since_s``: where to begin, in seconds since the epoch;
    ``on_view`` gets what the page shows, after each trigger. The end of the block stops the query,
    and writes the open windows as they are.

    Raises ConfigError if another process follows into ``out``, and SparkJobError.
    """
    windows = LiveWindows(WINDOW_S)
    table = WindowTable(out, ceil(since_s / 60) * _MINUTE_MS)

    is_stopping = False
    in_use = Lock()  # a canceled job may go on for a moment on Spark's thread

    def on_batch(frame: Any, _number: int) -> None:
        counted = frame.select("value").mapInArrow(_count, from_arrow_schema(SHIPPED))
        try:
            rows = counted.collect()
        except Exception:
            if is_stopping:  # the stop canceled the job: if this raised, Spark would log it
                return
            raise
        with in_use:
            windows.add(rows)
            table.add(windows.close())
            view = windows.view()
            write_view(out, view)
        on_view(view)

    register(spark)  # Spark does not find the source of some editable installations
    source = spark.readStream.format("kafkaclient").options(
        **{f"kafka.{name}": value for name, value in client.items()},
        subscribe=topic,
        startingTimestamp=str(round(since_s * 1000)),
        startingOffsetsByTimestampStrategy="latest",
        failOnDataLoss="false",
    )
    # Spark needs a checkpoint; no start uses an earlier one. SIGTERM leaves it to the next start.
    checkpoint = (out / ".checkpoint").absolute()
    with alone(out), no_pandas_warning():
        rmtree(checkpoint, ignore_errors=True)
        query = (
            source.load()
            .writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", f"file://{checkpoint}")
            .trigger(processingTime=_TRIGGER)
            .start()
        )
        try:
            yield query
        finally:
            is_stopping = True
            try:
                query.stop()
            finally:
                with in_use:
                    table.add(windows.close(open_ones=True), is_end=True)
                rmtree(checkpoint, ignore_errors=True)


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """A second process would replace the first one's minutes and delete its checkpoint. Raises
    ConfigError."""
    if sys.platform == "win32":  # it has no fcntl
        yield
        return
    import fcntl  # noqa: PLC0415

    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another kafkaclient report --follow writes to {out}: end it, or "
                "give another --out"
            ) from None
        yield


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = list(count_messages((value.as_py() for value in batch["value"]), WINDOW_S))
        if rows:
            yield pa.RecordBatch.from_pylist(rows, SHIPPED)


class WindowTable:
    """The table of closed windows. A minute that is there already is replaced.

    It has a file a minute, ``windows.parquet/date=YYYY-MM-DD/windows-HHMM.parquet``, or is the
    Delta table ``windows.delta`` if the package deltalake is installed. ``first_ms``: the first
    minute that is read completely.
    """

    def __init__(self, folder: Path, first_ms: int) -> None:
        self._folder = folder
        self._first_ms = first_ms
        self._held: list[Row] = []
        self._delta: Any = import_module("deltalake") if find_spec("deltalake") else None

    def add(self, rows: Sequence[Row], *, is_end: bool = False) -> None:
        """Add rows (:data:`~kafkaclient.spark.report.live.WINDOWS`) in the order of time. A minute
        is written when a later one begins, or at the end."""
        self._held += (row for row in rows if row["window_start"] >= self._first_ms)
        if not self._held:
            return
        latest = self._held[-1]["window_start"] // _MINUTE_MS
        for minute, found in groupby(self._held, lambda row: row["window_start"] // _MINUTE_MS):
            if is_end or minute < latest:
                self._write(minute * _MINUTE_MS, list(found))
        self._held = [row for row in self._held if row["window_start"] // _MINUTE_MS == latest]

    def _write(self, minute_ms: int, rows: list[Row]) -> None:
        at = datetime.fromtimestamp(minute_ms / 1000, UTC)
        table = pa.Table.from_pylist(rows, WINDOWS)
        if self._delta is not None:
            date = pa.array([f"{at:%Y-%m-%d}"] * len(table))
            self._delta.write_deltalake(
                self._folder / "windows.delta",
                table.append_column("date", date),
                mode="overwrite",
                predicate=f"date = '{at:%Y-%m-%d}' AND window_start >= '{at.isoformat()}' "
                f"AND window_start < '{(at + timedelta(minutes=1)).isoformat()}'",
                partition_by=["date"],
            )
            return
        folder = self._folder / "windows.parquet" / f"date={at:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".windows-{at:%H%M}"
        pq.write_table(table, unfinished)
        unfinished.replace(folder / f"windows-{at:%H%M}.parquet")


def write_live_page(out: Path, topic: str, made_with: str) -> None:
    """Write ``live.html``, which shows ``live.js`` and loads it again every second."""
    body = filled(
        "kafkaclient.spark.report",
        "live.html",
        lateness_s=f"{LATENESS_S:g}",
        window_s=f"{WINDOW_S:g}",
    )
    write_page(
        out / "live.html", title=f"telemetry of {topic}", body=body, figures={}, machine=made_with
    )


def write_view(out: Path, view: Row) -> None:
    """Replace ``live.js``. It is a script, because pages opened as files may load no other data."""
    view = {**view, "written_s": time.time()}
    text = json.dumps(view, separators=(",", ":"), allow_nan=False)
    write_whole(out / "live.js", f"show({text});\n")
