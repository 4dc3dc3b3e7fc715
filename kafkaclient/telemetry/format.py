"""The format of telemetry: its rows and columns, the metadata of files, and what is checked.

Both forms have the columns of :data:`~kafkaclient.telemetry.format.SCHEMA` and the same metadata.
"""

from __future__ import annotations

import json
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkaclient.hooks import FinishedBatch


# --- The rows of telemetry: their columns ---------------------------------------------------------

ROWS_AT_A_TIME = 256
"""How many rows are converted together, on the event loop: 0.2 ms."""

_WORD = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("client_id", pa.string()),
        ("topic", _WORD),
        *((name, pa.int32()) for name in ("partition", "broker", "records", "bytes", "attempts")),
        *((name, pa.float64()) for name in ("created_s", "bound_s", "sent_s", "acknowledged_s")),
        ("done_s", pa.float64()),
        ("queued_batches", pa.int32()),
        ("queued_bytes", pa.int64()),
        ("in_flight", pa.int32()),
        ("window", pa.int32()),
        ("bound_by", _WORD),
        ("error", pa.string()),
    ]
)
"""The columns of a batch; docs/reference/telemetry.md describes them."""

_TYPES = [(kind, kind == pa.float64()) for kind in SCHEMA.types[1:]]
"""Of all columns but the client id; whether the column is a time."""


class BatchColumns:
    """Rows of one producer. ``start``: the producer's clock at its start. ``acks`` False: no batch
    is acknowledged.

    Arrow converts a few rows at a time: converting a whole file at its end would hold the
    interpreter, and so the event loop, even if another thread did it.
    """

    def __init__(self, client_id: str, start: float, *, acks: bool) -> None:
        self._client_id = pa.scalar(client_id)
        self._start = pa.scalar(start)
        self._acks = acks
        self._packed: list[pa.RecordBatch] = []
        self.rows: int = 0

    def append(self, batches: Sequence[FinishedBatch]) -> None:
        """Raises TypeError, ValueError or OverflowError if a batch does not fit the schema. Then
        none is appended."""
        topic, partition, broker, records, nbytes, attempts, _, *later = zip(*batches, strict=True)
        created, bound, sent, done, *queue, errors = later
        outcomes = zip(done, errors, strict=True)
        acknowledged = [at if error is None and self._acks else None for at, error in outcomes]
        names = [None if error is None else type(error).__name__ for error in errors]
        count = len(batches)
        arrays = [pa.repeat(self._client_id, count)]
        columns: list[Sequence[Any]] = [topic, partition, broker, records, nbytes, attempts]
        columns += [created, bound, sent, acknowledged, done, *queue, names]
        for (kind, is_time), values in zip(_TYPES, columns, strict=True):
            array = pa.array(values, kind)
            arrays.append(pc.subtract(array, self._start) if is_time else array)
        self._packed.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        self.rows += count

    def halves(self) -> tuple[BatchColumns, BatchColumns]:
        """The rows in two objects, without copying them."""
        table, middle = pa.Table.from_batches(self._packed, SCHEMA), self.rows // 2
        first, second = copy(self), copy(self)
        first._packed, first.rows = table.slice(0, middle).to_batches(), middle
        second._packed, second.rows = table.slice(middle).to_batches(), self.rows - middle
        return first, second

    def table(self, metadata: Mapping[str, str]) -> pa.Table:
        """All rows, with the metadata. Each string of a dictionary column is kept once."""
        table = pa.Table.from_batches(self._packed, SCHEMA)
        table = table.unify_dictionaries().combine_chunks()
        return table.replace_schema_metadata(dict(metadata))


# --- The two forms of telemetry, a Parquet file and a Kafka message -------------------------------

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
