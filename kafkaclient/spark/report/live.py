"""The figures of ``kafkaclient report --follow``, without Spark: what tasks count in messages, and
the windows that the driver keeps.

Windows are of equal length, by the wall-clock time of a batch's outcome. A window is closed
:data:`LATENESS_S` after its end, by the newest outcome seen or the driver's clock, whichever is
earlier: a producer's clock that is ahead closes no windows of others. Dropped and counted are:
batches of closed windows, batches more than :data:`EARLINESS_S` ahead of the driver's clock, and
messages that are not telemetry. So memory grows with the number of partitions, not with time, once
the driver has caught up with the topic.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkaclient import telemetry
from kafkaclient.errors import ConfigError
from kafkaclient.spark.report.choices import RecentChoices
from kafkaclient.spark.report.counting import counts, grouped, pack, split, unpack
from kafkaclient.spark.report.facts import BATCHES_AT_A_TIME, exclusions, to_count, with_columns
from kafkaclient.spark.report.queries import BUCKETS, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_log = logging.getLogger(__name__)

LATENESS_S = 20.0
EARLINESS_S = 60.0
RECENT = 12  # windows whose batches are in the figures by broker and partition
SHOWN = 120  # windows in the page's lines, and in what the choices saved

SHIPPED = pa.schema([("kind", pa.string()), ("window", pa.int64()), ("counts", pa.binary())])
"""What tasks send to the driver: packed counts of a kind and a window. Kind ``skipped`` has no
window: its ``batches`` are messages or batches that cannot be counted, by ``error``."""

_NOT_FINITE = "a batch has a time that is not finite"

WINDOWS = pa.schema(
    [
        ("window_start", pa.timestamp("ms", tz="UTC")),
        *((name, pa.string()) for name in ("kind", "topic")),
        *((name, pa.int32()) for name in ("broker", "partition")),
        ("reason", pa.string()),
        *((name, pa.float64()) for name in ("batches", "records", "bytes", "failed", "share")),
        *((name, pa.float64()) for name in ("skew", "p50_ms", "p99_ms", "append")),
    ]
)
"""The columns of the table of windows. A column is null where a kind does not have it.

