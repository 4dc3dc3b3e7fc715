"""ConsumerGroupHeartbeat, versions 0 and 1: the call of members of KIP-848 groups.

Encoded and decoded by hand: kafka-python has no schema. All versions are flexible (KIP-482).
Version 1 added regular expressions, and members choose their own ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import ApiKey, Call, malformed
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.results import (
    INT32,
    NO_TAGS,
    compact_count,
    compact_string,
    framed,
    request,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.types import Buffer

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
        reader = Reader(payload, flexible=True)
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


def _assignment(reader: Reader) -> dict[UUID, list[int]]:
    found = {}
    for _ in reader.array(_MIN_TOPIC):
        topic_id = UUID(bytes=bytes(reader.take(16)))
        found[topic_id] = [reader.int32() for _ in reader.array(4)]
        reader.tagged_fields()
    return found
