"""Adds up the counts of tasks, as Arrow columns, one slice at a time. Spark handles only the
sums."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkaclient.spark.report.counting import sum_groups, unpack
from kafkaclient.spark.report.judging import judge_decisions

__all__ = ["COUNTS", "add_up"]

COUNTS = pa.schema(
    [
        ("kind", pa.string()),
        ("run", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("broker", pa.int32()),
        ("error", pa.string()),
        ("bound_by", pa.string()),
        ("second", pa.int64()),
        ("part", pa.int32()),
        ("bucket", pa.int32()),
        ("batches", pa.int64()),
        ("total_s", pa.float64()),
        ("longest_s", pa.float64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("retried", pa.int64()),
        ("first_s", pa.float64()),
        ("last_s", pa.float64()),
        ("others_s", pa.float64()),
        ("best_s", pa.float64()),
        ("regretted", pa.int64()),
    ]
)
"""Columns of all kinds. A column is null in kinds that do not have it."""

_MAX_UNSUMMED_ROWS = 1_000_000  # held before they are added up, plus the rows of earlier sums


def add_up(key: tuple[Any, ...], shipped: pa.Table, times: float, least_s: float) -> pa.Table:
    """The sums of a group of :data:`.PACKED_COUNTS` with the same kind, run and slice; Spark calls
    it.

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
