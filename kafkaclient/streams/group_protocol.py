"""What members of a group and their leader send each other, in Kafka Streams' formats.

A member joins with a :class:`SubscriptionInfo` (``SubscriptionInfoData.json``). The leader answers
with an :class:`AssignmentInfo` (``AssignmentInfo.java``). Both are written in version 11 only, and
read in older versions, too.

KIP-441 planned to send lags. The released protocol sends offsets, and the leader computes the lags.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias
from uuid import UUID

from kafkaclient.errors import ProtocolError, TaskAssignmentError
from kafkaclient.streams.tasks import LATEST_OFFSET, UNKNOWN_OFFSET_SUM, TaskId
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import INT32, string
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from kafkaclient.types import Buffer

LATEST_SUPPORTED_VERSION = 11  # as in Kafka Streams 3.3 to 4.3
NO_REBALANCE = 2**63 - 1  # as next_rebalance_ms: no rebalance is planned; 0 means at once

_UNKNOWN = -1  # the latest supported version of members that do not send it (versions 1 and 2)
_EARLIEST_ASSIGNMENT = 7  # the first with the time of the next rebalance, which KIP-441 needs
_NAMED_TOPOLOGIES = 10  # the first assignment with names of topologies

# The version of the subscription that first has each field.
_END_POINT = 2
_LATEST_SUPPORTED = 3
_OFFSET_SUMS = 7
_UNIQUE_FIELD = 8
_ERROR_CODE = 9
_FLAT_SUMS = 10
_CLIENT_TAGS = 11

_PORTS = 65536

_INT8 = struct.Struct(">b")
_INT64 = struct.Struct(">q")
_TASK = _PAIR = struct.Struct(">ii")
_TASK_SUM = struct.Struct(">iiq")


class AssignorError(IntEnum):
    """An error that the leader or a member sends to the whole group (``AssignorError.java``)."""

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4


class HostInfo(NamedTuple):
    """Address at which an instance answers queries about its stores (``application.server``)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The address written as ``host:port``; IPv6 addresses are in brackets. Raises ValueError
        for other text."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            host = ""
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < _PORTS):
            raise ValueError(f"{text!r} is no host:port")
        return cls(host, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


Hosts: TypeAlias = "Mapping[HostInfo, Set[TopicPartition]]"
"""Input partitions of the tasks that instances have, by instance."""


class FutureSubscriptionInfo(NamedTuple):
    """A subscription of a newer, undecodable version. The leader answers in the latest version that
    all members support, and the member rejoins with that version (version probing)."""

    version: int
    latest_supported_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionInfo:
    """A member's subscription."""

    version: int = LATEST_SUPPORTED_VERSION
    """The version that the subscription was read in."""
    latest_supported_version: int = LATEST_SUPPORTED_VERSION
    process_id: UUID
    """The client (process) that this member is a consumer of."""
    user_end_point: str | None = None
    """``host:port`` that answers queries about the member's state (``application.server``)."""
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    """Offset of each stateful task on the member's disk; of a task with several stores, the sum of
    their offsets. Versions up to 6 distinguish only running tasks (-2) from others (-3)."""
    unique_field: int = 0
    """Counts the member's joins, wrapping from 127 to -128. It makes each subscription differ:
    brokers start no rebalance for an unchanged one."""
    error_code: int = 0
    """A code of :class:`AssignorError`. 4 requests the shutdown of the whole application."""
    client_tags: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The wire format of the latest version."""
        out = bytearray(INT32.pack(LATEST_SUPPORTED_VERSION))
        out += INT32.pack(self.latest_supported_version) + self.process_id.bytes
        out += _text(self.user_end_point or "") + INT32.pack(len(self.task_offset_sums))
        for task, offsets in sorted(self.task_offset_sums.items()):
            out += _TASK_SUM.pack(task.subtopology, task.partition, offsets)
            out += string(task.topology_name or None)
        out += _INT8.pack(self.unique_field) + INT32.pack(self.error_code)
        out += INT32.pack(len(self.client_tags))
        for tag in self.client_tags.items():
            out += b"".join(map(_text, tag))
        return bytes(out)


def decode_subscription(data: Buffer) -> SubscriptionInfo | FutureSubscriptionInfo:
    """Decode a member's user data. Trailing bytes are ignored, as in Java. Raises
    :class:`~kafkaclient.errors.ProtocolError` for malformed bytes."""
    reader = FieldReader(data, flexible=False)
    version = reader.int32()
    if version < 1:
        raise ProtocolError(f"the subscription has version {version}; versions begin at 1")
    latest = reader.int32() if version >= _LATEST_SUPPORTED else _UNKNOWN
    if version > LATEST_SUPPORTED_VERSION:
        return FutureSubscriptionInfo(version, latest)
    process_id = UUID(bytes=bytes(reader.take(16)))
    sums = {
        TaskId(reader.int32(), reader.int32()): offsets
        for offsets in ((LATEST_OFFSET, UNKNOWN_OFFSET_SUM) if version < _OFFSET_SUMS else ())
        for _ in reader.array(_TASK.size)
    }
    end_point = _read_text(reader) if version >= _END_POINT else ""
    if version >= _OFFSET_SUMS:
        sums = _read_sums(reader, version)
    return SubscriptionInfo(
        version=version,
        latest_supported_version=latest,
        process_id=process_id,
        user_end_point=end_point or None,
        task_offset_sums=sums,
        unique_field=reader.int8() if version >= _UNIQUE_FIELD else 0,
        error_code=reader.int32() if version >= _ERROR_CODE else 0,
        client_tags={
            _read_text(reader): _read_text(reader)
            for _ in (reader.array(8) if version >= _CLIENT_TAGS else ())
        },
    )


def _read_sums(reader: FieldReader, version: int) -> dict[TaskId, int]:
    sums = {}
    if version >= _FLAT_SUMS:
        for _ in reader.array(_TASK_SUM.size + 2):
            subtopology, partition, offsets = reader.int32(), reader.int32(), reader.int64()
            sums[TaskId(subtopology, partition, reader.nullable_string() or "")] = offsets
        return sums
    for _ in reader.array(8):
        subtopology = reader.int32()
        for _ in reader.array(12):
            task = TaskId(subtopology, reader.int32())
            sums[task] = reader.int64()
    return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInfo:
    """A member's tasks, in addition to the partitions that its consumer is assigned."""

    version: int = LATEST_SUPPORTED_VERSION
    """The version that the assignment was read in."""
    commonly_supported_version: int = LATEST_SUPPORTED_VERSION
    """The latest version that all members support."""
    active_tasks: tuple[TaskId, ...] = ()
    """The task of each assigned partition, in the order of :func:`align`."""
    standby_tasks: Mapping[TaskId, Set[TopicPartition]] = field(default_factory=dict)
    hosts: Hosts = field(default_factory=dict)
    """The input partitions of active tasks, by the address of the instance that has the task. For
    queries; without instances that have no ``application.server``."""
    standby_hosts: Hosts = field(default_factory=dict)
    """The same of standbys and warm-ups."""
    error_code: int = 0
    """A code of :class:`AssignorError`."""
    next_rebalance_ms: int = NO_REBALANCE
    """When this member should rejoin, in ms since 1970 by the leader's clock."""

    def encode(self) -> bytes:
        """The wire format of the latest version."""
        out = bytearray(INT32.pack(LATEST_SUPPORTED_VERSION))
        out += INT32.pack(self.commonly_supported_version) + INT32.pack(len(self.active_tasks))
        out += b"".join(map(_task, self.active_tasks)) + INT32.pack(len(self.standby_tasks))
        for task, partitions in sorted(self.standby_tasks.items(), key=lambda item: item[0]):
            out += _task(task) + INT32.pack(len(partitions))
            for topic, partition in sorted(partitions):
                out += string(topic) + INT32.pack(partition)
        out += _hosts(self.hosts, self.standby_hosts)
        return bytes(out) + INT32.pack(self.error_code) + _INT64.pack(self.next_rebalance_ms)

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Decode a member's assignment. Trailing bytes are ignored, as in Java.

        Raises :class:`~kafkaclient.errors.TaskAssignmentError` for an unsupported version, and
        :class:`~kafkaclient.errors.ProtocolError` for malformed bytes.
        """
        reader = FieldReader(data, flexible=False)
        version = reader.int32()
        if not _EARLIEST_ASSIGNMENT <= version <= LATEST_SUPPORTED_VERSION:
            raise TaskAssignmentError(
                f"the leader's assignment has version {version}; this client reads "
                f"{_EARLIEST_ASSIGNMENT} to {LATEST_SUPPORTED_VERSION}. Run the same version of "
                "the application on all members of the group"
            )
        commonly_supported = reader.int32()
        active = tuple(_read_task(reader, version) for _ in reader.array(_TASK.size))
        standby = {
            _read_task(reader, version): frozenset(
                TopicPartition(reader.string(), reader.int32()) for _ in reader.array(6)
            )
            for _ in reader.array(12)
        }
        topics = {reader.int32(): reader.string() for _ in reader.array(6)}
        hosts, standby_hosts = _read_hosts(reader, topics), _read_hosts(reader, topics)
        return cls(
            version=version,
            commonly_supported_version=commonly_supported,
            active_tasks=active,
            standby_tasks=standby,
            hosts=hosts,
            standby_hosts=standby_hosts,
            error_code=reader.int32(),
            next_rebalance_ms=reader.int64(),
        )


def align(
    partitions_of: Mapping[TaskId, Iterable[TopicPartition]],
) -> tuple[list[TopicPartition], tuple[TaskId, ...]]:
    """A consumer's active tasks as the leader sends them: sorted partitions, and each one's
    task."""
    pairs = sorted((p, task) for task, partitions in partitions_of.items() for p in partitions)
    return [partition for partition, _ in pairs], tuple(task for _, task in pairs)


def tasks_by_partition(
    active_tasks: Iterable[TaskId], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, TaskId]:
    """The task of each assigned partition: the inverse of :func:`align`.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` if the numbers of tasks and partitions
    differ.
    """
    assigned, tasks = sorted(partitions), tuple(active_tasks)
    if len(assigned) != len(tasks):
        raise TaskAssignmentError(
            f"the leader assigned {len(assigned)} partitions with {len(tasks)} tasks; each "
            "partition needs one task"
        )
    return dict(zip(assigned, tasks, strict=True))


def _hosts(*by_host: Hosts) -> bytes:
    """The topic names, and then the partitions, which have indexes in place of the names."""
    topics = sorted({p.topic for hosts in by_host for found in hosts.values() for p in found})
    indexes = {topic: index for index, topic in enumerate(topics)}
    out = bytearray(INT32.pack(len(topics)))
    for topic, index in indexes.items():
        out += INT32.pack(index) + string(topic)
    for hosts in by_host:
        out += INT32.pack(len(hosts))
        for (host, port), partitions in sorted(hosts.items()):
            out += string(host) + INT32.pack(port) + INT32.pack(len(partitions))
            for topic, number in sorted(partitions):
                out += _PAIR.pack(indexes[topic], number)
    return bytes(out)


def _read_hosts(
    reader: FieldReader, topics: Mapping[int, str]
) -> dict[HostInfo, frozenset[TopicPartition]]:
    found = {}
    for _ in reader.array(10):
        host = HostInfo(reader.string(), reader.int32())
        pairs = [(reader.int32(), reader.int32()) for _ in reader.array(_PAIR.size)]
        if unknown := {index for index, _ in pairs} - topics.keys():
            raise ProtocolError(f"the assignment names no topic with the index {min(unknown)}")
        found[host] = frozenset(TopicPartition(topics[index], number) for index, number in pairs)
    return found


def _task(task: TaskId) -> bytes:
    name = task.topology_name.encode("utf-16-be")
    return _TASK.pack(task.subtopology, task.partition) + INT32.pack(len(name) // 2) + name


def _read_task(reader: FieldReader, version: int) -> TaskId:
    subtopology, partition = reader.int32(), reader.int32()
    if version < _NAMED_TOPOLOGIES:
        return TaskId(subtopology, partition)
    name = _read_text(reader, "utf-16-be", 2)
    return TaskId(subtopology, partition, name)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return INT32.pack(len(encoded)) + encoded


def _read_text(reader: FieldReader, encoding: str = "utf-8", unit: int = 1) -> str:
    """Text behind its length in units of ``unit`` bytes."""
    encoded = bytes(reader.take(unit * len(reader.array(unit))))
    try:
        return encoded.decode(encoding)
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"text before byte {reader.position} is not {encoding.upper()}: {error}"
        ) from error
