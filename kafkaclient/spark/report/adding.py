"""Adds up the counts of tasks, one slice at a time, as Arrow columns. Spark gets only the sums."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkaclient.spark.report.counting import sum_groups, unpack
from kafkaclient.spark.report.judging import judge_decisions

__all__ = ["COUNTS", "add_up"]

COUNTS = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "topic", "error", "bound_by")),
        *((name, pa.int32()) for name in ("run", "partition", "broker", "part", "bucket")),
        *((name, pa.int64()) for name in ("second", "batches", "records", "bytes", "retried")),
        *((name, pa.float64()) for name in ("total_s", "longest_s", "first_s", "last_s")),
        *((name, pa.float64()) for name in ("others_s", "best_s")),
        ("regretted", pa.int64()),
    ]
)
"""Columns of all kinds. A column is null in kinds that do not have it."""

_MAX_UNSUMMED_ROWS = 1_000_000  # held before they are added up, plus the rows of earlier sums


def add_up(key: tuple[Any, ...], shipped: pa.Table, times: float, least_s: float) -> pa.Table:
    """The sums of the :data:`.PACKED_COUNTS` with the same kind, run and slice; Spark calls it.

    ``times`` and ``least_s`` define when a decision is regretted (:func:`.judge_decisions`).
    """
    kind = key[0].as_py()
    held: list[pa.Table] = []
    rows, most = 0, _MAX_UNSUMMED_ROWS
    for packed in shipped["counts"]:
        held.append(unpack(packed.as_buffer()))
        rows += len(held[-1])
        if rows > most:
            held = [sum_groups(kind, pa.concat_tables(held))]
            rows = len(held[0])
            most = max(_MAX_UNSUMMED_ROWS, 2 * rows)
    found = sum_groups(kind, pa.concat_tables(held))
    if kind == "cells":
        kind, found = "decisions", judge_decisions(found, times, least_s)
    found = found.append_column("kind", pa.repeat(pa.scalar(kind), len(found)))
    for name in COUNTS.names:
        if name not in found.column_names:
            found = found.append_column(name, pa.nulls(len(found)))
    return found.select(COUNTS.names).cast(COUNTS)
