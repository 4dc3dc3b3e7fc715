"""The calls of members of groups, and those that administer groups.

All of them must go to the group's coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import (
    INT32,
    NO_TAGS,
    ApiKey,
    Call,
    by_topic,
    compact_count,
    compact_string,
    framed,
    malformed,
    request,
)
from kafkaclient.wire.codec import CodecCall, partitions_in
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.types import Buffer, ConsumerGroupMetadata, TopicPartition
    from kafkaclient.wire.groups import DescribedMember


# --- The calls of a member of a classic group: JoinGroup, SyncGroup, Heartbeat --------------------

_PROTOCOL_TYPE = "consumer"
_MAX_REASON = 255  # characters; brokers refuse longer ones (KIP-800)


class JoinedGroup(NamedTuple):
    """The answer to JoinGroup. With MEMBER_ID_REQUIRED (79) only ``member_id`` counts (KIP-394)."""

    error_code: int
    generation_id: int
    protocol: str
    """The name of the assignor that the group has agreed on."""
    leader: str
    member_id: str
    members: Mapping[str, bytes]
    """For the leader: member id -> metadata, in the order in which assignors serve the members:
    static members by their instance id, then the others by their id (Java: ``MemberInfo``). Empty
    for the others."""
    skip_assignment: bool
    """For a static leader that came back: the group keeps its assignment (KIP-814)."""
    throttle_ms: int = 0


class SyncedGroup(NamedTuple):
    """The answer to SyncGroup."""

    error_code: int
    assignment: bytes
    throttle_ms: int = 0


class GroupAnswer(NamedTuple):
    """The answer to Heartbeat and LeaveGroup."""

    error_code: int
    throttle_ms: int = 0


@dataclass(frozen=True)
class JoinGroupCall(CodecCall[JoinedGroup], api_key=ApiKey.JOIN_GROUP, versions=(4, 9)):
    """Joins the group, or joins it again. The coordinator answers when all members have joined, at
    the latest after ``rebalance_timeout_ms``."""

    group_id: str
    member_id: str
    """Empty for a new member."""
    group_instance_id: str | None
    """Of a static member (KIP-345)."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    """Assignor -> metadata, the preferred assignor first."""
    reason: str = ""

    def _fields(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.group_instance_id,
            "protocol_type": _PROTOCOL_TYPE,
            "protocols": [
                {"name": name, "metadata": data} for name, data in self.protocols.items()
            ],
            "reason": self.reason[:_MAX_REASON],
        }

    def _result(self, message: Any) -> JoinedGroup:
        members = sorted(
            message.members,
            key=lambda each: (
                each.group_instance_id is None,
                each.group_instance_id or each.member_id,
            ),
        )
        return JoinedGroup(
            message.error_code,
            message.generation_id,
            message.protocol_name or "",
            message.leader,
            message.member_id,
            {each.member_id: bytes(each.metadata) for each in members},
            bool(message.skip_assignment),
            message.throttle_time_ms or 0,
        )


@dataclass(frozen=True)
class SyncGroupCall(CodecCall[SyncedGroup], api_key=ApiKey.SYNC_GROUP, versions=(2, 5)):
    """Asks for the member's assignment. The leader brings the assignments of all members; the
    coordinator answers when it has them."""

    member: ConsumerGroupMetadata
    protocol: str
    assignments: Mapping[str, bytes]
    """Member id -> assignment. Empty for all but the leader."""

    def _fields(self) -> dict[str, Any]:
        return {
            **_identity(self.member),
            "protocol_type": _PROTOCOL_TYPE,
            "protocol_name": self.protocol,
            "assignments": [
                {"member_id": member, "assignment": data}
                for member, data in self.assignments.items()
            ],
        }

    def _result(self, message: Any) -> SyncedGroup:
        return SyncedGroup(
            message.error_code, bytes(message.assignment), message.throttle_time_ms or 0
        )


@dataclass(frozen=True)
class HeartbeatCall(CodecCall[GroupAnswer], api_key=ApiKey.HEARTBEAT, versions=(2, 4)):
    """Keeps the member in the group. REBALANCE_IN_PROGRESS (27) asks it to join again."""

    member: ConsumerGroupMetadata

    def _fields(self) -> dict[str, Any]:
        return _identity(self.member)

    def _result(self, message: Any) -> GroupAnswer:
        return GroupAnswer(message.error_code, message.throttle_time_ms or 0)


@dataclass(frozen=True)
class LeaveGroupCall(CodecCall[GroupAnswer], api_key=ApiKey.LEAVE_GROUP, versions=(2, 5)):
    """Removes the member from the group at once, so that the others get its partitions."""

    group_id: str
    member_id: str
    reason: str = ""

    def _fields(self) -> dict[str, Any]:
        member = {"member_id": self.member_id, "reason": self.reason[:_MAX_REASON]}
        # Version 3 is the first with several members (KIP-345).
        return {"group_id": self.group_id, "member_id": self.member_id, "members": [member]}

    def _result(self, message: Any) -> GroupAnswer:
        codes = (message.error_code, *(each.error_code for each in message.members or ()))
        return GroupAnswer(next(filter(None, codes), 0), message.throttle_time_ms or 0)


def _identity(member: ConsumerGroupMetadata) -> dict[str, Any]:
    """The fields that name a member in a generation."""
    return {
        "group_id": member.group_id,
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
    }


# --- The call of a member of a KIP-848 group: ConsumerGroupHeartbeat ------------------------------
# By hand: kafka-python has no schema. All versions are flexible (KIP-482). Version 1 added regular
# expressions, and members choose their own ids.

JOIN_EPOCH = 0
"""The member epoch of a member that joins."""
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""Of a static member that leaves and may return."""

