"""DescribeGroups, ConsumerGroupDescribe and OffsetCommit, and the messages that classic consumers
exchange in a group.

These messages are opaque to brokers: ``ConsumerProtocolSubscription.json`` and
``ConsumerProtocolAssignment.json``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import ProtocolError
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api import (
    INT16,
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
    string,
)
from kafkaclient.wire.codec import CodecCall, partitions_in
from kafkaclient.wire.reader import FieldReader
from kafkaclient.wire.transactions import CommittedOffsets, topics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

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
    the name of the members' assignor, or of the coordinator's in a KIP-848 group."""

    group_id: str
    error_code: int
    error_message: str | None
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    kind: str = "classic"
    """The protocol of the members: ``classic``, ``consumer`` (KIP-848), ``share``, ``streams``."""


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
class ConsumerGroupDescribeCall(
    Call[DescribeGroupsResult], api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 0)
):
    """Describes KIP-848 groups, with the subscriptions and assignments of their members in the form
    of classic consumers. Must go to the groups' coordinator. By hand: kafka-python has no schema.
    """

    groups: tuple[str, ...]

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        out = request(self.api_key, version, correlation_id, client_id, flexible=True)
        out += compact_count(len(self.groups)) + b"".join(map(compact_string, self.groups))
        return framed(out + b"\x00" + NO_TAGS)  # without the operations that are allowed

    def decode(self, version: int, payload: Buffer) -> DescribeGroupsResult:
        reader = FieldReader(payload, flexible=True)
        try:
            reader.tagged_fields()  # the header's
            throttle_ms = reader.int32()
            groups = tuple([_consumer_group(reader) for _ in reader.array(1)])
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error
        return DescribeGroupsResult(groups, throttle_ms)


@dataclass(frozen=True)
class OffsetCommitCall(CodecCall[CommittedOffsets], api_key=ApiKey.OFFSET_COMMIT, versions=(2, 9)):
    """Sets offsets of a group. Must go to its coordinator, which accepts current members, and
    without ``member`` anybody while the group has no members."""

    group_id: str
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    member: ConsumerGroupMetadata | None = None

    def _fields(self) -> dict[str, Any]:
        member = self.member or ConsumerGroupMetadata(self.group_id)
        return {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": member.generation_id,
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "topics": topics_of(self.offsets),
        }

    def _result(self, message: Any) -> CommittedOffsets:
        codes = {tp: p.error_code for tp, p in partitions_in(message.topics, self._names())}
        return CommittedOffsets(codes, message.throttle_time_ms or 0)

    def _names(self) -> Mapping[UUID, str]:
        return {}


@dataclass(frozen=True)
class OffsetCommitByIdCall(OffsetCommitCall, versions=(2, 10)):
    """Version 10 names topics by id: an offset of a topic that was deleted is refused, and does not
    become one of the topic that has its name now. Older brokers get the names."""

    topic_ids: Mapping[TopicPartition, UUID] = field(kw_only=True)
    """Of each partition: while a topic is created again, its partitions may have different ids."""

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), "topics": topics_of(self.offsets, self.topic_ids)}

    def _names(self) -> Mapping[UUID, str]:
        return {topic_id: tp.topic for tp, topic_id in self.topic_ids.items()}


_SUBSCRIPTION_VERSION = 3  # as Java's clients since 3.5
_ASSIGNMENT_VERSION = 3
_FIRST_OWNED = 1
_FIRST_GENERATION = 2
_NO_GENERATION = -1


class ConsumerSubscription(NamedTuple):
    """What a member tells the leader when it joins (KIP-429, KIP-792)."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that the member has not given up."""
    generation_id: int = _NO_GENERATION
    """The generation in which the member got ``owned``; -1 if it has none, or does not say."""

    def encode(self) -> bytes:
        """The wire format, in the latest version."""
        out = INT16.pack(_SUBSCRIPTION_VERSION) + INT32.pack(len(self.topics))
        out += b"".join(map(string, self.topics)) + _encoded_bytes(self.user_data)
        return b"".join(
            (out, _encoded_partitions(self.owned), INT32.pack(self.generation_id), string(None))
        )


