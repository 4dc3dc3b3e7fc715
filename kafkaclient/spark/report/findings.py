"""The findings about each run, from the tables that Spark collected."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

from kafkaclient.spark.report.queries import BUCKETS, PARTS
from kafkaclient.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kafkaclient.spark.report.job import Judgement, Tables
    from kafkaclient.spark.report.queries import TelemetryRun


_MB = 1024.0 * 1024.0
_FIGURES = ("batches", "avg_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")
_VERDICTS = ("batches", "took_ms", "others_ms", "best_ms", "regretted")
_PLACES = ("topic", "broker", "partition")
_SET_PLACES = {"part": set(), "partition": {"topic", "partition"}}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings about a run."""

    run: str
    folder: str
    producers: int
    files: int
    batches: int
    records: int
    bytes: int
    failed_records: int
    retried_batches: int
    seconds: float
    records_per_s: float
    mb_per_s: float
    skew: Row
    """The median and p99, over all seconds, of the most bytes of a partition (or broker) divided by
    the mean."""
    errors: dict[str, int]
    """Error class -> number of failed records."""
    saving: Row = field(default_factory=dict)
    """What the choice of brokers saved: the fields of
    :class:`~kafkaclient.spark.report.choices.Saving`. Empty if no batch could be judged."""
    exclusions: list[Row] = field(default_factory=list)
    """How often producers excluded a ``broker`` for a ``reason``: ``times``."""
    latency: list[Row] = field(default_factory=list)
    """Figures for a ``part`` (one of :data:`PARTS`) of the latency. A row covers the batches of its
    ``topic``, ``broker`` or ``partition``; columns that are None do not select batches."""
    decisions: list[Row] = field(default_factory=list)
    """A row with a ``bound_by`` covers its judged batches. A row with a ``broker``, or with none of
    both, covers the judged batches whose partition the producer chose."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Rising points (percent of the batches, ms until they were acknowledged)."""
    series: list[Row] = field(default_factory=list)

    def part(self, name: str) -> Row:
        """The figures for a part of the latency of all batches. Empty without batches."""
        return next(iter(self.by("part", name)), {})

    def by(self, column: str, part: str = "whole") -> list[Row]:
        """The rows of a part of the latency by "topic", "broker" or "partition". With "part": the
        row of all batches."""
        wanted = _SET_PLACES.get(column, {column})
        return [
            row
            for row in self.latency
            if row["part"] == part
            and {place for place in _PLACES if row[place] is not None} == wanted
        ]

    def against(self, first: Findings) -> Row:
        """The latencies as multiples of another run's latencies."""
        mine, theirs = self.part("whole"), first.part("whole")
        names = ("avg_ms", "p50_ms", "p99_ms", "p999_ms")
        return {
            name: mine[name] / theirs[name] for name in names if mine.get(name) and theirs.get(name)
        }

    @property
    def verdict(self) -> Row:
        """The figures for all choices. Empty if none could be judged."""
        whole = (r for r in self.decisions if r["broker"] is None and r["bound_by"] is None)
        return next(whole, {})


def findings(runs: Sequence[TelemetryRun], tables: Tables) -> list[Findings]:
    """The findings about the runs that sent a batch, in the order of ``runs``."""
    return [_findings(runs[totals["run"]], totals, tables) for totals in tables.totals]


def _findings(run: TelemetryRun, totals: Row, tables: Tables) -> Findings:
    def rows(table: Iterable[Row]) -> list[Row]:
        """The run's rows, without the column ``run``."""
        found = [row for row in table if row["run"] == totals["run"]]
        return [{name: value for name, value in row.items() if name != "run"} for row in found]

    seconds = totals["seconds"]
    return Findings(
        **totals
        | {
            "run": run.name,
            "folder": run.folder,
            "producers": run.producers,
            "files": len(run.files),
            "records_per_s": totals["records"] / seconds if seconds else 0.0,
            "mb_per_s": totals["bytes"] / seconds / _MB if seconds else 0.0,
            "skew": next(iter(rows(tables.skew)), {}),
            "errors": {row["error"]: row["records"] for row in rows(tables.errors)},
            "saving": next(iter(rows(tables.savings)), {}),
            "exclusions": rows(tables.exclusions),
            "latency": rows(tables.latency),
            "decisions": rows(tables.decisions),
            "curve": curve(rows(tables.curves)),
            "series": rows(tables.series),
        }
    )


def curve(buckets: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """The cumulative shares of a histogram with rising ``buckets``."""
    counted = [(row["bucket"], row["batches"]) for row in buckets]
    total = sum(batches for _bucket, batches in counted)
    points, so_far = [], 0
    for bucket, batches in counted:
        so_far += batches
        points.append((100 * so_far / total, 1e3 * 2 ** ((bucket + 1) / BUCKETS)))
    return points


def write_findings(folder: Path, found: Sequence[Findings], judgement: Judgement) -> None:
    """Write ``summary.json``, ``latency.csv`` and ``decisions.csv``."""
    summary = {
        "judgement": asdict(judgement),
        "parts": PARTS,
        "runs": [_rounded(_as_json(run, found[0])) for run in found],
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    for name, columns in (
        ("latency", ("run", "part", *_PLACES, *_FIGURES)),
        ("decisions", ("run", "broker", "bound_by", *_VERDICTS)),
    ):
        rows = ({**row, "run": run.run} for run in found for row in getattr(run, name))
        table = StringIO(newline="")
        writer = csv.DictWriter(table, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(map(_rounded, rows))
        write_whole(folder / f"{name}.csv", table.getvalue())


def _as_json(run: Findings, first: Findings) -> Row:
    """The rows as in the CSV files; no latencies of topics and partitions, which may be many."""
    fields = {name: each for name, each in asdict(run).items() if name not in ("curve", "series")}
    latency = [row for row in run.latency if row["topic"] is None]
    return {**fields, "latency": latency, "against_first": run.against(first)}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value