``kind``: ``all``, ``broker``, ``partition``, or ``exclusion``, whose ``batches`` are the number of
times. ``failed``: batches. ``share``: of the window's bytes. ``skew``: of kind ``all``, the most
bytes of a broker divided by the mean. Percentiles are of the whole latency. ``append``: batches
whose partition was known when the batch was opened, for example from a key.
"""

_FIGURES = dict.fromkeys(("batches", "records", "bytes", "failed", "append"), "sum")
_SUMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "seconds": (
        ["topic", "partition", "broker", "second"],
        {**_FIGURES, "chosen": "sum", "chosen_s": "sum", "last_s": "max"},
    ),
    "histogram": (["topic", "partition", "broker", "bucket"], {"batches": "sum"}),
    "exclusions": (["broker", "error"], {"batches": "sum"}),
}

_PLACES: dict[str, list[str]] = {
    "all": [],
    "broker": ["broker"],
    "partition": ["topic", "partition"],
}
"""Kind of row -> the columns to group by."""

Row = dict[str, Any]


def count_messages(values: Iterable[bytes], window_s: float) -> Iterator[Row]:
    """The rows of :data:`SHIPPED` for some messages, which are counted some at a time."""
    skipped: Counter[str] = Counter()
    tables: list[pa.Table] = []
    held = 0
    for value in values:
        try:
            table = telemetry.decode(value)
        except ConfigError as error:
            skipped[str(error)] += 1
            continue
        metadata = table.schema.metadata
        facts = to_count(table, metadata)
        skipped[_NOT_FINITE] += len(table) - len(facts)
        if not len(facts):
            continue
        windows = np.floor(np.asarray(facts["ended_s"]) / window_s).astype(np.int64)
        tables.append(with_columns(facts, window=pa.array(windows)))
        excluded = exclusions(metadata).select(["broker", "error", "batches"])
        if len(excluded):
            yield _shipped("exclusions", int(windows.max()), excluded)
        held += len(facts)
        if held >= BATCHES_AT_A_TIME:
            yield from _count_windows(tables, window_s)
            tables, held = [], 0
    if tables:
        yield from _count_windows(tables, window_s)
    if +skipped:
        rows = [{"error": why, "batches": times} for why, times in (+skipped).items()]
        yield _shipped("skipped", 0, pa.Table.from_pylist(rows))


def _count_windows(tables: list[pa.Table], window_s: float) -> Iterator[Row]:
    for window, facts in split(pa.concat_tables(tables).unify_dictionaries(), "window"):
        found = counts([facts.drop_columns(["window"])], window_s)
        seconds, histogram = found["seconds"], found["histogram"]
        failed = pc.if_else(pc.is_valid(seconds["error"]), seconds["batches"], 0.0)
        seconds = with_columns(seconds, failed=failed)
        histogram = histogram.filter(pc.equal(histogram["part"], WHOLE))
        yield _shipped("seconds", window, grouped(seconds, *_SUMS["seconds"]))
        yield _shipped("histogram", window, grouped(histogram, *_SUMS["histogram"]))


def _shipped(kind: str, window: int, table: pa.Table) -> Row:
    return {"kind": kind, "window": window, "counts": pack(table)}


class LiveWindows:
    """The windows on the driver. ``wall_clock``: seconds since the epoch."""

    def __init__(self, window_s: float, wall_clock: Callable[[], float] = time.time) -> None:
        self.window_s = window_s
        self.late: float = 0.0
        """Batches that came after their window was closed."""
        self.ahead: float = 0.0
        """Batches whose outcome was ahead of the clock."""
        self.skipped: Counter[str] = Counter()
        """Messages and batches that cannot be counted, by reason."""
        self._wall_clock = wall_clock
        self._newest = -1  # no window ahead of the clock
        self._newest_outcome_s: float | None = None
        self._closed_to = -1  # windows below are closed
        self._counts: dict[int, dict[str, pa.Table]] = {}
        self._shown: deque[list[Row]] = deque(maxlen=SHOWN)  # closed windows
        self._choices = RecentChoices()

    def add(self, shipped: Iterable[Mapping[str, Any]]) -> None:
        """Add counts of tasks (:data:`SHIPPED`)."""
        arrived: dict[tuple[int, str], list[pa.Table]] = {}
        now_s = self._wall_clock()
        for row in shipped:
            table, window = unpack(bytes(row["counts"])), row["window"]
            if row["kind"] == "skipped":
                self._skip(table)
                continue
            batches = pc.sum(table["batches"]).as_py() if row["kind"] == "seconds" else 0
            if window < self._closed_to:
                self.late += batches
                continue
            if window * self.window_s > now_s + EARLINESS_S:
                self.ahead += batches
                continue
            if row["kind"] == "seconds":
                last_s = min(now_s, pc.max(table["last_s"]).as_py())
                self._newest_outcome_s = max(self._newest_outcome_s or last_s, last_s)
            arrived.setdefault((window, row["kind"]), []).append(table)
        for (window, kind), tables in arrived.items():
            held = self._counts.setdefault(window, {})
            before = [held[kind]] if kind in held else []
            held[kind] = grouped(pa.concat_tables([*before, *tables]), *_SUMS[kind])
            self._newest = max(self._newest, min(window, int(now_s // self.window_s)))
        seconds = ((w, t) for (w, kind), ts in arrived.items() if kind == "seconds" for t in ts)
        self._choices.add(seconds, self._newest - SHOWN + 1)

    def _skip(self, table: pa.Table) -> None:
        """Logged once for each reason."""
        for row in table.to_pylist():
            if row["error"] not in self.skipped:
                _log.warning("not counted: %s", row["error"])
            self.skipped[row["error"]] += row["batches"]

    def close(self, *, open_ones: bool = False) -> list[Row]:
        """The rows (:data:`WINDOWS`) of the windows that are closed now, each once. With
        ``open_ones`` all windows are closed."""
        limit = self._newest - int(LATENESS_S // self.window_s)
        if open_ones:  # some may be ahead of the driver's clock
            limit = max(self._counts, default=limit) + 1
        rows: list[Row] = []
        for window in sorted(w for w in self._counts if self._closed_to <= w < limit):
            self._shown.append(self._window_rows(window))
            rows += self._shown[-1]
        self._closed_to = max(self._closed_to, limit)
        for window in [w for w in self._counts if w < min(limit, self._newest - RECENT + 1)]:
            del self._counts[window]
        return rows

    def view(self) -> Row:
        """What the page shows: JSON values."""
        open_windows = sorted(w for w in self._counts if w >= self._closed_to)
        oldest = (self._newest - SHOWN + 1) * self.window_s * 1000
        rows = self._figures_of([w for w in sorted(self._counts) if w > self._newest - RECENT])
        saved = self._choices.saving()
        return {
            "newest_outcome_s": self._newest_outcome_s,
            "window_s": self.window_s,
            "recent_s": RECENT * self.window_s,
            "late": self.late,
            "ahead": self.ahead,
            "skipped": self.skipped,
            "all": next(iter(r for r in rows if r["kind"] == "all"), None),
            **{f"{k}s": [r for r in rows if r["kind"] == k] for k in ("broker", "partition")},
            "exclusions": [r for r in rows if r["kind"] == "exclusion"],
            "saving": None if saved is None else asdict(saved),
            "lines": [
                {"at_s": row["window_start"] / 1e3, **row}
                for found in (*self._shown, *map(self._window_rows, open_windows))
                for row in found
                if row["kind"] in ("all", "broker") and row["window_start"] >= oldest
            ],
        }

    def _window_rows(self, window: int) -> list[Row]:
        start = round(window * self.window_s * 1000)
        return [{"window_start": start, **row} for row in self._figures_of([window])]

    def _held(self, kind: str, windows: list[int]) -> pa.Table | None:
        tables = [self._counts[w][kind] for w in windows if kind in self._counts[w]]
        return pa.concat_tables(tables) if tables else None

    def _figures_of(self, windows: list[int]) -> list[Row]:
        """The windows' batches together: the row of kind ``all`` is the first."""
        seconds, histogram = self._held("seconds", windows), self._held("histogram", windows)
        rows: list[Row] = []
        if seconds is not None:
            whole = pc.sum(seconds["bytes"]).as_py()
            for kind, place in _PLACES.items():
                rows += _rows_by(place, kind, seconds, histogram, whole)
            sent = [row["bytes"] for row in rows if row["kind"] == "broker" and row["broker"] >= 0]
            if sum(sent):
                rows[0]["skew"] = max(sent) * len(sent) / sum(sent)
        excluded = self._held("exclusions", windows)
        if excluded is not None:
            for row in grouped(excluded, *_SUMS["exclusions"]).to_pylist():
                rows.append({"kind": "exclusion", "reason": row.pop("error"), **row})
        return rows