class ConsumerAssignment(NamedTuple):
    """The partitions that are assigned to a member, and the user data of its assignor."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None

    def encode(self) -> bytes:
        """The wire format, in the latest version."""
        partitions = _encoded_partitions(self.partitions)
        return INT16.pack(_ASSIGNMENT_VERSION) + partitions + _encoded_bytes(self.user_data)


def subscription_in(metadata: Buffer) -> ConsumerSubscription:
    """A consumer's subscription. Later versions add fields behind those that are known.

    Raises :class:`~kafkaclient.errors.ProtocolError` if ``metadata`` is not a subscription.
    """
    reader = FieldReader(metadata, flexible=False)
    version = reader.int16()
    topics = tuple(reader.string() for _ in reader.array(2))
    user_data = _nullable_bytes(reader)
    owned = _partitions(reader) if version >= _FIRST_OWNED else ()
    generation = reader.int32() if version >= _FIRST_GENERATION else _NO_GENERATION
    return ConsumerSubscription(topics, user_data, owned, generation)


def assignment_in(assignment: Buffer) -> ConsumerAssignment:
    """The partitions and user data in a consumer's assignment; nothing in an empty one, which a
    member gets if its leader left it out.

    Raises :class:`~kafkaclient.errors.ProtocolError` if ``assignment`` is not an assignment.
    """
    if not assignment:
        return ConsumerAssignment((), None)
    reader = FieldReader(assignment, flexible=False)
    reader.int16()
    return ConsumerAssignment(_partitions(reader), _nullable_bytes(reader))


def _consumer_group(reader: FieldReader) -> DescribedGroup:
    code, message = reader.int16(), reader.nullable_string()
    group_id, state = reader.string(), reader.string()
    reader.advance(8)  # the epochs of the group and of its assignment
    assignor = reader.string()
    members = tuple([_consumer_member(reader) for _ in reader.array(1)])
    reader.advance(4)  # the operations that are allowed
    reader.tagged_fields()
    return DescribedGroup(
        group_id, code, message or None, state, "consumer", assignor, members, kind="consumer"
    )


def _consumer_member(reader: FieldReader) -> DescribedMember:
    member_id, instance_id = reader.string(), reader.nullable_string()
    reader.nullable_string()  # the rack
    reader.advance(4)  # the member's epoch
    client_id, host = reader.string(), reader.string()
    topics = tuple([reader.string() for _ in reader.array(1)])
    reader.nullable_string()  # the regular expression that is subscribed to
    assigned, _target = _consumer_assignment(reader), _consumer_assignment(reader)
    reader.tagged_fields()
    subscription = ConsumerSubscription(topics, owned=assigned).encode()
    assignment = ConsumerAssignment(assigned, None).encode()
    return DescribedMember(member_id, client_id, host, subscription, assignment, instance_id)


def _consumer_assignment(reader: FieldReader) -> tuple[TopicPartition, ...]:
    found = []
    for _ in reader.array(1):
        reader.advance(16)  # the topic's id
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in reader.array(4)]
        reader.tagged_fields()
    reader.tagged_fields()
    return tuple(found)


def _partitions(reader: FieldReader) -> tuple[TopicPartition, ...]:
    found = []
    for _ in reader.array(6):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in reader.array(4)]
    return tuple(found)


def _nullable_bytes(reader: FieldReader) -> bytes | None:
    size = reader.int32()
    if size < 0:
        return None
    return bytes(reader.take(size))


def _encoded_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics = by_topic(sorted(partitions))
    out = [INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        out += (string(topic), INT32.pack(len(numbers)), *map(INT32.pack, numbers))
    return b"".join(out)


def _encoded_bytes(data: bytes | None) -> bytes:
    return INT32.pack(-1) if data is None else INT32.pack(len(data)) + data
