"""Counts the batches of a task's files, and adds up the counts of tasks, as Arrow columns.

Latencies are counted in 32 buckets per power of two, so a percentile is off by at most 1.1 %, for
any number of batches. Decisions use 8 buckets per power of two.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkaclient.spark.jobs import SparkJobError
from kafkaclient.spark.report.judging import judge_decisions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PACKED_COUNTS = pa.schema(
    [("kind", pa.string()), ("run", pa.int32()), ("slice", pa.int64()), ("counts", pa.binary())]
)
"""The output of tasks. Counts with the same kind, run and slice are added up together."""

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
"""The sums of all kinds. A column is null in kinds that do not have it."""

_WORD = pa.dictionary(pa.int32(), pa.string())
_BATCHES = pa.schema(
    [
        *((name, _WORD) for name in ("topic", "bound_by", "error")),
        *((name, pa.int32()) for name in ("partition", "broker", "records", "bytes", "attempts")),
        *((name, pa.float64()) for name in ("created_s", "bound_s", "sent_s", "acknowledged_s")),
    ]
)
_PLACES = ("run", "topic", "partition", "broker")
SUMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "seconds": (
        [*_PLACES, "error", "second"],
        {
            "batches": "sum",
            "records": "sum",
            "bytes": "sum",
            "retried": "sum",
            "first_s": "min",
            "last_s": "max",
        },
    ),
    "histogram": (
        [*_PLACES, "part", "bucket"],
        {"batches": "sum", "total_s": "sum", "longest_s": "max"},
    ),
    "cells": (
        ["run", "broker", "bound_by", "moment", "bucket"],
        {"batches": "sum", "total_s": "sum"},
    ),
}
"""Kind -> the columns to group by, and how each figure of a group is aggregated."""

_SLICE_S = 60.0
_SLICE_PARTITIONS = 16
_MAX_SLICES = 256  # of one run's partitions; each is one Python call

_MAX_BATCHES_HELD = 262_144  # in memory, unless one file has more
_MAX_UNSUMMED_ROWS = 1_000_000  # held before they are added up, plus the rows of earlier sums


def count_files(shares: Iterable[pa.RecordBatch], window_s: float) -> Iterator[pa.RecordBatch]:
    """The :data:`PACKED_COUNTS` of a task. Spark maps this function over rows of ``files``: lists
    of ``run``, ``path`` and ``offset_s``.

    Batches sent within the same window of ``window_s`` seconds belong to one moment.
    """
    held: list[pa.Table] = []
    for file in (f for batch in shares for row in batch.to_pylist() for f in row["files"]):
        held.append(read_batches(**file))
        if sum(map(len, held)) >= _MAX_BATCHES_HELD:
            yield _pack_counts(held, window_s)
            held.clear()
    if held:
        yield _pack_counts(held, window_s)


def add_up(key: tuple[Any, ...], shipped: pa.Table, times: float, least_s: float) -> pa.Table:
    """The sums (:data:`COUNTS`) of packed counts with the same kind, run and slice.

    ``times`` and ``least_s`` define when a decision is regretted (:func:`judge_decisions`).
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
    found = _with(found, kind=pa.scalar(kind))
    missing = [name for name in COUNTS.names if name not in found.column_names]
    found = _with(found, **{name: pa.nulls(len(found)) for name in missing})
    return found.select(COUNTS.names).cast(COUNTS)


def read_batches(run: int, path: str, offset_s: float) -> pa.Table:
    """The batches of a file, with the number of their run and the start of their clock.

    Raises SparkJobError if the file cannot be read or is not telemetry.
    """
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(_BATCHES.names, use_threads=False)
        table = table.select(_BATCHES.names).cast(_BATCHES)
    except (OSError, KeyError, ValueError) as error:  # Arrow's errors are subclasses
        raise SparkJobError(f"{path} cannot be read: {error}") from None
    return _with(table, run=pa.scalar(run, pa.int32()), offset_s=pa.scalar(offset_s))


