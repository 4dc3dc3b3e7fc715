"""The Parquet files: their columns, writing a file, reading a directory."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import ConfigError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ConfigError(
        f"telemetry needs pyarrow, which cannot be imported ({error}): "
        "pip install 'kafkaclient[telemetry]'"
    ) from error

if TYPE_CHECKING:
    from os import PathLike

    from kafkaclient.telemetry.columns import Columns

__all__ = ["SCHEMA", "STARTED", "BatchRow", "read", "started_at", "write_part"]

_WORD = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("client_id", pa.string()),
        ("topic", _WORD),
        ("partition", pa.int32()),
        ("broker", pa.int32()),
        ("records", pa.int32()),
        ("bytes", pa.int32()),
        ("attempts", pa.int32()),
        ("created_s", pa.float64()),
        ("bound_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("acknowledged_s", pa.float64()),
        ("queued_batches", pa.int32()),
        ("queued_bytes", pa.int64()),
        ("in_flight", pa.int32()),
        ("window", pa.int32()),
        ("bound_by", _WORD),
        ("error", pa.string()),
    ]
)
"""The fields of :class:`BatchRow`, in the same order."""

STARTED = "kafkaclient.started"
"""The metadata key of the producer's start, at which a file's times begin, in ISO 8601."""

_PATTERN = "batches-*.parquet"


class BatchRow(NamedTuple):
    """A batch that has an outcome. Times are in seconds of the producer's clock since its start.

    None means that the event did not happen. A batch that failed before it had a partition has no
    decision.
    """

    client_id: str
    topic: str
    partition: int
    """-1: the batch never had a partition."""
    broker: int
    """The leader that the batch was first sent to. -1: the batch was never sent."""
    records: int
    bytes: int
    """Size on the wire. An estimate for a batch that was never sent."""
    attempts: int
    created_s: float
    bound_s: float | None
    """When the partition was decided."""
    sent_s: float | None
    """When the batch was first sent."""
    acknowledged_s: float | None
    """None for a failure, and with acks=0."""
    queued_batches: int | None
    """At the decision: the number of other batches that waited in the same queue."""
    queued_bytes: int | None
    in_flight: int | None
    """At the decision: Produce requests in flight to the partition's leader."""
    window: int | None
    """At the decision: how many requests the leader may have in flight."""
    bound_by: str | None
    """How the partition was decided: ``late``, ``rotation``, ``floor`` or ``append``."""
    error: str | None
    """The class name of the failure."""


def write_part(directory: Path, name: str, columns: Columns) -> None:
    """Write a file. It gets its name once it is complete. Raises OSError, or pyarrow's errors."""
    unfinished = directory / f".{name}.unfinished"
    try:
        pq.write_table(columns.table(), unfinished)
        unfinished.replace(directory / name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def read(directory: str | PathLike[str]) -> Any:
    """All batches recorded in the directory, as a ``pyarrow.Table``.

    Each producer's batches are in the order of their outcomes. If all files are of one producer,
    the table has their metadata. Raises FileNotFoundError if there are no files.
    """
    files = sorted(Path(directory).glob(_PATTERN))
    if not files:
        raise FileNotFoundError(f"no {_PATTERN} in {directory}: has a producer written there?")
    tables = [pq.read_table(path) for path in files]
    settings = {table.schema.metadata[STARTED.encode()]: table.schema for table in tables}
    schema = settings.popitem()[1] if len(settings) == 1 else SCHEMA
    whole = pa.concat_tables(table.replace_schema_metadata() for table in tables)
    return whole.unify_dictionaries().replace_schema_metadata(schema.metadata)


def started_at(path: str | PathLike[str]) -> datetime:
    """The wall-clock time at which a file's times begin. Raises ConfigError for a file that was not
    written by a producer's telemetry."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{path} is not a telemetry file: {error}") from error
    started = metadata.get(STARTED.encode())
    if started is None:
        raise ConfigError(f"{path} is not a telemetry file: its metadata has no {STARTED}")
    return datetime.fromisoformat(started.decode())
