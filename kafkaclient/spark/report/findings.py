"""The findings about each run, from the tables that Spark collected."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.spark.report.queries import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kafkaclient.spark.report.job import Judgement, Tables
    from kafkaclient.spark.report.runs import Run

__all__ = ["Findings", "findings", "write_findings"]

_MB = 1024.0 * 1024.0
_FIGURES = ("batches", "avg_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")
_VERDICTS = ("batches", "took_ms", "others_ms", "best_ms", "regretted")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings about a run.

    A row of ``latency`` is about a ``part`` (one of :data:`PARTS`) of the latency of a ``topic``, a
    ``broker`` or a ``partition``; None: of all.
    """

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
    """Median and p99 over the seconds of the skew: the most bytes of a partition (of a broker) as a
    multiple of the mean."""
    errors: dict[str, int]
    """Class of the error -> failed records."""
    latency: list[Row] = field(default_factory=list)
    decisions: list[Row] = field(default_factory=list)
    """A row whose ``broker`` and ``bound_by`` are None is about all judged decisions."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """(percent of the batches, ms within which they were acknowledged), rising."""
    series: list[Row] = field(default_factory=list)

    def part(self, name: str) -> Row:
        """The figures of a part of the latency of all batches; empty without batches."""
        return next(iter(self.by("part", name)), {})

    def by(self, column: str, part: str = "whole") -> list[Row]:
        """A part of the latency by "topic", "broker" or "partition"; by "part": of all batches."""
        levels = {"part": (), "topic": ("topic",), "broker": ("broker",)}
        wanted = levels.get(column, ("topic", "partition"))
        return [
            row
            for row in self.latency
            if row["part"] == part
            and all(
                (row[level] is not None) == (level in wanted)
                for level in ("topic", "broker", "partition")
            )
        ]

    def against(self, first: Findings) -> Row:
        """The latencies as multiples of another run's."""
        mine, theirs = self.part("whole"), first.part("whole")
        names = ("avg_ms", "p50_ms", "p99_ms", "p999_ms")
        return {
            name: mine[name] / theirs[name] for name in names if mine.get(name) and theirs.get(name)
        }

    @property
    def verdict(self) -> Row:
        """The figures of all decisions; empty if none could be judged."""
        whole = (r for r in self.decisions if r["broker"] is None and r["bound_by"] is None)
        return next(whole, {})


def findings(runs: Sequence[Run], tables: Tables) -> list[Findings]:
    """The findings about the runs that sent anything, in the order of ``runs``."""
    found = []
    for totals in tables.totals:
        number = totals["run"]
        run = runs[number]
        seconds = totals["seconds"]
        found.append(
            Findings(
                run=run.name,
                folder=str(run.folder),
                producers=run.producers,
                files=len(run.parts),
                **{name: value for name, value in totals.items() if name != "run"},
                records_per_s=totals["records"] / seconds if seconds else 0.0,
                mb_per_s=totals["bytes"] / seconds / _MB if seconds else 0.0,
                skew=next(iter(_of(number, tables.skew)), {}),
                errors={row["error"]: row["records"] for row in _of(number, tables.errors)},
                latency=list(_of(number, tables.latency)),
                decisions=list(_of(number, tables.decisions)),
                curve=curve(_of(number, tables.curves)),
                series=list(_of(number, tables.series)),
            )
        )
    return found


def curve(buckets: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """A histogram as cumulated shares; its rising ``buckets`` are 32 per power of two seconds."""
    counted = [(row["bucket"], row["batches"]) for row in buckets]
    total = sum(batches for _bucket, batches in counted)
    points, so_far = [], 0
    for bucket, batches in counted:
        so_far += batches
        points.append((100 * so_far / total, 1e3 * 2 ** ((bucket + 1) / 32)))
    return points


def write_findings(folder: Path, found: Sequence[Findings], judgement: Judgement) -> None:
    """Write ``summary.json``, ``latency.csv`` and ``decisions.csv``."""
    summary = {
        "judgement": asdict(judgement),
        "parts": PARTS,
        "runs": [_as_json(run, found[0]) for run in found],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    places = ("run", "part", "topic", "broker", "partition")
    _write_csv(
        folder / "latency.csv",
        (*places, *_FIGURES),
        ({**row, "run": run.run} for run in found for row in run.latency),
    )
    _write_csv(
        folder / "decisions.csv",
        ("run", "broker", "bound_by", *_VERDICTS),
        ({**row, "run": run.run} for run in found for row in run.decisions),
    )


def _as_json(run: Findings, first: Findings) -> Row:
    values = {
        name: _rounded(value)
        for name, value in asdict(run).items()
        if name not in ("latency", "decisions", "curve", "series")
    }
    return {
        **values,
        "latency": {part: _figures(run.part(part), _FIGURES) for part in PARTS},
        "brokers": {
            str(row["broker"]): {
                part: _figures(found, _FIGURES)
                for part in PARTS
                for found in run.by("broker", part)
                if found["broker"] == row["broker"]
            }
            for row in run.by("broker")
        },
        "decisions": {
            "all": _figures(run.verdict, _VERDICTS),
            "brokers": {
                str(row["broker"]): _figures(row, _VERDICTS)
                for row in run.decisions
                if row["broker"] is not None
            },
            "bound_by": {
                row["bound_by"]: _figures(row, _VERDICTS)
                for row in run.decisions
                if row["bound_by"] is not None
            },
        },
        "against_first": _rounded(run.against(first)),
    }


def _of(number: int, rows: Iterable[Row]) -> Iterable[Row]:
    for row in rows:
        if row["run"] == number:
            yield {name: value for name, value in row.items() if name != "run"}


def _figures(row: Row, names: Sequence[str]) -> Row:
    return {name: _rounded(row[name]) for name in names if name in row}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return round(value, 6) if isinstance(value, float) else value


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({name: _rounded(row[name]) for name in columns} for row in rows)
