"""DescribeGroups and OffsetCommit, and the messages that classic consumers exchange in a group.

These messages are opaque to brokers: ``ConsumerProtocolSubscription.json`` and
``ConsumerProtocolAssignment.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall, by_topic, partitions_in
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.transactions import PartitionCodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import Buffer


class DescribedMember(NamedTuple):
    """A member of a group. ``metadata`` is its subscription, ``assignment`` its assignment; both
    are empty while the group rebalances."""

    member_id: str
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes
    group_instance_id: str | None = None
    """Of a static member (KIP-345)."""


class DescribedGroup(NamedTuple):
    """A group. ``state`` is Kafka's name (``Stable``, ``Empty``, ``Dead``, ...), ``protocol`` is
    the name of the members' assignor."""

    group_id: str
    error_code: int
    error_message: str | None
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class DescribeGroupsResult(NamedTuple):
    """One entry per group of the request."""

    groups: tuple[DescribedGroup, ...]
    throttle_ms: int


@dataclass(frozen=True)
class DescribeGroupsCall(
    CodecCall[DescribeGroupsResult], api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6)
):
    """Describes classic groups and their members. Must go to the groups' coordinator."""

    groups: tuple[str, ...]

    def _fields(self) -> dict[str, Any]:
        return {"groups": list(self.groups)}

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
                        member.group_instance_id,
                    )
                    for member in group.members
                ),
            )
            for group in message.groups
        )
        return DescribeGroupsResult(groups, message.throttle_time_ms or 0)


@dataclass(frozen=True)
class OffsetCommitCall(CodecCall[PartitionCodes], api_key=ApiKey.OFFSET_COMMIT, versions=(2, 9)):
    """Sets the offsets of a group that has no members. Must go to its coordinator."""

    group_id: str
    offsets: Mapping[TopicPartition, int]

    def _fields(self) -> dict[str, Any]:
        topics = [
            {"name": topic, "partitions": [self._partition(topic, number) for number in numbers]}
            for topic, numbers in by_topic(self.offsets).items()
        ]
        return {"group_id": self.group_id, "topics": topics}

    def _partition(self, topic: str, number: int) -> dict[str, Any]:
        offset = self.offsets[TopicPartition(topic, number)]
        return {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}

    def _result(self, message: Any) -> PartitionCodes:
        codes = {tp: p.error_code for tp, p in partitions_in(message.topics)}
        return PartitionCodes(codes, message.throttle_time_ms or 0)


class ConsumerAssignment(NamedTuple):
    """The partitions that are assigned to a member, and the user data of its assignor."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None


def user_data_in(metadata: Buffer) -> bytes | None:
    """The user data in a consumer's subscription. Later versions add fields behind it.

    Raises :class:`~kafkaclient.errors.ProtocolError` if ``metadata`` is not a subscription.
    """
    reader = Reader(metadata, flexible=False)
    reader.int16()
    for _ in reader.array(2):
        reader.string()
    return _nullable_bytes(reader)


def assignment_in(assignment: Buffer) -> ConsumerAssignment:
    """The partitions and user data in a consumer's assignment.

    Raises :class:`~kafkaclient.errors.ProtocolError` if ``assignment`` is not an assignment.
    """
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
    return bytes(reader.take(size))
