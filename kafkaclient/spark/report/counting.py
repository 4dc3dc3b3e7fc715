"""Counts the batches of a task's files, and adds up the counts of tasks, as Arrow columns.

Latencies are counted in 32 buckets per power of two, so a percentile is off by at most 1.1 %, for
any number of batches. Decisions use 8 buckets per power of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkaclient.errors import ConfigError
from kafkaclient.spark.report.facts import (
    BATCHES_AT_A_TIME,
    EVER,
    TIMES,
    Period,
    read_file,
    with_columns,
)
from kafkaclient.spark.report.queries import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PACKED_COUNTS = pa.schema(
    [("kind", pa.string()), ("run", pa.int32()), ("slice", pa.int64()), ("counts", pa.binary())]
)
"""The output of tasks. Counts with the same kind, run and slice are added up together."""

COUNTS = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "topic", "error", "bound_by")),
        *((name, pa.int32()) for name in ("run", "partition", "broker", "part", "bucket")),
        ("second", pa.int64()),
        *((name, pa.float64()) for name in ("batches", "records", "bytes", "retried")),
        *((name, pa.float64()) for name in ("total_s", "longest_s", "first_s", "last_s")),
        *((name, pa.float64()) for name in ("append", "chosen", "chosen_s")),
        ("is_chosen", pa.bool_()),
        *((name, pa.float64()) for name in ("others_s", "best_s", "regretted")),
    ]
)
"""The sums of all kinds. A column is null in kinds that do not have it."""

_PLACES = ("run", "topic", "partition", "broker")
SUMS: dict[str, tuple[list[str], dict[str, str]]] = {
    "seconds": (
        [*_PLACES, "error", "second"],
        dict.fromkeys(
            ("batches", "records", "bytes", "retried", "append", "chosen", "chosen_s"), "sum"
        )
        | {"first_s": "min", "last_s": "max"},
    ),
    "histogram": (
        [*_PLACES, "part", "bucket"],
        {"batches": "sum", "total_s": "sum", "longest_s": "max"},
    ),
    "cells": (
        ["run", "broker", "bound_by", "is_chosen", "moment", "bucket"],
        {"batches": "sum", "total_s": "sum"},
    ),
    "exclusions": (["run", "broker", "error"], {"batches": "sum"}),
    "unreadable": (["run", "error"], {"batches": "sum"}),
    "failed": (["run", "error"], {"batches": "sum"}),
    "deleted": (["run"], {"batches": "sum"}),
}
"""Kind -> the columns to group by, and how each figure of a group is aggregated.

