"""The assignor with the messages of aiokafka's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from kafkaclient.streams import TaskId
from kafkaclient.streams.group_protocol import AssignmentInfo
from kafkaclient.streams.membership.leader import MemberAssignment
from kafkaclient.streams.runtime.group_member import ProtocolAssignor
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class Member:
    def __init__(self) -> None:
        self.joins = 0
        self.arguments: tuple[Mapping[str, bytes | None], Mapping[str, int]] | None = None
        self.got: tuple[list[TopicPartition], bytes] | None = None

    def subscription(self) -> bytes:
        self.joins += 1
        return b"subscription %d" % self.joins

    def compute_assignments(
        self, user_data: Mapping[str, bytes | None], partitions: Mapping[str, int]
    ) -> Mapping[str, MemberAssignment]:
        self.arguments = user_data, partitions
        given = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 2)]
        info = AssignmentInfo(active_tasks=(TaskId(0, 1), TaskId(1, 0), TaskId(1, 2)))
        return {"m1": MemberAssignment(given, info), "m2": MemberAssignment([], AssignmentInfo())}

    def assigned(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        self.got = partitions, user_data


class Cluster:
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {"a": {0, 1}, "b": {0, 1, 2}}.get(topic)


def test_subscriptions_and_assignments_pass_through_aiokafkas_protocol() -> None:
    member = Member()
    assignor = ProtocolAssignor()
    assignor.member = member  # type: ignore[assignment]
    sent = [assignor.metadata({"b", "a"}).encode() for _ in range(2)]
    assert sent[0] != sent[1], "unchanged metadata would not make a rebalance"
    members = {
        name: ConsumerProtocolMemberMetadata.decode(data)
        for name, data in zip(("m1", "m2"), sent, strict=True)
    }
    members["m3"] = ConsumerProtocolMemberMetadata(0, ["c"], None)
    answers = assignor.assign(Cluster(), members)
    assert member.arguments == (
        {"m1": b"subscription 1", "m2": b"subscription 2", "m3": None},
        {"a": 2, "b": 3, "c": 0},
    )
    assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(answers["m1"].encode()))
    assert member.got is not None
    partitions, data = member.got
    assert partitions == [("a", 1), ("b", 0), ("b", 2)]
    assert AssignmentInfo.decode(data).active_tasks[0] == TaskId(0, 1)
    assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(answers["m2"].encode()))
    assert member.got[0] == []
