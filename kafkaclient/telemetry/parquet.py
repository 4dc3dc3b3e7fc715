"""The files: what is in them, how one is written, how all of a directory are read."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ConfigError(
        "telemetry is written with pyarrow, which cannot be imported "
        f"({error}): pip install 'kafkaclient[telemetry]'"
    ) from error

if TYPE_CHECKING:
    from os import PathLike

    from kafkaclient.telemetry.columns import Columns

__all__ = ["SCHEMA", "STARTED", "read", "started_at", "write_part"]

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
"""The columns of :class:`~kafkaclient.telemetry.row.BatchRow`, in its order."""

STARTED = "kafkaclient.started"
"""The metadata key of the wall-clock time from which a file's times count, in ISO 8601."""

_PATTERN = "batches-*.parquet"


def write_part(directory: Path, name: str, columns: Columns) -> None:
    """Write a file of the directory, which appears under its name when it is complete.

    Raises OSError, or an exception of pyarrow's.
    """
    unfinished = directory / f".{name}.unfinished"
    try:
        pq.write_table(columns.table(), unfinished)
        unfinished.replace(directory / name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def read(directory: str | PathLike[str]) -> Any:
    """All batches that producers have recorded in the directory, as one ``pyarrow.Table``.

    Each producer's batches come in the order of their outcomes. The table has the metadata of the
    files when one producer wrote them all. Raises FileNotFoundError when there are none.
    """
    tables = [pq.read_table(path) for path in _files(directory)]
    settings = {table.schema.metadata[STARTED.encode()]: table.schema for table in tables}
    schema = settings.popitem()[1] if len(settings) == 1 else SCHEMA
    whole = pa.concat_tables(table.replace_schema_metadata() for table in tables)
    return whole.unify_dictionaries().replace_schema_metadata(schema.metadata)


def started_at(path: str | PathLike[str]) -> datetime:
    """The wall-clock time from which the times in a file count.

    Raises ConfigError for a file that no producer's telemetry wrote.
    """
    try:
        metadata = pq.read_schema(path).metadata or {}
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{path} is no file of telemetry: {error}") from error
    started = metadata.get(STARTED.encode())
    if started is None:
        raise ConfigError(f"{path} is no file of telemetry: its metadata has no {STARTED}")
    return datetime.fromisoformat(started.decode())


def _files(directory: str | PathLike[str]) -> list[Path]:
    files = sorted(Path(directory).glob(_PATTERN))
    if not files:
        raise FileNotFoundError(f"no {_PATTERN} in {directory}: has a producer written there?")
    return files
