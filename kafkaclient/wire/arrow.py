"""Hands memory to others as Arrow arrays, without a copy and without pyarrow.

The C data and C stream interfaces (arrow.apache.org/docs/format/CDataInterface.html) inside
PyCapsules (the Arrow PyCapsule interface). What is handed out stays alive until the other side
releases it, which it may do on any thread.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_void_p
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["ArrowArray", "ArrowField", "array_capsule", "schema_capsule", "stream_capsule"]

_NULLABLE = 2


class ArrowField(NamedTuple):
    """A column's name and type, in the C data interface's format strings."""

    name: str
    format: str
    nullable: bool = False
    children: tuple[ArrowField, ...] = ()


class ArrowArray(NamedTuple):
    """``length`` values; a buffer that is None is left out, as a bitmap without nulls may be."""

    length: int
    nulls: int
    buffers: tuple[bytearray | None, ...]
    children: tuple[ArrowArray, ...] = ()


class _Schema(Structure):
    _fields_: ClassVar = [
        ("format", c_char_p),
        ("name", c_char_p),
        ("metadata", c_char_p),
        ("flags", c_int64),
        ("n_children", c_int64),
        ("children", POINTER(c_void_p)),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class _Array(Structure):
    _fields_: ClassVar = [
        ("length", c_int64),
        ("null_count", c_int64),
        ("offset", c_int64),
        ("n_buffers", c_int64),
        ("n_children", c_int64),
        ("buffers", POINTER(c_void_p)),
        ("children", POINTER(c_void_p)),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class _Stream(Structure):
    _fields_: ClassVar = [
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


_Released = CFUNCTYPE(None, c_void_p)
_Filled = CFUNCTYPE(c_int, c_void_p, c_void_p)
_Told = CFUNCTYPE(c_void_p, c_void_p)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)
# The capsule as a bare pointer: at the time of its destructor it must not be counted again.
_in_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_in_capsule.restype, _in_capsule.argtypes = c_void_p, (c_void_p, c_char_p)

_keys = count(1)
_alive: dict[int, Any] = {}
"""What others hold, by the number in ``private_data``: all that a structure points to."""
_capsules: dict[int, Structure] = {}
"""The structures in capsules, by their address."""

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


# --- structures ---------------------------------------------------------------------------------


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
            # The bitmap may be left out; what is empty must be somewhere.
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


# --- what the other side calls --------------------------------------------------------------------


def _release(kind: type[_Schema | _Array], address: int) -> None:
    given = kind.from_address(address)
    if given.release:
        *_, children = _alive.pop(given.private_data)
        for child in children:  # one that was moved away is released where it is
            _release(kind, ctypes.addressof(child))
        given.release = None


def _release_schema(address: int) -> None:
    _release(_Schema, address)


def _release_array(address: int) -> None:
    _release(_Array, address)


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


def _get_last_error(_: int) -> None:
    return None


def _end_stream(address: int) -> None:
    stream = _Stream.from_address(address)
    if stream.release:
        _alive.pop(stream.private_data)
        stream.release = None


# --- capsules -----------------------------------------------------------------------------------


def _capsule(content: Structure, name: bytes, destructor: int | None) -> object:
    address = ctypes.addressof(content)
    _capsules[address] = content
    return _new_capsule(address, name, destructor)


def _drop(capsule: int, name: bytes, release: Any) -> None:
    address = _in_capsule(capsule, name)
    release(address)  # nothing if the other side has taken the content
    del _capsules[address]


def _drop_schema(capsule: int) -> None:
    _drop(capsule, b"arrow_schema", _release_schema)


def _drop_array(capsule: int) -> None:
    _drop(capsule, b"arrow_array", _release_array)


def _drop_stream(capsule: int) -> None:
    _drop(capsule, b"arrow_array_stream", _end_stream)


# --- addresses of the above -----------------------------------------------------------------------

_callbacks: list[Any] = []
"""Kept for as long as the process lives."""


def _pointer(kind: Any, function: Any) -> int | None:
    callback = kind(function)
    _callbacks.append(callback)
    return ctypes.cast(callback, c_void_p).value


_RELEASE_SCHEMA = _pointer(_Released, _release_schema)
_RELEASE_ARRAY = _pointer(_Released, _release_array)
_GET_SCHEMA = _pointer(_Filled, _get_schema)
_GET_NEXT = _pointer(_Filled, _get_next)
_GET_LAST_ERROR = _pointer(_Told, _get_last_error)
_END_STREAM = _pointer(_Released, _end_stream)
_DROP_SCHEMA = _pointer(_Released, _drop_schema)
_DROP_ARRAY = _pointer(_Released, _drop_array)
_DROP_STREAM = _pointer(_Released, _drop_stream)
