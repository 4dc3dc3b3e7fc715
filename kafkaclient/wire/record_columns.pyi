"""Decodes the records of batches into columns."""

from kafkaclient.types import Buffer
from kafkaclient.wire.arrow import ColumnBuffers

__all__ = ["RecordColumns"]

class RecordColumns:
    """Columns of records, to which batches are added.

    ``headers``: whether there is a column of headers. ``size_hint``: about how many bytes of
    records will be added.
    """

    def __init__(self, headers: bool = False, size_hint: int = 0) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """The approximate size of the encoded records; an empty record counts as 7 bytes."""

    def append(
        self,
        records: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        start: int,
        end: int,
    ) -> None:
        """Add the records of a batch that are at the offsets from ``start`` to ``end``, excluded.

        ``records`` has the ``count`` records of the batch, decompressed. ``append_time`` is the
        timestamp of all records if the broker set it (LogAppendTime), otherwise -1.

        Raises :class:`~kafkaclient.errors.ProtocolError` for bytes that are not such records; then
        no record is added. Raises ValueError if the columns would exceed 2**31-1 bytes.
        """

    def take(self) -> ColumnBuffers:
        """The columns; no batch can be added afterwards."""
