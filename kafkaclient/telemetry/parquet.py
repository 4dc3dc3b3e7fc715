"""The files of telemetry: writes one, and reads all files of a folder."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kafkaclient.errors import ConfigError
from kafkaclient.telemetry.format import STARTED

if TYPE_CHECKING:
    from os import PathLike

    from kafkaclient.telemetry.rows import Columns

_PATTERN = "batches-*.parquet"


def write_part(directory: Path, name: str, columns: Columns) -> None:
    """Write a file. It gets its name when it is complete. Raises OSError or pyarrow's errors."""
    unfinished = directory / f".{name}.unfinished"
    try:
        pq.write_table(columns.table(), unfinished)
        unfinished.replace(directory / name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def read(directory: str | PathLike[str]) -> pa.Table:
    """All batches that producers have recorded in the directory, as one ``pyarrow.Table``.

    The batches of each producer are in the order of their outcomes. If one producer wrote all
    files, the table has their metadata. Raises FileNotFoundError if there are no files.
    """
    files = sorted(Path(directory).glob(_PATTERN))
    if not files:
        raise FileNotFoundError(f"no {_PATTERN} in {directory}: has a producer written there?")
    tables = [pq.read_table(path) for path in files]
    metadata = {table.schema.metadata[STARTED.encode()]: table.schema.metadata for table in tables}
    whole = pa.concat_tables(table.replace_schema_metadata() for table in tables)
    shared = metadata.popitem()[1] if len(metadata) == 1 else None
    return whole.unify_dictionaries().replace_schema_metadata(shared)


def started_at(path: str | PathLike[str]) -> datetime:
    """The wall-clock time at which the times in a file start.

    Raises ConfigError for a file that no producer's telemetry wrote.
    """
    try:
        metadata = pq.read_schema(path).metadata or {}
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{path} is not a file of telemetry: {error}") from error
    started = metadata.get(STARTED.encode())
    if started is None:
        raise ConfigError(f"{path} is not a file of telemetry: its metadata has no {STARTED}")
    return datetime.fromisoformat(started.decode())
