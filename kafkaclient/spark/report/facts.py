"""Reads batches from telemetry, on executors: from a file or a Kafka message to columns, with the
wall-clock time at which the times start, so that all producers share one axis."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafkaclient import telemetry
from kafkaclient.config.options import TelemetryTarget
from kafkaclient.errors import ConfigError
from kafkaclient.telemetry.format import check_metadata, start_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BATCHES_AT_A_TIME = 262_144

_WORD = pa.dictionary(pa.int32(), pa.string())
_MOST_S = 1e10  # 300 years; NaN is not less
TIMES = ("created_s", "bound_s", "sent_s", "acknowledged_s")
_COLUMNS = pa.schema(
    [
        *((name, _WORD) for name in ("topic", "bound_by", "error")),
        *((name, pa.int32()) for name in ("partition", "broker", "records", "bytes", "attempts")),
        *((name, pa.float64()) for name in (*TIMES, "done_s")),
    ]
)


@dataclass(frozen=True, slots=True)
class Period:
    """The outcomes to count, in seconds since the epoch: from ``since_s`` to before ``until_s``."""

    since_s: float | None = None
    until_s: float | None = None

    def condition(self, started_s: float) -> Any:
        """What ``done_s`` of a file must satisfy, for pyarrow."""
        done_s, chosen = ds.field("done_s"), ds.scalar(True)
        if self.since_s is not None:
            chosen &= done_s >= self.since_s - started_s
        return chosen if self.until_s is None else chosen & (done_s < self.until_s - started_s)


EVER = Period()


def read_file(
    root: str, path: str, run: int, period: Period = EVER
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The batches of a file, some at a time, and the exclusions with the first of them.

    ``root`` is a path or URI, ``path`` is relative to its file system. Only batches with an outcome
    in the period are read: row groups without them are skipped.

    Raises ConfigError if the file is not telemetry, FileNotFoundError if it is gone, for example
    deleted by a retention, and OSError if it cannot be read. The two latter are raised before the
    first batch, because the whole content is read first.
    """
    target = TelemetryTarget(root)
    where = f"{target}: {path}"
    try:
        with _file_system(root).open_input_file(path) as opened:
            content = opened.read_buffer()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(f"{where} cannot be read: {target.hide(str(error))}") from None
    try:
        file = ds.ParquetFileFormat().make_fragment(pa.BufferReader(content))
        metadata = file.physical_schema.metadata
        check_metadata(metadata, where)
        excluded = exclusions(metadata, run)
        for columns in file.to_batches(
            columns=_COLUMNS.names,
            filter=period.condition(_started_s(metadata)),
            batch_size=BATCHES_AT_A_TIME,
            use_threads=False,
        ):
            yield to_count(pa.Table.from_batches([columns]), metadata, run), excluded
            excluded = excluded.slice(0, 0)
    except (ConfigError, OSError, KeyError, ValueError) as error:  # Arrow's are subclasses
        raise ConfigError(f"{where} cannot be read: {error}") from None


def to_count(table: pa.Table, metadata: Mapping[bytes, bytes], run: int = 0) -> pa.Table:
    """The columns that are counted. Times are in seconds after ``started_s``, which is in seconds
    since the epoch, as ``ended_s``, the time of the outcome, is. ``batches``, ``records`` and
    ``bytes`` are scaled from a sample to all batches. Batches with a time that is not finite are
    left out."""
    table = table.select(_COLUMNS.names).cast(_COLUMNS)
    possible = (
        pc.fill_null(pc.less(pc.abs(table[name]), _MOST_S), name not in ("created_s", "done_s"))
        for name in (*TIMES, "done_s")
    )
    table = table.filter(reduce(pc.and_, possible))
    started_s = _started_s(metadata)
    weight = 1.0 / float(metadata.get(telemetry.SAMPLE_KEY.encode(), b"1"))
    for name in ("records", "bytes"):
        scaled = pc.multiply(pc.cast(table[name], pa.float64()), weight)
        table = table.set_column(table.column_names.index(name), name, scaled)
    kip794 = metadata.get(b"kafkaclient.partitioner") == b"kip794"
    chosen = pa.scalar(True) if kip794 else pc.not_equal(table["bound_by"], "append")
    return with_columns(
        table,
        run=pa.scalar(run, pa.int32()),
        batches=pa.scalar(weight),
        started_s=pa.scalar(started_s),
        ended_s=pc.add(table["done_s"], started_s),
        chosen=chosen,
    )


def exclusions(metadata: Mapping[bytes, bytes], run: int = 0) -> pa.Table:
    """How often the producer excluded each broker, by reason (column ``error``)."""
    found = json.loads(metadata.get(telemetry.EXCLUSIONS_KEY.encode(), b"[]"))
    rows = [{"run": run, **each} for each in found]
    renamed = {"reason": "error", "times": "batches"}
    return pa.Table.from_pylist(rows, _EXCLUSIONS).rename_columns(renamed)


_EXCLUSIONS = pa.schema(
    {"run": pa.int32(), "broker": pa.int32(), "reason": pa.string(), "times": pa.float64()}
)


def with_columns(table: pa.Table, **columns: Any) -> pa.Table:
    """The table with additional columns. A scalar is repeated in all rows."""
    for name, column in columns.items():
        values = pa.repeat(column, len(table)) if isinstance(column, pa.Scalar) else column
        table = table.append_column(name, values)
    return table


@lru_cache(maxsize=8)
def _file_system(root: str) -> Any:
    """Opened once per worker: opening may ask servers."""
    return telemetry.open_root(root)[0]


def _started_s(metadata: Mapping[bytes, bytes]) -> float:
    return start_of(metadata).timestamp()
