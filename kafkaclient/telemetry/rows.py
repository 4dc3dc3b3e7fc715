"""The rows of telemetry: their columns, and rows on their way into a file or a message."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.hooks import FinishedBatch

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


class Columns:
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
        count = len(errors)
        if not self._acks:
            acknowledged: Sequence[float | None] = (None,) * count
        elif errors.count(None) == count:
            acknowledged, errors = done, (None,) * count
        else:
            outcomes = list(zip(done, errors, strict=True))
            acknowledged = [at if error is None else None for at, error in outcomes]
        names = [None if error is None else type(error).__name__ for error in errors]
        arrays = [pa.repeat(self._client_id, count)]
        columns: list[Sequence[Any]] = [topic, partition, broker, records, nbytes, attempts]
        columns += [created, bound, sent, acknowledged, done, *queue, names]
        for (kind, is_time), values in zip(_TYPES, columns, strict=True):
            array = pa.array(values, kind)
            arrays.append(pc.subtract(array, self._start) if is_time else array)
        self._packed.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        self.rows += count

    def halves(self) -> tuple[Columns, Columns]:
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
