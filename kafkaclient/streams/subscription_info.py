"""The subscription that a member sends to the leader when it joins: ``SubscriptionInfoData.json``
of Kafka Streams.

KIP-441 planned to send lags. The released protocol sends offsets, and the leader computes the lags.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkaclient.errors import ProtocolError
from kafkaclient.streams.tasks import LATEST_OFFSET, UNKNOWN_OFFSET_SUM, TaskId
from kafkaclient.streams.versions import LATEST_SUPPORTED_VERSION, UNKNOWN
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.writer import INT32, string

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.types import Buffer

__all__ = ["FutureSubscriptionInfo", "SubscriptionInfo", "decode_subscription"]

_TASK = struct.Struct(">ii")
_PARTITION_SUM = struct.Struct(">iq")
_TASK_SUM = struct.Struct(">iiq")
_INT8 = struct.Struct(">b")

# The version that first has each field.
_END_POINT = 2
_LATEST_SUPPORTED = 3
_OFFSET_SUMS = 7
_UNIQUE_FIELD = 8
_ERROR_CODE = 9
_FLAT_SUMS = 10
_CLIENT_TAGS = 11


class FutureSubscriptionInfo(NamedTuple):
    """A subscription of a newer, undecodable version. The leader answers in the latest version that
    all members support, and the member rejoins with that version (version probing)."""

    version: int
    latest_supported_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionInfo:
    """A member's subscription. ``version`` is the encoding, 1 to 11."""

    version: int = LATEST_SUPPORTED_VERSION
    latest_supported_version: int = LATEST_SUPPORTED_VERSION
    process_id: UUID
    """The client (process) that this member is a consumer of."""
    user_end_point: str | None = None
    """``host:port`` that answers queries about the member's state (``application.server``)."""
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    """Offset sum of each stateful task on the member's disk, see
    :func:`~kafkaclient.streams.assignment.lags.offset_sum`. Versions up to 6 distinguish only
    running tasks (-2) from others (-3)."""
    unique_field: int = 0
    """Counts the member's joins, wrapping from 127 to -128. It makes each subscription differ:
    brokers start no rebalance for an unchanged one."""
    error_code: int = 0
    """4 asks the whole application to shut down."""
    client_tags: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The wire format. Raises ValueError for an unsupported version or named topology."""
        version = self.version
        if not 1 <= version <= LATEST_SUPPORTED_VERSION:
            raise ValueError(f"version {version}; 1 to {LATEST_SUPPORTED_VERSION} can be written")
        out = bytearray(INT32.pack(version))
        if version >= _LATEST_SUPPORTED:
            out += INT32.pack(self.latest_supported_version)
        out += self.process_id.bytes
        if version < _OFFSET_SUMS:
            out += _prev_and_standby_tasks(self._sorted_sums())
        if version >= _END_POINT:
            out += _bytes(self.user_end_point or "")
        if version >= _FLAT_SUMS:
            out += _flat_sums(self._sorted_sums())
        elif version >= _OFFSET_SUMS:
            out += _grouped_sums(self._sorted_sums())
        if version >= _UNIQUE_FIELD:
            out += _INT8.pack(self.unique_field)
        if version >= _ERROR_CODE:
            out += INT32.pack(self.error_code)
        if version >= _CLIENT_TAGS:
            out += _tags(self.client_tags)
        return bytes(out)

    def _sorted_sums(self) -> list[tuple[TaskId, int]]:
        sums = sorted(self.task_offset_sums.items())
        if self.version < _FLAT_SUMS:
            for task, _ in sums:
                if task.topology_name:
                    raise ValueError(
                        f"task {task} is of a named topology: version {self.version} has none"
                    )
        return sums


def decode_subscription(data: Buffer) -> SubscriptionInfo | FutureSubscriptionInfo:
    """Decode a member's user data. Trailing bytes are ignored, as in Java. Raises
    :class:`~kafkaclient.errors.ProtocolError` for malformed bytes."""
    reader = Reader(data, flexible=False)
    version = reader.int32()
    if version < 1:
        raise ProtocolError(f"the subscription has version {version}; versions begin at 1")
    latest = reader.int32() if version >= _LATEST_SUPPORTED else UNKNOWN
    if version > LATEST_SUPPORTED_VERSION:
        return FutureSubscriptionInfo(version, latest)
    process_id = UUID(bytes=_read(reader, 16))
    sums = _read_prev_and_standby_tasks(reader) if version < _OFFSET_SUMS else {}
    end_point = _read_text(reader) if version >= _END_POINT else ""
    if version >= _FLAT_SUMS:
        sums = _read_flat_sums(reader)
    elif version >= _OFFSET_SUMS:
        sums = _read_grouped_sums(reader)
    return SubscriptionInfo(
        version=version,
        latest_supported_version=latest,
        process_id=process_id,
        user_end_point=end_point or None,
        task_offset_sums=sums,
        unique_field=reader.int8() if version >= _UNIQUE_FIELD else 0,
        error_code=reader.int32() if version >= _ERROR_CODE else 0,
        client_tags=_read_tags(reader) if version >= _CLIENT_TAGS else {},
    )


def _prev_and_standby_tasks(sums: Iterable[tuple[TaskId, int]]) -> bytes:
    kinds: tuple[list[TaskId], list[TaskId]] = ([], [])
    for task, offsets in sums:
        kinds[offsets != LATEST_OFFSET].append(task)
    out = bytearray()
    for tasks in kinds:
        out += INT32.pack(len(tasks))
        for task in tasks:
            out += _TASK.pack(task.subtopology, task.partition)
    return bytes(out)


def _read_prev_and_standby_tasks(reader: Reader) -> dict[TaskId, int]:
    sums = {}
    for offsets in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM):
        for _ in reader.array(_TASK.size):
            sums[TaskId(reader.int32(), reader.int32())] = offsets
    return sums


def _grouped_sums(sums: Iterable[tuple[TaskId, int]]) -> bytes:
    groups: defaultdict[int, list[bytes]] = defaultdict(list)
    for task, offsets in sums:
        groups[task.subtopology].append(_PARTITION_SUM.pack(task.partition, offsets))
    out = bytearray(INT32.pack(len(groups)))
    for subtopology, partitions in groups.items():
        out += INT32.pack(subtopology) + INT32.pack(len(partitions)) + b"".join(partitions)
    return bytes(out)


def _read_grouped_sums(reader: Reader) -> dict[TaskId, int]:
    sums = {}
    for _ in reader.array(2 * INT32.size):
        subtopology = reader.int32()
        for _ in reader.array(_PARTITION_SUM.size):
            task = TaskId(subtopology, reader.int32())
            sums[task] = reader.int64()
    return sums


def _flat_sums(sums: list[tuple[TaskId, int]]) -> bytes:
    out = bytearray(INT32.pack(len(sums)))
    for task, offsets in sums:
        out += _TASK_SUM.pack(task.subtopology, task.partition, offsets)
        out += string(task.topology_name or None)
    return bytes(out)


def _read_flat_sums(reader: Reader) -> dict[TaskId, int]:
    sums = {}
    for _ in reader.array(_TASK_SUM.size + 2):
        subtopology, partition, offsets = reader.int32(), reader.int32(), reader.int64()
        sums[TaskId(subtopology, partition, reader.nullable_string() or "")] = offsets
    return sums


def _tags(tags: Mapping[str, str]) -> bytes:
    pairs = [_bytes(key) + _bytes(value) for key, value in tags.items()]
    return INT32.pack(len(pairs)) + b"".join(pairs)


def _read_tags(reader: Reader) -> dict[str, str]:
    return {_read_text(reader): _read_text(reader) for _ in reader.array(2 * INT32.size)}


def _bytes(text: str) -> bytes:
    encoded = text.encode()
    return INT32.pack(len(encoded)) + encoded


def _read_text(reader: Reader) -> str:
    encoded = _read(reader, len(reader.array(1)))  # text is an array of bytes
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"text before byte {reader.position} is not UTF-8: {error}") from error


def _read(reader: Reader, size: int) -> bytes:
    start = reader.advance(size)
    return bytes(reader.data[start : reader.position])
