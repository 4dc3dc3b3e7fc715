"""A producer's decisions over time, from the batches that its telemetry recorded.

Telemetry has a row for each batch: its partition, when the batch was bound to it, and what the
producer knew of the broker at that moment.
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
"""The columns of telemetry that are used here."""

_BINS = 40
_SHORTEST_BIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Series:
    """A broker's values by bin; None in a bin in which no batch was bound to the broker."""

    queued: list[float | None]
    """The mean number of waiting batches at the decisions."""
    in_flight: list[float | None]
    window: list[float | None]
    share: list[float | None]
    """The broker's share of the bytes bound in the bin, 0 to 1; None if no batch was bound."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of a run; ``seconds`` are the middles of the bins."""

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
    """The decisions in these columns, without batches that were never bound."""
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
