"""What a producer decided over time, from the batches that its telemetry recorded.

The recorder writes one row per batch: where and when it was bound, and what the producer saw at
that moment. Everything here works on columns, so whatever reads the files can feed it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["COLUMNS", "Decisions", "Series", "decisions", "read_decisions"]

COLUMNS = ("broker", "bytes", "bound_s", "queued_batches", "in_flight", "window")
"""The telemetry's columns that are used here."""

_BINS = 40
_SHORTEST_BIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Series:
    """One broker's, a value per bin; None where nothing was bound to it, so nothing was seen."""

    queued: list[float | None]
    """Batches waiting, mean of what was seen at the decisions."""
    in_flight: list[float | None]
    window: list[float | None]
    share: list[float | None]
    """Its part of the bytes bound in the bin, 0 to 1; None when none were bound at all."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """A run's decisions; ``seconds`` are the middles of the bins."""

    name: str
    seconds: list[float]
    brokers: dict[int, Series]


def read_decisions(name: str, folder: Path) -> Decisions:
    """The decisions in the telemetry files of a folder.

    Raises ModuleNotFoundError without the extra ``kafkaclient[telemetry]``.
    """
    table: Any = import_module("kafkaclient.telemetry").read(folder)
    return decisions(name, table.select(list(COLUMNS)).to_pydict())


def decisions(name: str, columns: Mapping[str, Sequence[Any]]) -> Decisions:
    """The decisions in columns; batches that were never bound are left out."""
    rows = [
        dict(zip(COLUMNS, row, strict=True))
        for row in zip(*(columns[column] for column in COLUMNS), strict=True)
        if row[COLUMNS.index("bound_s")] is not None
    ]
    if not rows:
        return Decisions(name, [], {})
    start = min(row["bound_s"] for row in rows)
    length = max(row["bound_s"] for row in rows) - start
    bin_s = max(length / _BINS, _SHORTEST_BIN_S)
    count = min(int(length / bin_s) + 1, _BINS)
    groups: defaultdict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    total = [0] * count
    for row in rows:
        place = min(int((row["bound_s"] - start) / bin_s), count - 1)
        groups[row["broker"], place].append(row)
        total[place] += row["bytes"]
    brokers = sorted({row["broker"] for row in rows})
    return Decisions(
        name,
        [round((place + 0.5) * bin_s, 3) for place in range(count)],
        {
            broker: _series([groups[broker, place] for place in range(count)], total)
            for broker in brokers
        },
    )


def _series(bins: Sequence[Sequence[Mapping[str, Any]]], total: Sequence[int]) -> Series:
    return Series(
        queued=[_mean(rows, "queued_batches") for rows in bins],
        in_flight=[_mean(rows, "in_flight") for rows in bins],
        window=[_mean(rows, "window") for rows in bins],
        share=[
            sum(row["bytes"] for row in rows) / all_bytes if all_bytes else None
            for rows, all_bytes in zip(bins, total, strict=True)
        ],
    )


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    seen = [row[column] for row in rows if row[column] is not None]
    return round(sum(seen) / len(seen), 3) if seen else None
