"""The rows of telemetry: their columns, and rows on their way into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROWS_AT_A_TIME = 128
_WORD = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("client_id", pa.string()),
        ("topic", _WORD),
        *((name, pa.int32()) for name in ("partition", "broker", "records", "bytes", "attempts")),
        *((name, pa.float64()) for name in ("created_s", "bound_s", "sent_s", "acknowledged_s")),
        ("queued_batches", pa.int32()),
        ("queued_bytes", pa.int64()),
        ("in_flight", pa.int32()),
        ("window", pa.int32()),
        ("bound_by", _WORD),
        ("error", pa.string()),
    ]
)
"""The columns of :class:`BatchRow`, in its order."""


class BatchRow(NamedTuple):
    """A batch that has an outcome. Times are in seconds since the producer's start. None: it did
    not happen, or is not known because the batch failed before it had a partition."""

    client_id: str
    topic: str
    partition: int
    """-1: the batch failed before it had a partition."""
    broker: int
    """The leader that the batch was first sent to. -1: the batch was never sent."""
    records: int
    bytes: int
    """Size on the wire; an estimate for a batch that was never sent."""
    attempts: int
    created_s: float
    bound_s: float | None
    """When the batch's partition was decided."""
    sent_s: float | None
    """When the batch was first sent."""
    acknowledged_s: float | None
    """None for a failure, and with acks=0."""
    queued_batches: int | None
    """At the decision: other batches in the queue of the batch."""
    queued_bytes: int | None
    in_flight: int | None
    """At the decision: Produce requests in flight to the partition's leader."""
    window: int | None
    """At the decision: how many requests the leader may have in flight."""
    bound_by: str | None
    """The kind of decision: ``late``, ``rotation``, ``floor`` or ``append``."""
    error: str | None
    """The class name of the failure."""


class Columns:
    """The rows of one file. Arrow converts a few rows at a time: converting a whole file at its end
    would hold the interpreter, and so the event loop, even if another thread did it."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._packed: list[pa.RecordBatch] = []
        self._latest: list[Sequence[Any]] = []

    def __len__(self) -> int:
        return _ROWS_AT_A_TIME * len(self._packed) + len(self._latest)

    def append(self, row: Sequence[Any]) -> None:
        """Raises TypeError, ValueError or OverflowError if recent rows do not fit the schema."""
        self._latest.append(row)
        if len(self._latest) == _ROWS_AT_A_TIME:
            self._pack()

    def table(self) -> pa.Table:
        """All rows. Each string of a dictionary column is kept once. Raises as :meth:`append`."""
        if self._latest:
            self._pack()
        table = pa.Table.from_batches(self._packed, self._schema)
        return table.unify_dictionaries().combine_chunks()

    def _pack(self) -> None:
        columns = zip(self._schema.types, zip(*self._latest, strict=True), strict=True)
        arrays = [pa.array(values, kind) for kind, values in columns]
        self._packed.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._latest = []
