"""The leader's assignment for a member: ``AssignmentInfo.java``, versions 7 to 11."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from kafkaclient.errors import ProtocolError, TaskAssignmentError
from kafkaclient.streams.data import INT64, read_task, read_utf, task_bytes, utf
from kafkaclient.streams.versions import LATEST_SUPPORTED_VERSION
from kafkaclient.types import TopicPartition
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.writer import INT32

if TYPE_CHECKING:
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.types import Buffer

__all__ = ["NO_REBALANCE", "AssignmentInfo", "HostInfo", "align", "tasks_by_partition"]

NO_REBALANCE = 2**63 - 1  # as next_rebalance_ms: no rebalance is planned; 0 means at once

_EARLIEST_VERSION = 7  # the first with the time of the next rebalance, which KIP-441 needs

Partitions: TypeAlias = Set[TopicPartition]


class HostInfo(NamedTuple):
    """Address at which a client answers queries about its state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInfo:
    """A member's tasks, in addition to the partitions that its consumer is assigned."""

    version: int = LATEST_SUPPORTED_VERSION
    commonly_supported_version: int = LATEST_SUPPORTED_VERSION
    """The latest version that all members support."""
    active_tasks: tuple[TaskId, ...] = ()
    """The task of each assigned partition, in the order of :func:`align`."""
    standby_tasks: Mapping[TaskId, Partitions] = field(default_factory=dict)
    partitions_by_host: Mapping[HostInfo, Partitions] = field(default_factory=dict)
    standby_partitions_by_host: Mapping[HostInfo, Partitions] = field(default_factory=dict)
    error_code: int = 0
    """A code of :class:`~kafkaclient.streams.versions.AssignorError`."""
    next_rebalance_ms: int = NO_REBALANCE
    """When this member should rejoin, in ms since 1970 by the leader's clock."""

    def encode(self) -> bytes:
        """The wire format. Raises ValueError for an unsupported version."""
        if not _EARLIEST_VERSION <= self.version <= LATEST_SUPPORTED_VERSION:
            raise ValueError(
                f"version {self.version}; {_EARLIEST_VERSION} to {LATEST_SUPPORTED_VERSION} "
                "can be written"
            )
        out = bytearray(INT32.pack(self.version))
        out += INT32.pack(self.commonly_supported_version)
        out += INT32.pack(len(self.active_tasks))
        for task in self.active_tasks:
            out += task_bytes(task, self.version)
        out += INT32.pack(len(self.standby_tasks))
        for task, partitions in sorted(self.standby_tasks.items(), key=lambda item: item[0]):
            out += task_bytes(task, self.version) + INT32.pack(len(partitions))
            for topic, partition in sorted(partitions):
                out += utf(topic) + INT32.pack(partition)
        by_host = (self.partitions_by_host, self.standby_partitions_by_host)
        topics = sorted({p.topic for hosts in by_host for found in hosts.values() for p in found})
        out += INT32.pack(len(topics))
        for index, topic in enumerate(topics):
            out += INT32.pack(index) + utf(topic)
        indices = {topic: INT32.pack(index) for index, topic in enumerate(topics)}
        for hosts in by_host:
            out += _host_bytes(hosts, indices)
        return bytes(out) + INT32.pack(self.error_code) + INT64.pack(self.next_rebalance_ms)

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Decode a member's assignment. Trailing bytes are ignored, as in Java.

        Raises :class:`~kafkaclient.errors.TaskAssignmentError` for an unsupported version, and
        :class:`~kafkaclient.errors.ProtocolError` for malformed bytes.
        """
        reader = Reader(data, flexible=False)
        version = reader.int32()
        if not _EARLIEST_VERSION <= version <= LATEST_SUPPORTED_VERSION:
            raise TaskAssignmentError(
                f"the leader's assignment has version {version}; this client reads "
                f"{_EARLIEST_VERSION} to {LATEST_SUPPORTED_VERSION}. Run the same version of the "
                "application on all members of the group"
            )
        commonly_supported = reader.int32()
        active = tuple(read_task(reader, version) for _ in reader.array(8))
        standby = {
            read_task(reader, version): frozenset(
                TopicPartition(read_utf(reader), reader.int32()) for _ in reader.array(6)
            )
            for _ in reader.array(12)
        }
        topics = {reader.int32(): read_utf(reader) for _ in reader.array(6)}
        return cls(
            version=version,
            commonly_supported_version=commonly_supported,
            active_tasks=active,
            standby_tasks=standby,
            partitions_by_host=_read_hosts(reader, topics),
            standby_partitions_by_host=_read_hosts(reader, topics),
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


def _host_bytes(hosts: Mapping[HostInfo, Partitions], indices: Mapping[str, bytes]) -> bytes:
    out = bytearray(INT32.pack(len(hosts)))
    for host, partitions in sorted(hosts.items(), key=lambda item: item[0]):
        out += utf(host.host) + INT32.pack(host.port) + INT32.pack(len(partitions))
        for topic, partition in sorted(partitions):
            out += indices[topic] + INT32.pack(partition)
    return bytes(out)


def _read_hosts(reader: Reader, topics: Mapping[int, str]) -> dict[HostInfo, Partitions]:
    return {
        HostInfo(read_utf(reader), reader.int32()): frozenset(
            _read_indexed(reader, topics) for _ in reader.array(8)
        )
        for _ in reader.array(10)
    }


def _read_indexed(reader: Reader, topics: Mapping[int, str]) -> TopicPartition:
    index, partition = reader.int32(), reader.int32()
    if index not in topics:
        raise ProtocolError(f"topic {index} before byte {reader.position} is not in the dictionary")
    return TopicPartition(topics[index], partition)