_FIRST_WITH_REGEX = 1
_MIN_TOPIC = 18  # bytes


class HeartbeatAnswer(NamedTuple):
    """``assignment``: topic id -> partitions; None if the coordinator sends none this time."""

    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Mapping[UUID, Sequence[int]] | None
    throttle_ms: int = 0


@dataclass(frozen=True)
class ConsumerGroupHeartbeatCall(
    Call[HeartbeatAnswer], api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1)
):
    """Joins the group (epoch 0), stays in it, or leaves it. It always has all fields, so each
    answer has the whole assignment, and a lost answer needs no treatment of its own. Must go to the
    group's coordinator."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    assignor: str | None
    """The coordinator's assignor; None: its default."""
    owned: Mapping[UUID, Sequence[int]]
    """What the member has, also what it is giving up."""
    regex: str | None = None

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        out = request(self.api_key, version, correlation_id, client_id, flexible=True)
        out += compact_string(self.group_id) + compact_string(self.member_id)
        out += INT32.pack(self.member_epoch) + compact_string(self.instance_id)
        out += compact_string(self.rack) + INT32.pack(self.rebalance_timeout_ms)
        out += compact_count(len(self.topics)) + b"".join(map(compact_string, self.topics))
        if version >= _FIRST_WITH_REGEX:
            out += compact_string(self.regex)
        out += compact_string(self.assignor) + compact_count(len(self.owned))
        for topic_id, numbers in self.owned.items():
            out += topic_id.bytes + compact_count(len(numbers))
            out += b"".join(map(INT32.pack, numbers)) + NO_TAGS
        return framed(out + NO_TAGS)

    def decode(self, version: int, payload: Buffer) -> HeartbeatAnswer:
        reader = FieldReader(payload, flexible=True)
        try:
            reader.tagged_fields()  # the header's
            throttle_ms, code = reader.int32(), reader.int16()
            message, member_id = reader.nullable_string(), reader.nullable_string()
            epoch, interval_ms = reader.int32(), reader.int32()
            assignment = _assignment(reader) if reader.int8() >= 0 else None
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error
        return HeartbeatAnswer(
            code, message, member_id, epoch, interval_ms, assignment, throttle_ms
        )


class RegexHeartbeatCall(ConsumerGroupHeartbeatCall, versions=(1, 1)):
    """With a regular expression, which version 0 cannot send."""


