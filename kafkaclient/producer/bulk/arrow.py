"""Reads Arrow columns as records: checks their types, and gives access to their buffers.

A stream is read chunk by chunk, and each chunk in pieces. ``arrow_rows.pyx:Columns`` reads plain
layouts in place; pyarrow casts the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError, InvalidRecordError, KafkaError
from kafkaclient.producer.bulk.arrow_rows import Blobs, Columns, HeaderLists, Numbers

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types as kinds
except ImportError as problem:
    raise ConfigError(
        f"send_arrow needs pyarrow, which cannot be imported ({problem}): "
        "pip install 'kafkaclient[arrow]'"
    ) from problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.producer.batches.record import RawRecord
    from kafkaclient.producer.bulk.send_many import BulkSend

_PIECE = 65536  # rows that are cast, and so copied, at a time
_DECODED = 2 * 1024 * 1024  # bytes: the most that a piece's dictionary words take when decoded

_BLOB = (
    "binary, string (also their large and view forms), fixed_size_binary, or a dictionary of these"
)
_WANTED = {
    "key": _BLOB,
    "value": _BLOB,
    "headers": "list<struct<key: string, value: binary>> or map<string, binary>",
    "timestamp": "timestamp, or int64 milliseconds",
    "partition": "an integer",
}


_LAYOUTS = {
    **dict.fromkeys((pa.lib.Type_STRING, pa.lib.Type_BINARY), "offsets32"),
    **dict.fromkeys((pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY), "offsets64"),
    **dict.fromkeys((pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW), "views"),
    pa.lib.Type_FIXED_SIZE_BINARY: "fixed",
}


async def send_columns(bulk: BulkSend, data: object) -> None:
    """Check and append the records of ``send_arrow``; the result is ``bulk.delivery``."""
    reader = opened(data)
    try:
        _check_schema(reader.schema)
        if "partition" in reader.schema.names:
            await bulk.wait_for_partitions()
        number = 0
        while (chunk := _next_chunk(reader, number)) is not None:
            # Two loops: no record of a chunk is sent unless all of them can be.
            for start, rows in _pieces(chunk, number, bulk.shared):
                await bulk.check(rows, number + start)
            for _, rows in _pieces(chunk, number, bulk.shared):
                await bulk.append_rows(rows)
            await bulk.finish()  # no further chunk is read while rows of this one wait
            number += len(chunk)
    except KafkaError as error:
        raise bulk.broken_off(error) from error


def opened(data: object) -> Any:
    """The reader of Arrow data; raises InvalidRecordError for anything else."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except Exception as error:
        raise InvalidRecordError(f"the Arrow data could not be read: {error!r}") from error
    raise InvalidRecordError(
        "data must be an Arrow table, record batch or stream, or an object with "
        f"__arrow_c_stream__ or __arrow_c_array__, not {type(data).__name__}"
    )


def _next_chunk(reader: Any, number: int) -> Any:
    """The next record batch, after Arrow's quick validation; None at the end."""
    try:
        chunk = reader.read_next_batch()
        if len(chunk):  # Arrow refuses empty slices of views
            chunk.validate()
    except StopIteration:
        return None
    except Exception as error:
        raise InvalidRecordError(
            f"the Arrow stream could not be read any further after {number} rows: {error!r}"
        ) from error
    return chunk


def _check_schema(schema: Any) -> None:
    names = schema.names
    unknown = [name for name in names if name not in _WANTED]
    if unknown:
        raise InvalidRecordError(
            f"columns {unknown} are not known; known columns are {', '.join(_WANTED)}: rename or "
            "drop the others"
        )
    if len(set(names)) < len(names):
        raise InvalidRecordError(f"a column name occurs twice: {names}")
    if not {"key", "value"} & set(names):
        raise InvalidRecordError(f"there must be a column key or value; the columns are {names}")
    for field in schema:
        if not (kinds.is_null(field.type) or _CHECKS[field.name](field.type)):
            raise InvalidRecordError(
                f"column {field.name!r} is of type {field.type}; it must be {_WANTED[field.name]}"
            )


def _is_blob(kind: Any) -> bool:
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return _layout_of(kind) is not None


