"""Columns of records in memory, and their export as Arrow arrays without a copy.

It implements the C data and C stream interfaces (arrow.apache.org/docs/format/CDataInterface.html)
in PyCapsules (the Arrow PyCapsule interface). Exported memory stays alive until the consumer
releases it, which it may do on any thread.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_void_p
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# --- Columns of records as Arrow's buffers --------------------------------------------------------


class BlobColumn(NamedTuple):
    """Byte strings: ``offsets`` (int32, one more than rows) into ``data``. The bits of ``valid``
    are 1 for values that are not null; ``valid`` is None without nulls."""

    offsets: bytearray
    data: bytearray
    valid: bytearray | None
    nulls: int


class HeaderColumn(NamedTuple):
    """Lists of headers: ``offsets`` (int32, one more than rows) into ``names`` and ``contents``,
    which have ``entries`` values each."""

    offsets: bytearray
    entries: int
    names: BlobColumn
    contents: BlobColumn


class ColumnBuffers(NamedTuple):
    """``rows`` records: ``offsets`` and ``timestamps`` (ms) int64, ``timestamp_types`` int32."""

    rows: int
    offsets: bytearray
    timestamps: bytearray
    timestamp_types: bytearray
    key: BlobColumn
    value: BlobColumn
    headers: HeaderColumn | None


# --- Exports memory as Arrow arrays, without a copy and without pyarrow ---------------------------

_NULLABLE = 2


class ArrowField(NamedTuple):
    """A column's name and type, in the C data interface's format strings."""

    name: str
    format: str
    nullable: bool = False
    children: tuple[ArrowField, ...] = ()


class ArrowArray(NamedTuple):
    """``length`` values; a bitmap without nulls may be None."""

    length: int
    nulls: int
    buffers: tuple[bytearray | None, ...]
    children: tuple[ArrowArray, ...] = ()


def _numbers(*names: str) -> list[tuple[str, Any]]:
    return [(name, c_int64) for name in names]


def _pointers(*names: str) -> list[tuple[str, Any]]:
    return [(name, c_void_p) for name in names]


_CHILDREN = ("children", POINTER(c_void_p))


class _Schema(Structure):
    _fields_: ClassVar = [
        *((name, c_char_p) for name in ("format", "name", "metadata")),
        *_numbers("flags", "n_children"),
        _CHILDREN,
        *_pointers("dictionary", "release", "private_data"),
    ]


class _Array(Structure):
    _fields_: ClassVar = [
        *_numbers("length", "null_count", "offset", "n_buffers", "n_children"),
        ("buffers", POINTER(c_void_p)),
        _CHILDREN,
        *_pointers("dictionary", "release", "private_data"),
    ]


class _Stream(Structure):
    _fields_: ClassVar = _pointers(
        "get_schema", "get_next", "get_last_error", "release", "private_data"
    )


_Released = CFUNCTYPE(None, c_void_p)
_Filled = CFUNCTYPE(c_int, c_void_p, c_void_p)
_Message = CFUNCTYPE(c_void_p, c_void_p)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)
# The capsule is a bare pointer: its destructor must not change its reference count.
_in_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_in_capsule.restype, _in_capsule.argtypes = c_void_p, (c_void_p, c_char_p)

_keys = count(1)
_alive: dict[int, Any] = {}
"""``private_data`` of an exported structure -> the objects that it points to."""
_capsules: dict[int, Structure] = {}
"""Address -> the structure in a capsule."""

_nothing = (c_char * 8)()
_Pointers: dict[int, Any] = {n: c_void_p * n for n in range(1, 17)}


def schema_capsule(field: ArrowField) -> object:
    """A PyCapsule ``arrow_schema``."""
    return _capsule(_schema(field), b"arrow_schema", _DROP_SCHEMA)


def array_capsule(array: ArrowArray) -> object:
    """A PyCapsule ``arrow_array``."""
    return _capsule(_array(array), b"arrow_array", _DROP_ARRAY)


def stream_capsule(field: ArrowField, arrays: Iterable[ArrowArray]) -> object:
    """A PyCapsule ``arrow_array_stream`` of arrays of one type."""
    stream = _Stream(_GET_SCHEMA, _GET_NEXT, _GET_LAST_ERROR, _END_STREAM)
    stream.private_data = _keep((field, iter(arrays)))
    return _capsule(stream, b"arrow_array_stream", _DROP_STREAM)


def _schema(field: ArrowField) -> _Schema:
    children = [_schema(child) for child in field.children]
    schema = _Schema(field.format.encode(), field.name.encode())
    schema.flags = _NULLABLE if field.nullable else 0
    schema.release = _RELEASE_SCHEMA
    _adopt(schema, children)
    schema.private_data = _keep((schema._objects, children))
    return schema


def _array(array: ArrowArray) -> _Array:
    children = [_array(child) for child in array.children]
    holds = [c_char.from_buffer(data) if data else None for data in array.buffers]
    pointers = _Pointers[len(holds)](
        *(
            ctypes.addressof(hold) if hold is not None
            # The bitmap may be null; an empty buffer must have an address.
            else None if data is None else ctypes.addressof(_nothing)
            for hold, data in zip(holds, array.buffers, strict=True)
        )
    )  # fmt: skip
    made = _Array(array.length, array.nulls, 0, len(holds))
    made.buffers = ctypes.cast(pointers, POINTER(c_void_p))
    made.release = _RELEASE_ARRAY
    _adopt(made, children)
    made.private_data = _keep((holds, pointers, made._objects, children))
    return made


def _adopt(parent: _Schema | _Array, children: list[Any]) -> None:
    if children:
        pointers = _Pointers[len(children)](*map(ctypes.addressof, children))
        parent.n_children = len(children)
        parent.children = ctypes.cast(pointers, POINTER(c_void_p))


def _keep(what: object) -> int:
    key = next(_keys)
    _alive[key] = what
    return key


def _release(kind: type[_Schema | _Array], address: int) -> None:
    given = kind.from_address(address)
    if given.release:
        *_, children = _alive.pop(given.private_data)
        for child in children:  # the consumer releases a child that it has moved
            _release(kind, ctypes.addressof(child))
        given.release = None


def _get_schema(stream: int, out: int) -> int:
    field, _ = _alive[_Stream.from_address(stream).private_data]
    return _move(_schema(field), out)


def _get_next(stream: int, out: int) -> int:
    arrays: Iterator[ArrowArray]
    _, arrays = _alive[_Stream.from_address(stream).private_data]
    array = next(arrays, None)
    return _move(_Array() if array is None else _array(array), out)


def _move(given: Structure, out: int) -> int:
    ctypes.memmove(out, ctypes.addressof(given), ctypes.sizeof(given))
    return 0


def _end_stream(address: int) -> None:
    stream = _Stream.from_address(address)
    if stream.release:
        _alive.pop(stream.private_data)
        stream.release = None


def _capsule(content: Structure, name: bytes, destructor: int | None) -> object:
    address = ctypes.addressof(content)
    _capsules[address] = content
    return _new_capsule(address, name, destructor)


def _drop(name: bytes, release: Any, capsule: int) -> None:
    address = _in_capsule(capsule, name)
    release(address)  # does nothing if the consumer has moved the content
    del _capsules[address]


_callbacks: list[Any] = []
"""Kept until the process ends."""


def _address(kind: Any, function: Any) -> int | None:
    callback = kind(function)
    _callbacks.append(callback)
    return ctypes.cast(callback, c_void_p).value


_release_schema = partial(_release, _Schema)
_release_array = partial(_release, _Array)
_RELEASE_SCHEMA = _address(_Released, _release_schema)
_RELEASE_ARRAY = _address(_Released, _release_array)
_GET_SCHEMA = _address(_Filled, _get_schema)
_GET_NEXT = _address(_Filled, _get_next)
_GET_LAST_ERROR = _address(_Message, lambda _: None)
_END_STREAM = _address(_Released, _end_stream)
_DROP_SCHEMA = _address(_Released, partial(_drop, b"arrow_schema", _release_schema))
_DROP_ARRAY = _address(_Released, partial(_drop, b"arrow_array", _release_array))
_DROP_STREAM = _address(_Released, partial(_drop, b"arrow_array_stream", _end_stream))
