"""Consumer groups as brokers describe them, and what classic consumers put into a group.

What members tell each other is opaque to brokers; consumers wrap it in the two messages of
``ConsumerProtocolSubscription.json`` and ``ConsumerProtocolAssignment.json``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.transactions import PartitionCodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import Buffer

__all__ = [
    "ConsumerAssignment",
    "DescribeGroupsCall",
    "DescribeGroupsResult",
    "DescribedGroup",
    "DescribedMember",
    "OffsetCommitCall",
    "assignment_in",
    "user_data_in",
]


class DescribedMember(NamedTuple):
    """A member of a group. ``metadata`` is what it told the leader when it joined, ``assignment``
    what it was told; both empty while the group rebalances."""

    member_id: str
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group. ``state`` is Kafka's name (``Stable``, ``Empty``, ``Dead``, ...), ``protocol`` the
    assignor that members have agreed on."""

    group_id: str
    error_code: int
    error_message: str | None
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class DescribeGroupsResult(NamedTuple):
    """One entry per group asked for."""

    groups: tuple[DescribedGroup, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class DescribeGroupsCall(CodecCall[DescribeGroupsResult]):
    """Classic groups with their members. Must go to the groups' coordinator."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 6
    groups: tuple[str, ...]

    def _fields(self, version: int) -> dict[str, Any]:
        return {"groups": list(self.groups), "include_authorized_operations": False}

    def _result(self, message: Any) -> DescribeGroupsResult:
        groups = tuple(
            DescribedGroup(
                group.group_id,
                group.error_code,
                group.error_message or None,
                group.group_state,
                group.protocol_type,
                group.protocol_data,
                tuple(
                    DescribedMember(
                        member.member_id,
                        member.client_id,
                        member.client_host,
                        bytes(member.member_metadata),
                        bytes(member.member_assignment),
                    )
                    for member in group.members
                ),
            )
            for group in message.groups
        )
        return DescribeGroupsResult(groups, message.throttle_time_ms or 0)


@dataclass(frozen=True, slots=True)
class OffsetCommitCall(CodecCall[PartitionCodes]):
    """Set the offsets of a group without members. Must go to its coordinator."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT
    min_version: ClassVar[int] = 2
    max_version: ClassVar[int] = 9
    group_id: str
    offsets: Mapping[TopicPartition, int]

    def _fields(self, version: int) -> dict[str, Any]:
        topics: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for (topic, partition), offset in self.offsets.items():
            topics[topic].append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        return {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": [
                {"name": topic, "partitions": partitions} for topic, partitions in topics.items()
            ],
        }

    def _result(self, message: Any) -> PartitionCodes:
        codes = {
            TopicPartition(topic.name, p.partition_index): p.error_code
            for topic in message.topics
            for p in topic.partitions
        }
        return PartitionCodes(codes, message.throttle_time_ms or 0)


class ConsumerAssignment(NamedTuple):
    """The partitions that a member was given, and what its assignor told it besides."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None


def user_data_in(metadata: Buffer) -> bytes | None:
    """What a consumer's assignor tells its leader. Later versions add fields behind it.

    Raises :class:`~kafkaclient.errors.ProtocolError` when ``metadata`` is no subscription.
    """
    reader = Reader(metadata, flexible=False)
    reader.int16()
    for _ in reader.array(2):
        reader.string()
    return _nullable_bytes(reader)


def assignment_in(assignment: Buffer) -> ConsumerAssignment:
    """Raises :class:`~kafkaclient.errors.ProtocolError` when ``assignment`` is none."""
    reader = Reader(assignment, flexible=False)
    reader.int16()
    partitions = []
    for _ in reader.array(6):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in reader.array(4)]
    return ConsumerAssignment(tuple(partitions), _nullable_bytes(reader))


def _nullable_bytes(reader: Reader) -> bytes | None:
    size = reader.int32()
    if size < 0:
        return None
    start = reader.advance(size)
    return bytes(reader.data[start : reader.position])
