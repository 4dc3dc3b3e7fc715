"""Java's DataOutput types, in which assignments are encoded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kafkaclient.errors import ProtocolError
from kafkaclient.streams.tasks import TaskId
from kafkaclient.streams.versions import MIN_NAMED_TOPOLOGY_VERSION
from kafkaclient.wire.writer import INT32

if TYPE_CHECKING:
    from kafkaclient.wire.reader import Reader

__all__ = ["INT64", "read_task", "read_utf", "task_bytes", "utf"]

INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")
_TASK = struct.Struct(">ii")


def utf(text: str) -> bytes:
    """Text as ``DataOutput.writeUTF`` encodes it: modified UTF-8, with surrogate pairs and a
    two-byte NUL.

    Raises ValueError for more than 65535 bytes.
    """
    encoded = _surrogates(text).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(encoded) > 0xFFFF:
        raise ValueError(f"the string has {len(encoded)} bytes in UTF-8; at most 65535 fit")
    return _UINT16.pack(len(encoded)) + encoded


def read_utf(reader: Reader) -> str:
    """Decode :func:`utf`. Raises :class:`~kafkaclient.errors.ProtocolError` for other bytes."""
    size = reader.int16() & 0xFFFF
    start = reader.advance(size)
    encoded = bytes(reader.data[start : reader.position]).replace(b"\xc0\x80", b"\0")
    try:
        surrogates = encoded.decode("utf-8", "surrogatepass")
        return surrogates.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeError as error:
        raise ProtocolError(f"string at byte {start} is not modified UTF-8: {error}") from error


def task_bytes(task: TaskId, version: int) -> bytes:
    """An encoded task id. Raises ValueError if the version does not support its named topology."""
    numbers = _TASK.pack(task.subtopology, task.partition)
    if version >= MIN_NAMED_TOPOLOGY_VERSION:
        name = task.topology_name.encode("utf-16-be")
        return numbers + INT32.pack(len(name) // 2) + name
    if task.topology_name:
        raise ValueError(f"task {task} is of a named topology: version {version} has none")
    return numbers


def read_task(reader: Reader, version: int) -> TaskId:
    subtopology, partition = reader.int32(), reader.int32()
    if version < MIN_NAMED_TOPOLOGY_VERSION:
        return TaskId(subtopology, partition)
    size = 2 * len(reader.array(2))
    start = reader.advance(size)
    try:
        name = bytes(reader.data[start : reader.position]).decode("utf-16-be")
    except UnicodeError as error:
        raise ProtocolError(f"topology name at byte {start} is not UTF-16: {error}") from error
    return TaskId(subtopology, partition, name)


def _surrogates(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(map(chr, struct.unpack(f">{len(units) // 2}H", units)))
