"""The two forms of telemetry, a Parquet file and a Kafka message, and the version of their schema.

Both forms have the columns of :data:`~kafkaclient.telemetry.rows.SCHEMA` and the same metadata.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kafkaclient.errors import ConfigError
from kafkaclient.telemetry.rows import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA_VERSION = 1
"""The schema that this version of kafkaclient writes and reads."""

VERSION_KEY = "kafkaclient.telemetry.schema"
"""The metadata key, and the message header, of :data:`SCHEMA_VERSION`."""

PART_HEADER = "kafkaclient.telemetry.file"
"""The message header with a name that is unique to the message. A message that was sent again
after an unclear failure has the name of the first one."""

SAMPLE_KEY = "kafkaclient.telemetry.sample"
"""The metadata key of the share of batches that are recorded: 1e-9 <= share <= 1; missing: 1."""

EXCLUSIONS_KEY = "kafkaclient.exclusions"
"""The metadata key of how often brokers were excluded since the producer's previous file or
message, as JSON: ``[{"broker": 1, "reason": "slow", "times": 3}]``; missing: never."""

STARTED_KEY = "kafkaclient.started"
"""The metadata key of the wall-clock time at which the times start, in ISO 8601. It is measured for
each file or message: a clock that was set, or a machine that was suspended, changes it."""

_NEVER_NULL = frozenset(
    {"topic", "partition", "broker", "records", "bytes", "attempts", "created_s", "done_s"}
)


def as_parquet(table: pa.Table) -> bytes:
    """The content of a file. Raises pyarrow's errors."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def as_message(table: pa.Table) -> bytes:
    """The value of a Kafka message: an Arrow IPC stream. Raises pyarrow's errors."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def decode(value: bytes) -> pa.Table:
    """The batches in one Kafka message of ``telemetry=topic:NAME``; the table's schema has the
    producer's metadata.

    Raises ConfigError for a value that is not telemetry, or that a newer kafkaclient wrote.
    """
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ConfigError(f"a message is not telemetry: its value is {type(value).__name__}")
    try:
        with pa.ipc.open_stream(value) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigError("a message is not telemetry: its value is no Arrow stream") from error
    return checked(table, "a message")


def checked(table: pa.Table, what: str) -> pa.Table:
    """The table of ``what``, a file or a message, with the columns of SCHEMA.

    Raises ConfigError if the metadata or a column is not as in telemetry.
    """
    check_metadata(table.schema.metadata, what)
    for field in SCHEMA:
        found = table.schema.get_all_field_indices(field.name)
        if len(found) != 1 or table.schema.field(found[0]).type != field.type:
            raise ConfigError(
                f"{what} is not telemetry: it has no column {field.name} of type {field.type}"
            )
        if field.name in _NEVER_NULL and table.column(found[0]).null_count:
            raise ConfigError(f"{what} is not telemetry: its column {field.name} has nulls")
    return table.select(SCHEMA.names)


def check_metadata(metadata: Mapping[bytes, bytes] | None, what: str) -> None:
    """Check the metadata of ``what``, a file or a message.

    Raises ConfigError for metadata that no telemetry has, and for a newer version.
    """
    given = metadata or {}
    for key in (STARTED_KEY, VERSION_KEY):
        if key.encode() not in given:
            raise ConfigError(f"{what} is not telemetry: its metadata has no {key}")
    version = given[VERSION_KEY.encode()].decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise ConfigError(
            f"{what} has version {version[:20]} of the telemetry schema, and this kafkaclient "
            f"reads version {SCHEMA_VERSION}: upgrade kafkaclient"
        )
    for key, is_valid in _CHECKS.items():
        text = given.get(key.encode())
        try:
            if text is None or is_valid(text.decode()):
                continue
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ConfigError(f"{what} is not telemetry: its metadata has a wrong {key}")


def start_of(metadata: Mapping[bytes, bytes]) -> datetime:
    """The wall-clock time at which the times start. ``metadata`` is checked."""
    return datetime.fromisoformat(metadata[STARTED_KEY.encode()].decode())


def _are_exclusions(text: str) -> bool:
    return all(
        -1 <= each["broker"] < 2**31
        and isinstance(each["reason"], str)
        and all(type(each[name]) is int for name in ("broker", "times"))
        and 0 <= each["times"] < 2**53
        for each in json.loads(text)
    )


_CHECKS: dict[str, Callable[[str], bool]] = {
    STARTED_KEY: lambda text: datetime.fromisoformat(text).tzinfo is not None,
    SAMPLE_KEY: lambda text: 1e-9 <= float(text) <= 1,
    EXCLUSIONS_KEY: _are_exclusions,
}
