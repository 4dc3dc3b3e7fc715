"""What the choice of brokers saved, against equal numbers of batches for all partitions.

Assumptions. A batch that had gone to another broker in the same second would have taken, from the
decision to the acknowledgement, as long as the batches that went there: the mean of the chosen
batches of that broker, with the queues as they were recorded (``uniform_s``). The time before the
decision stays the same. For a second without a batch to a broker, the broker's latest earlier
second counts, or else its first later one. Batches are not judged if neither is known. A partition
whose leader moved counts for both brokers.

The sums of ten seconds are a block. The interval comes from a bootstrap over the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkaclient.spark.report.counting import grouped, split
from kafkaclient.spark.report.facts import with_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BLOCK_S = 10
_RESAMPLES = 1000

_FIGURES = ("batches", "actual_s", "uniform_s", "assumed", "unjudged")
BLOCKS = pa.schema(
    [
        *((name, pa.int64()) for name in ("run", "block")),
        *((name, pa.float64()) for name in _FIGURES),
    ]
)
"""Sums per block of seconds. ``batches`` are the judged ones; ``assumed`` are those of them in
seconds without a batch to some broker."""


@dataclass(frozen=True, slots=True)
class Saving:
    """Milliseconds per batch, from the decision to the acknowledgement."""

    batches: float
    actual_ms: float
    saved_ms: float
    """With the queues as recorded."""
    low_ms: float
    high_ms: float
    """95 % of the bootstrap's savings are from ``low_ms`` to ``high_ms``."""
    assumed: float
    """Share of the batches in seconds in which a broker's time is from another second."""
    unjudged: float
    """Batches that are not in the other figures, because a broker's time is not known."""


def blocks(
    run: int, windows: pa.Table, partitions: Mapping[int, int], block_s: int = BLOCK_S
) -> pa.Table:
    """The sums (:data:`BLOCKS`) of one run and topic.

    ``windows`` has ``second``, ``broker``, ``chosen`` (batches) and ``chosen_s`` (the sum of their
    times). ``partitions``: for each of these brokers the number of the topic's partitions that it
    leads.
    """
    brokers = np.array(sorted(partitions))
    even = np.array([partitions[broker] for broker in brokers], float)
    even /= even.sum()
    seconds, row = np.unique(np.asarray(windows["second"]), return_inverse=True)
    column = np.searchsorted(brokers, np.asarray(windows["broker"]))
    sums = np.zeros((2, len(seconds), len(brokers)))
    for place, name in enumerate(("chosen", "chosen_s")):
        np.add.at(sums[place], (row, column), np.asarray(windows[name], float))
    batches, took_s = sums
    total = batches.sum(axis=1)
    known = batches > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        took_s = took_s / batches
    source = _latest_known(known)
    judged = (source >= 0).all(axis=1)  # a broker never seen cannot be judged
    took_s = took_s[np.maximum(source, 0), np.arange(len(brokers))]
    actual = sums[1].sum(axis=1)
    figures = {
        "batches": np.where(judged, total, 0.0),
        "actual_s": np.where(judged, actual, 0.0),
        "uniform_s": np.where(judged, total * (even * took_s).sum(axis=1), 0.0),
        "assumed": total * (judged & ~known.all(axis=1)),
        "unjudged": total * ~judged,
    }
    numbers, within = np.unique(seconds // block_s, return_inverse=True)
    summed = {name: np.bincount(within, values) for name, values in figures.items()}
    return pa.table({"run": np.full(len(numbers), run), "block": numbers, **summed}).cast(BLOCKS)


def saving(found: pa.Table, seed: int = 0) -> Saving | None:
    """What all blocks of a run say; None without a judged batch. The same for the same seed."""
    sums = np.array([np.asarray(found[name], float) for name in _FIGURES])
    batches, actual, uniform, assumed, unjudged = sums.sum(axis=1)
    if not batches:
        return None
    sums = sums[:, sums[0] > 0]
    rng = np.random.default_rng(seed)
    count = sums.shape[1]
    weights = rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
    resampled = weights @ sums.T
    saved = 1e3 * (resampled[:, 2] - resampled[:, 1]) / resampled[:, 0]
    low, high = np.percentile(saved, (2.5, 97.5))
    actual_ms, saved_ms = 1e3 * actual / batches, 1e3 * (uniform - actual) / batches
    figures = (batches, actual_ms, saved_ms, low, high, assumed / batches, unjudged)
    return Saving(*map(float, figures))


class RecentChoices:
    """The chosen batches of the newest windows of ``report --follow``, to be judged together."""

    def __init__(self) -> None:
        self._chosen: pa.Table | None = None
        self._partitions: pa.Table | None = None

    def add(self, counted: Iterable[tuple[int, pa.Table]], oldest: int) -> None:
        """Add the counts per second of some windows, and forget windows before ``oldest``."""
        added = [
            with_columns(table.filter(pc.greater(table["chosen"], 0)), window=pa.scalar(window))
            for window, table in counted
        ]
        if not added:
            return
        self._chosen = _recent(
            [self._chosen, *added],
            ["window", "topic", "second", "broker"],
            {"chosen": "sum", "chosen_s": "sum"},
            oldest,
        )
        self._partitions = _recent(
            [self._partitions, *added],
            ["topic", "broker", "partition"],
            {"window": "max"},
            oldest,
        )

    def saving(self) -> Saving | None:
        """What the choices saved; None without a chosen batch."""
        if self._chosen is None or self._partitions is None or not len(self._chosen):
            return None
        partitions: dict[str, dict[int, int]] = {}
        counts = grouped(self._partitions, ["topic", "broker"], {"partition": "count"})
        for row in counts.to_pylist():
            partitions.setdefault(row["topic"], {})[row["broker"]] = row["partition"]
        judged = [
            blocks(0, chosen, partitions[topic]) for topic, chosen in split(self._chosen, "topic")
        ]
        return saving(grouped(pa.concat_tables(judged), ["block"], dict.fromkeys(_FIGURES, "sum")))


def _recent(
    tables: Iterable[pa.Table | None], keys: list[str], figures: Mapping[str, str], oldest: int
) -> pa.Table:
    columns = [*keys, *figures]
    found = grouped(
        pa.concat_tables(table.select(columns) for table in tables if table is not None),
        keys,
        figures,
    )
    return found.filter(pc.greater_equal(found["window"], oldest))


def _latest_known(known: np.ndarray) -> np.ndarray:
    """For each second and broker the row of the latest second with a batch; the first known one for
    the seconds before it; -1 if there is none."""
    rows = np.where(known, np.arange(len(known))[:, None], -1)
    latest: np.ndarray = np.maximum.accumulate(rows, axis=0)
    first = np.where(known.any(axis=0), known.argmax(axis=0), -1)
    return np.where(latest >= 0, latest, first[None, :])