def _rows_by(
    place: list[str], kind: str, seconds: pa.Table, histogram: pa.Table | None, whole: float
) -> Iterator[Row]:
    percentiles = _percentiles(place, histogram)
    for row in grouped(seconds, place, _FIGURES).to_pylist():
        share = row["bytes"] / whole if whole else None
        at = tuple(row[name] for name in place)
        yield {"kind": kind, **row, "share": share, **percentiles.get(at, {})}


def _percentiles(place: list[str], histogram: pa.Table | None) -> dict[tuple[Any, ...], Row]:
    if histogram is None:
        return {}
    keys = [*place, "bucket"]
    counted = grouped(histogram, keys, {"batches": "sum"}).sort_by([(k, "ascending") for k in keys])
    places = grouped(counted, place, {"batches": "sum"})  # in the same order
    batches = np.asarray(places["batches"])
    before = np.cumsum(batches) - batches
    so_far, buckets = np.cumsum(counted["batches"]), np.asarray(counted["bucket"])
    found = places.select(place)
    for p in (50, 99):
        at = buckets[np.searchsorted(so_far, before + p / 100 * batches)]
        found = with_columns(found, **{f"p{p}_ms": pa.array(1e3 * 2 ** ((at + 0.5) / BUCKETS))})
    return {tuple(row.pop(name) for name in place): row for row in found.to_pylist()}
