"""The arguments of ``SyncProducer.send_many``, copied: the caller may change its own later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.errors import InvalidRecordError
from kafkaclient.producer.batches.record import header_pairs
from kafkaclient.producer.bulk.columns import check_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.types import Headers, HeadersLike


class Columns:
    """Lists with an item for each record, and the ``headers`` that records without headers of their
    own have. Raises InvalidRecordError if an argument is not acceptable."""

    def __init__(
        self,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: HeadersLike,
        timestamps_ms: Iterable[int | None] | None,
        record_headers: Iterable[HeadersLike] | None,
    ) -> None:
        self.values = _list_of("values", values)
        self.keys = _list_or_none("keys", keys)
        self.headers = _pairs("headers", headers)
        self.timestamps_ms = _list_or_none("timestamps_ms", timestamps_ms)
        self.record_headers = _list_or_none("record_headers", record_headers)

    @property
    def are_equally_long(self) -> bool:
        columns = (self.keys, self.timestamps_ms, self.record_headers)
        return all(column is None or len(column) == len(self.values) for column in columns)

    def freeze(self) -> int:
        """Copy buffers that may change; returns the bytes of all keys, values and headers."""
        size = _headers_size(self.headers) + _freeze(self.values)
        if self.keys is not None:
            size += _freeze(self.keys)
        if self.record_headers is not None:
            for n, headers in enumerate(self.record_headers):
                if headers is not None:
                    try:
                        pairs = self.record_headers[n] = _pairs(f"record {n}: headers", headers)
                    except InvalidRecordError as error:
                        error.index = n
                        raise
                    size += _headers_size(pairs)
        return size


def _list_of(name: str, column: Iterable[Any]) -> list[Any]:
    check_column(name, column)
    return list(column)


def _list_or_none(name: str, column: Iterable[Any] | None) -> list[Any] | None:
    return None if column is None else _list_of(name, column)


def _pairs(name: str, headers: HeadersLike) -> Headers:
    if not headers:
        return ()
    try:
        return header_pairs(headers)
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(f"{name}: {error}; nothing was sent") from error


def _freeze(column: list[Any]) -> int:
    size = 0
    for n, item in enumerate(column):
        if item.__class__ is not bytes:
            if not isinstance(item, (bytes, bytearray, memoryview)):
                continue  # None, or what the producer refuses
            column[n] = bytes(item)
        size += len(column[n])
    return size


def _headers_size(pairs: Headers) -> int:
    """The bytes of names and values, where they are acceptable."""
    return sum(len(item) for pair in pairs for item in pair if isinstance(item, (str, bytes)))