def _is_headers(kind: Any) -> bool:
    if kinds.is_map(kind):
        return _is_text(kind.key_type) and _is_blob(kind.item_type)
    if not (kinds.is_list(kind) or kinds.is_large_list(kind)):
        return False
    entry = kind.value_type
    if not kinds.is_struct(entry) or {field.name for field in entry} != {"key", "value"}:
        return False
    return _is_text(entry.field("key").type) and _is_blob(entry.field("value").type)


def _is_text(kind: Any) -> bool:
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


_CHECKS = {
    "key": _is_blob,
    "value": _is_blob,
    "headers": _is_headers,
    "timestamp": lambda kind: kinds.is_timestamp(kind) or kinds.is_int64(kind),
    "partition": kinds.is_integer,
}


def _layout_of(kind: Any) -> str | None:
    return _LAYOUTS.get(kind.id)


def _pieces(chunk: Any, number: int, shared: RawRecord) -> Iterator[tuple[int, Columns]]:
    """Yields (first row, rows) for each piece of the chunk."""
    timestamp_ms, partition = shared.timestamp_ms, shared.partition
    at_once = _rows_at_once(chunk, number)
    for start in range(0, len(chunk), at_once):
        piece = chunk.slice(start, at_once)
        columns = {name: piece.column(name) for name in piece.schema.names}
        columns = {name: c for name, c in columns.items() if not kinds.is_null(c.type)}
        try:
            key, value = (
                _blobs(columns[name]) if name in columns else None for name in ("key", "value")
            )
            headers = _headers(columns["headers"]) if "headers" in columns else None
            times = _times(columns["timestamp"]) if "timestamp" in columns else None
            numbers = None
            if "partition" in columns:
                numbers = Numbers(columns["partition"].cast(pa.int64()))
        except (pa.ArrowException, IndexError, ValueError) as error:
            first = number + start
            raise InvalidRecordError(
                f"a column cannot be read, in rows {first} to {first + len(piece) - 1}: {error}"
            ) from error
        rows = Columns(len(piece), key, value, headers, times, numbers, timestamp_ms, partition)
        yield start, rows


def _rows_at_once(chunk: Any, number: int) -> int:
    """The number of rows in a piece. It is limited because decoding copies a dictionary's word for
    every row."""
    columns = [chunk.column(n) for n in ("key", "value") if n in chunk.schema.names]
    longest = 1
    for array in columns:
        if kinds.is_dictionary(array.type):
            words = array.dictionary
            try:
                words.validate(full=True)
                longest = max(longest, pc.max(pc.binary_length(_plain(words))).as_py() or 1)
            except (pa.ArrowException, IndexError, ValueError) as error:
                raise InvalidRecordError(
                    f"a column's dictionary cannot be read, from row {number} on: {error}"
                ) from error
    return max(1, min(_PIECE, _DECODED // longest))


def _blobs(array: Any) -> Blobs:
    if kinds.is_dictionary(array.type):
        array = _decoded(array)
    layout = _layout_of(array.type)
    assert layout is not None
    return Blobs(array, layout)


def _decoded(array: Any) -> Any:
    array.validate(full=True)  # decoding does not check the indices
    words = _plain(array.dictionary)
    if words is not array.dictionary:
        array = pa.DictionaryArray.from_arrays(array.indices, words)
    return array.dictionary_decode()


def _plain(words: Any) -> Any:
    """The words without a view layout, which pyarrow cannot decode."""
    return words.cast(pa.large_binary()) if _layout_of(words.type) == "views" else words


def _headers(array: Any) -> HeaderLists:
    offsets = array.offsets
    base = offsets[0].as_py()
    entries = array.values.slice(base, offsets[-1].as_py() - base)
    names, contents = entries.field(0), entries.field(1)
    if entries.type[0].name == "value" and not kinds.is_map(array.type):
        names, contents = contents, names
    names.validate(full=True)  # checks that they are UTF-8
    layout = "offsets64" if kinds.is_large_list(array.type) else "offsets32"
    return HeaderLists(array, layout, base, entries, _blobs(names), _blobs(contents))


def _times(array: Any) -> Numbers:
    kind = array.type
    if kinds.is_timestamp(kind):
        # Seconds that overflow as milliseconds are an error; finer units are truncated.
        milliseconds = pa.timestamp("ms", kind.tz)
        array = array.cast(milliseconds, safe=kind.unit == "s").cast(pa.int64())
    return Numbers(array)