def counts(files: Sequence[pa.Table], window_s: float) -> dict[str, pa.Table]:
    """Kind -> counts. Every batch is counted in its second. A delivered batch is also counted in
    the histogram of each part of its latency, and in its moment."""
    batches = pa.concat_tables(files).unify_dictionaries()
    offset, created, bound, sent, acknowledged = (
        batches[name] for name in ("offset_s", "created_s", "bound_s", "sent_s", "acknowledged_s")
    )
    batches = _with(
        batches,
        batches=pa.scalar(1),
        retried=pc.cast(pc.greater(batches["attempts"], 1), pa.int64()),
        second=_floor(pc.add(pc.coalesce(sent, created), offset)),
        moment=_floor(pc.divide(pc.add(sent, offset), window_s)),
        first_s=pc.add(created, offset),
        last_s=pc.add(pc.coalesce(acknowledged, sent, bound, created), offset),
    )
    answered_s = pc.subtract(acknowledged, sent)
    parts = (
        pc.subtract(bound, created),
        pc.subtract(sent, bound),
        answered_s,
        pc.subtract(acknowledged, created),
    )
    histograms = []
    for number, took_s in enumerate(parts):
        delivered = _delivered(batches, took_s, per_doubling=32)
        histograms.append(sum_groups("histogram", _with(delivered, part=pa.scalar(number))))
    return {
        "seconds": sum_groups("seconds", batches),
        "cells": sum_groups("cells", _delivered(batches, answered_s, per_doubling=8)),
        "histogram": pa.concat_tables(histograms),
    }


def _delivered(batches: pa.Table, took_s: Any, per_doubling: int) -> pa.Table:
    """The delivered batches whose duration is known, with the duration and its bucket.

    Only the columns to group by are kept, because filtering takes much of the time.
    """
    keys = batches.select([*_PLACES, "bound_by", "moment", "batches"])
    known = pc.and_(pc.is_null(batches["error"]), pc.is_valid(took_s))
    chosen = _with(keys, total_s=took_s, longest_s=took_s).filter(known)
    doublings = pc.log2(pc.max_element_wise(chosen["total_s"], 1e-6))
    return _with(chosen, bucket=_floor(pc.multiply(doublings, float(per_doubling))))


def sum_groups(kind: str, counted: pa.Table) -> pa.Table:
    """One row per group of the kind. ``counted`` has batches or earlier sums."""
    keys, figures = SUMS[kind]
    grouped = counted.group_by(keys, use_threads=False).aggregate(list(figures.items()))
    sums = grouped.rename_columns([*keys, *figures])
    # Strings, because merging the dictionaries of many tasks would cost more.
    kinds = (pa.string() if pa.types.is_dictionary(kind) else kind for kind in sums.schema.types)
    return sums.cast(pa.schema(zip(sums.column_names, kinds, strict=True)))


def _pack_counts(held: Sequence[pa.Table], window_s: float) -> pa.RecordBatch:
    rows = [
        {"kind": kind, "run": run, "slice": number, "counts": _pack(part)}
        for kind, table in counts(held, window_s).items()
        for run, number, part in _sliced(table, _slices(kind, table, window_s))
    ]
    return pa.RecordBatch.from_pylist(rows, PACKED_COUNTS)


def _slices(kind: str, table: pa.Table, window_s: float) -> np.ndarray:
    """The slice of each row. Rows of the same minute, or of a few partitions, share a slice."""
    if kind == "histogram":
        topics = pc.dictionary_encode(table["topic"]).combine_chunks()
        spread = np.array([crc32(topic.as_py().encode()) for topic in topics.dictionary], np.int64)
        partitions = np.asarray(table["partition"]) // _SLICE_PARTITIONS
        slices: np.ndarray = (spread[np.asarray(topics.indices)] + partitions) % _MAX_SLICES
        return slices
    if kind == "seconds":
        return np.asarray(table["second"]) // int(_SLICE_S)
    return np.asarray(table["moment"]) // max(1, round(_SLICE_S / window_s))


def _sliced(table: pa.Table, slices: np.ndarray) -> Iterator[tuple[int, int, pa.Table]]:
    runs = np.asarray(table["run"])
    order = np.lexsort((slices, runs))
    table, runs, slices = table.take(pa.array(order)), runs[order], slices[order]
    changes = 1 + np.flatnonzero((np.diff(runs) != 0) | (np.diff(slices) != 0))
    for begin, end in pairwise((0, *changes.tolist(), len(table))):
        if begin < end:
            yield int(runs[begin]), int(slices[begin]), table.slice(begin, end - begin)


def _pack(table: pa.Table) -> bytes:
    """The table as an Arrow stream: a single value for Spark, regardless of the number of rows."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(packed: bytes | pa.Buffer) -> pa.Table:
    """The counts of a row of :data:`PACKED_COUNTS`."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_all()


def _floor(values: Any) -> Any:
    return pc.cast(pc.floor(values), pa.int64())


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    """The table with additional columns. A scalar is repeated in all rows."""
    for name, column in columns.items():
        values = pa.repeat(column, len(table)) if isinstance(column, pa.Scalar) else column
        table = table.append_column(name, values)
    return table
