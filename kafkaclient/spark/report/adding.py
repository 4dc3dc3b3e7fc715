"""What tasks counted, added up: a slice at a time, as Arrow's columns; Spark sees the sums only."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkaclient.spark.report.counting import added_up, unpacked
from kafkaclient.spark.report.judging import judged

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
"""Of all kinds; a column is null where it means nothing for the kind."""

_UNSUMMED = 1_000_000
"""So many rows wait to be added up, and at most as many more as there are sums."""


def add_up(key: tuple[Any, ...], shipped: pa.Table, times: float, least_s: float) -> pa.Table:
    """What Spark applies to each group of :data:`.SHIPPED` with the same kind, run and slice.

    ``times`` and ``least_s`` say when a decision counts as regretted (:func:`.judged`).
    """
    kind = key[0].as_py()
    held: list[pa.Table] = []
    rows, most = 0, _UNSUMMED
    for packed in shipped["counts"]:
        held.append(unpacked(packed.as_buffer()))
        rows += len(held[-1])
        if rows > most:
            held = [added_up(kind, pa.concat_tables(held))]
            rows = len(held[0])
            most = max(_UNSUMMED, 2 * rows)
    found = added_up(kind, pa.concat_tables(held))
    if kind == "cells":
        kind, found = "decisions", judged(found, times, least_s)
    found = found.append_column("kind", pa.repeat(pa.scalar(kind), len(found)))
    for name in COUNTS.names:
        if name not in found.column_names:
            found = found.append_column(name, pa.nulls(len(found)))
    return found.select(COUNTS.names).cast(COUNTS)