def _assignment(reader: FieldReader) -> dict[UUID, list[int]]:
    found = {}
    for _ in reader.array(_MIN_TOPIC):
        topic_id = UUID(bytes=bytes(reader.take(16)))
        found[topic_id] = [reader.int32() for _ in reader.array(4)]
        reader.tagged_fields()
    return found


# --- The calls that administer groups: ListGroups, DeleteGroups -----------------------------------


class GroupListing(NamedTuple):
    """A group of a coordinator. ``state`` and ``kind`` are Kafka's names (``Empty``, ``classic``);
    empty if the broker is too old to send them."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class ListedGroups(NamedTuple):
    """The groups of one coordinator."""

    error_code: int
    groups: tuple[GroupListing, ...]
    throttle_ms: int = 0


class GroupCodes(NamedTuple):
    """An error code for each group, or for each member, of the request; 0 means no error."""

    codes: Mapping[str, int]
    throttle_ms: int = 0

    @property
    def error_code(self) -> int:
        """The first error."""
        return next((code for code in self.codes.values() if code), 0)


class OffsetCodes(NamedTuple):
    """An error code for each partition of the request, and the group's; 0 means no error."""

    codes: Mapping[TopicPartition, int]
    group_error_code: int = 0
    throttle_ms: int = 0

    @property
    def error_code(self) -> int:
        """The group's error, or the first of a partition."""
        return self.group_error_code or next(filter(None, self.codes.values()), 0)


@dataclass(frozen=True)
class ListGroupsCall(CodecCall[ListedGroups], api_key=ApiKey.LIST_GROUPS, versions=(0, 5)):
    """The groups that the broker coordinates."""

    def _fields(self) -> dict[str, Any]:
        return {"states_filter": [], "types_filter": []}

    def _result(self, message: Any) -> ListedGroups:
        groups = tuple(
            GroupListing(
                group.group_id,
                group.protocol_type,
                group.group_state or "",
                group.group_type or "",
            )
            for group in message.groups
        )
        return ListedGroups(message.error_code, groups, message.throttle_time_ms or 0)


@dataclass(frozen=True)
class DeleteGroupsCall(CodecCall[GroupCodes], api_key=ApiKey.DELETE_GROUPS, versions=(0, 2)):
    """Deletes groups without members, with their offsets. Must go to their coordinator."""

    groups: tuple[str, ...]

    def _fields(self) -> dict[str, Any]:
        return {"groups_names": list(self.groups)}

    def _result(self, message: Any) -> GroupCodes:
        codes = {each.group_id: each.error_code for each in message.results}
        return GroupCodes(codes, message.throttle_time_ms)


@dataclass(frozen=True)
class OffsetDeleteCall(CodecCall[OffsetCodes], api_key=ApiKey.OFFSET_DELETE, versions=(0, 0)):
    """Deletes committed offsets of topics that no member subscribes to (KIP-496)."""

    group_id: str
    partitions: tuple[TopicPartition, ...]

    def _fields(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": each} for each in numbers]}
                for topic, numbers in by_topic(self.partitions).items()
            ],
        }

    def _result(self, message: Any) -> OffsetCodes:
        codes = {where: each.error_code for where, each in partitions_in(message.topics)}
        return OffsetCodes(codes, message.error_code, message.throttle_time_ms)


@dataclass(frozen=True)
class RemoveMembersCall(CodecCall[GroupCodes], api_key=ApiKey.LEAVE_GROUP, versions=(3, 5)):
    """Removes members from a classic group (KIP-345). Must go to its coordinator."""

    group_id: str
    members: tuple[DescribedMember, ...]
    reason: str = ""

    def _fields(self) -> dict[str, Any]:
        members = [
            # The coordinator finds a static member by its instance id.
            {
                "member_id": "" if member.group_instance_id else member.member_id,
                "group_instance_id": member.group_instance_id,
                "reason": self.reason,
            }
            for member in self.members
        ]
        return {"group_id": self.group_id, "members": members}

    def _result(self, message: Any) -> GroupCodes:
        codes = {
            each.group_instance_id or each.member_id: each.error_code for each in message.members
        }
        return GroupCodes({"": message.error_code, **codes}, message.throttle_time_ms)
