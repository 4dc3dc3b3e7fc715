"""Encodes records into the buffer of a batch: the work that the producer does once per record."""

from kafkaclient.types import Buffer, Headers

__all__ = ["RecordBuffer", "fields_size", "headers_size", "record_size"]

class RecordBuffer:
    """Encoded records, behind 61 bytes for the header of their batch.

    ``capacity`` (bytes, header included) limits the size; memory is allocated as it is needed.
    Raises ValueError for a capacity that is not within 0 and 2**31-1.
    """

    capacity: int
    "The most bytes of the batch before compression, its header included."
    size: int
    "Bytes used before compression: the header and the encoded records."
    count: int
    "The number of records."
    base_timestamp: int
    "The first record's timestamp in milliseconds; -1 without records."
    max_timestamp: int
    "The latest timestamp of a record in milliseconds; -1 without records."

    def __init__(self, capacity: int) -> None: ...
    def reserve(self, capacity: int) -> None:
        """Raise the capacity to ``capacity`` bytes; a smaller one changes nothing."""

    def append(
        self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
    ) -> int:
        """Encode one record; returns its size in bytes, or 0 if it does not fit.

        Raises InvalidRecordError for a timestamp that is not within 0 and 2**63-1, TypeError for
        arguments of other types, RuntimeError once the buffer is frozen.
        """

    def put(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        _headers_size: int,
    ) -> int:
        """:meth:`append` for a record with a valid timestamp and plain headers, whose encoded size
        is known (:func:`headers_size`)."""

    def freeze(self) -> bytearray:
        """Hand over the bytes; the caller writes the header into the first 61. Call it once."""

def record_size(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> int:
    """The exact encoded size in bytes of a record with these deltas."""

def fields_size(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """The encoded size in bytes of a record's key, value and headers, lengths included."""

def headers_size(headers: object) -> int:
    """The encoded size of a record's headers in bytes, their count included; -1 if they are not
    plain: a list or tuple of tuples with a str that is valid Unicode, and bytes or None."""