The last three count files: not telemetry, not read because of an OSError, and deleted meanwhile."""

_BUCKETS_OF_DECISIONS = 8  # per power of two seconds
_SLICE_S = 60.0
_SLICE_PARTITIONS = 16
_MAX_SLICES = 256  # of one run's partitions; each is one Python call

_MAX_UNSUMMED_ROWS = 1_000_000  # held before they are added up, plus the rows of earlier sums


def count_files(
    files: Iterable[tuple[int, str, str]],
    window_s: float,
    period: Period = EVER,
) -> Iterator[pa.RecordBatch]:
    """The :data:`PACKED_COUNTS` of a task's ``files``: each its run, root and path.

    Batches sent within the same window of ``window_s`` seconds belong to one moment. Only batches
    with an outcome in the period are counted. Counts
    that have no time are held until the task's end: they do not grow with the number of batches.
    A file that was deleted since it was listed is counted. The task ends with the first file that
    cannot be read for another reason. The error is a row of the kind ``unreadable`` or ``failed``:
    if the task raised it, Spark would log its stack trace.
    """
    held: list[pa.Table] = []
    timeless: dict[str, list[pa.Table]] = {"histogram": [], "exclusions": [], "deleted": []}

    def counted() -> pa.RecordBatch:
        found = counts(held, window_s)
        held.clear()
        parts = timeless["histogram"]
        parts[:] = [sum_groups("histogram", pa.concat_tables([*parts, found.pop("histogram")]))]
        return _pack_counts(found, window_s)

    for run, root, path in files:
        try:
            for batches, excluded in read_file(root, path, run, period):
                held.append(batches)
                timeless["exclusions"].append(excluded)
                if sum(map(len, held)) >= BATCHES_AT_A_TIME:
                    yield counted()
        except FileNotFoundError:
            timeless["deleted"].append(
                pa.table({"run": pa.array([run], pa.int32()), "batches": [1.0]})
            )
        except (ConfigError, OSError) as error:
            kind = "failed" if isinstance(error, OSError) else "unreadable"
            row = {"run": run, "error": str(error), "batches": 1.0}
            yield _pack_counts({kind: pa.Table.from_pylist([row])}, window_s)
            return
    if held:
        yield counted()
    ended = {kind: pa.concat_tables(tables) for kind, tables in timeless.items() if tables}
    if ended:
        yield _pack_counts(ended, window_s)


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
    found = with_columns(found, kind=pa.scalar(kind))
    missing = [name for name in COUNTS.names if name not in found.column_names]
    found = with_columns(found, **{name: pa.nulls(len(found)) for name in missing})
    return found.select(COUNTS.names).cast(COUNTS)


def counts(files: Sequence[pa.Table], window_s: float) -> dict[str, pa.Table]:
    """Kind -> counts. Every batch is counted in its second. A delivered batch is also counted in
    the histogram of each part of its latency, and in its moment."""
    batches = pa.concat_tables(files).unify_dictionaries()
    started, created, bound, sent, acknowledged = (batches[name] for name in ("started_s", *TIMES))
    answered_s = pc.subtract(acknowledged, sent)
    weight = batches["batches"]
    chosen_s = pc.subtract(acknowledged, bound)
    is_chosen = pc.fill_null(batches["chosen"], False)
    known = pc.and_(pc.and_(is_chosen, pc.is_valid(chosen_s)), pc.is_null(batches["error"]))
    append = pc.equal(batches["bound_by"], "append")
    chosen = pc.if_else(known, weight, 0.0)
    batches = with_columns(
        batches.drop_columns(["chosen"]),
        retried=pc.if_else(pc.greater(batches["attempts"], 1), weight, 0.0),
        second=_floor(pc.add(pc.coalesce(sent, created), started)),
        moment=_floor(pc.divide(pc.add(sent, started), window_s)),
        first_s=pc.add(created, started),
        last_s=batches["ended_s"],
        append=pc.if_else(pc.fill_null(append, False), weight, 0.0),
        chosen=chosen,
        chosen_s=pc.multiply(chosen, pc.fill_null(chosen_s, 0.0)),
        is_chosen=is_chosen,
    )
    parts = (
        pc.subtract(bound, created),
        pc.subtract(sent, bound),
        answered_s,
        pc.subtract(acknowledged, created),
    )
    histograms = []
    for number, took_s in enumerate(parts):
        delivered = _delivered(batches, _PLACES, took_s, BUCKETS)
        delivered = with_columns(delivered, part=pa.scalar(number))
        histograms.append(sum_groups("histogram", delivered))
    decided = ("run", "broker", "bound_by", "is_chosen", "moment")
    cells = _delivered(batches, decided, answered_s, _BUCKETS_OF_DECISIONS)
    return {
        "seconds": sum_groups("seconds", batches),
        "cells": sum_groups("cells", cells),
        "histogram": pa.concat_tables(histograms),
    }


def _delivered(batches: pa.Table, keys: Sequence[str], took_s: Any, per_doubling: int) -> pa.Table:
    """The delivered batches whose duration is known, with the duration and its bucket.

    Only the columns ``keys`` are kept, because filtering takes much of the time.
    """
    known = pc.and_(pc.is_null(batches["error"]), pc.is_valid(took_s))
    delivered = with_columns(batches.select([*keys, "batches"]), longest_s=took_s).filter(known)
    doublings = pc.log2(pc.max_element_wise(delivered["longest_s"], 1e-6))
    return with_columns(
        delivered,
        total_s=pc.multiply(delivered["longest_s"], delivered["batches"]),
        bucket=_floor(pc.multiply(doublings, float(per_doubling))),
    )


def grouped(table: pa.Table, keys: Sequence[str], figures: Mapping[str, str]) -> pa.Table:
    """One row per group, with the columns ``keys`` and ``figures``: column -> how it is
    aggregated."""
    found = table.group_by(list(keys), use_threads=False).aggregate(list(figures.items()))
    return found.rename_columns([*keys, *figures])


def split(table: pa.Table, column: str) -> Iterator[tuple[Any, pa.Table]]:
    """Each value of a column, and its rows in their order."""
    if not len(table):
        return
    values = pc.dictionary_encode(table[column]).combine_chunks()
    numbers = np.asarray(values.indices)
    table = table.take(pa.array(np.argsort(numbers, kind="stable")))
    begin = 0
    for value, count in zip(values.dictionary.to_pylist(), np.bincount(numbers), strict=True):
        yield value, table.slice(begin, count)
        begin += count


def sum_groups(kind: str, counted: pa.Table) -> pa.Table:
    """One row per group of the kind. ``counted`` has batches or earlier sums."""
    sums = grouped(counted, *SUMS[kind])
    # Strings, because merging the dictionaries of many tasks would cost more.
    kinds = (pa.string() if pa.types.is_dictionary(kind) else kind for kind in sums.schema.types)
    return sums.cast(pa.schema(zip(sums.column_names, kinds, strict=True)))


def _pack_counts(found: Mapping[str, pa.Table], window_s: float) -> pa.RecordBatch:
    rows = [
        {"kind": kind, "run": run, "slice": number, "counts": pack(part.drop_columns(["slice"]))}
        for kind, table in found.items()
        for run, of_run in split(table, "run")
        for number, part in split(
            with_columns(of_run, slice=pa.array(_slices(kind, of_run, window_s))), "slice"
        )
    ]
    return pa.RecordBatch.from_pylist(rows, PACKED_COUNTS)


def _slices(kind: str, table: pa.Table, window_s: float) -> np.ndarray:
    """The slice of each row. Rows of the same minute, or of a few partitions, share a slice."""
    if kind in ("exclusions", "unreadable", "failed", "deleted"):
        return np.zeros(len(table), np.int64)
    if kind == "histogram":
        topics = pc.dictionary_encode(table["topic"]).combine_chunks()
        spread = np.array([crc32(topic.as_py().encode()) for topic in topics.dictionary], np.int64)
        partitions = np.asarray(table["partition"]) // _SLICE_PARTITIONS
        slices: np.ndarray = (spread[np.asarray(topics.indices)] + partitions) % _MAX_SLICES
        return slices
    if kind == "seconds":
        return np.asarray(table["second"]) // int(_SLICE_S)
    return np.asarray(table["moment"]) // max(1, round(_SLICE_S / window_s))


def pack(table: pa.Table) -> bytes:
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


# --- Judges choices of brokers --------------------------------------------------------------------


def judge_decisions(cells: pa.Table, times: float, least_s: float) -> pa.Table:
    """Figures per broker, kind of decision, and whether the producer chose the partition.

    They are the number of judged batches, the time they took (``total_s``), the time at the mean of
    the other brokers (``others_s``) and of the fastest other broker (``best_s``), and the number of
    ``regretted`` batches. A batch is regretted if it took more than ``times`` the mean of the
    fastest other broker, and more than ``least_s`` seconds longer.

    ``cells``: all batches of some moments of one run. A row has the batches of one broker and kind
    of decision with about the same duration. Moments with only one broker are not judged. Rivals
    are all batches, also those whose partition the producer did not choose.
    """
    rivals = _rivals(cells)
    compared = cells.join(rivals, ["moment", "broker"], join_type="inner", use_threads=False)
    batches, total_s, others_s, best_s = (
        np.asarray(compared[name]) for name in ("batches", "total_s", "others_s", "best_s")
    )
    took_s = total_s / batches
    regretted = (took_s > times * best_s) & (took_s > best_s + least_s)
    figures = {
        "batches": batches,
        "total_s": total_s,
        "others_s": others_s * batches,
        "best_s": best_s * batches,
        "regretted": regretted * batches,
    }
    keys = {name: compared[name] for name in ("run", "broker", "bound_by", "is_chosen")}
    return grouped(pa.table(keys | figures), [*keys], dict.fromkeys(figures, "sum"))


def _rivals(cells: pa.Table) -> pa.Table:
    """For each broker of a moment with several: the mean duration of all other brokers' batches
    (``others_s``), and of the fastest other broker's batches (``best_s``)."""
    sums = grouped(cells, ["moment", "broker"], {"total_s": "sum", "batches": "sum"})
    moment, broker, total_s, batches = (np.asarray(column) for column in sums.columns)
    order = np.lexsort((broker, total_s / batches, moment))  # by moment, fastest broker first
    moment, broker, total_s, batches = (c[order] for c in (moment, broker, total_s, batches))
    first = np.flatnonzero(np.append(True, np.diff(moment) != 0)[: len(moment)])
    size = np.diff(np.append(first, len(moment)))
    several = np.repeat(size, size) > 1

    def of_its_moment(values: Any) -> Any:
        return np.repeat(values, size)[several]

    fastest = of_its_moment(first)
    rival = np.where(fastest == np.flatnonzero(several), fastest + 1, fastest)
    others_s = of_its_moment(np.add.reduceat(total_s, first)) - total_s[several]
    others = of_its_moment(np.add.reduceat(batches, first)) - batches[several]
    return pa.table(
        {
            "moment": moment[several],
            "broker": broker[several],
            "others_s": others_s / others,
            "best_s": total_s[rival] / batches[rival],
        }
    )
