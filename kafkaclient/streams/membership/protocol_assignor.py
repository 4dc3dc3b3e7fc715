"""The assignor for aiokafka's consumer: it encodes and decodes, and calls a :class:`Member`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.streams.membership.leader import MemberAssignment

__all__ = ["Member", "ProtocolAssignor"]


class Member(Protocol):
    """The member behind the assignor. Its methods must neither block nor raise."""

    def subscription(self) -> bytes:
        """The subscription for the leader. Called once per join."""
        ...

    def compute_assignments(
        self, user_data: Mapping[str, bytes | None], partitions: Mapping[str, int]
    ) -> Mapping[str, MemberAssignment]:
        """The assignments of all members. Called if this member is the leader."""
        ...

    def assigned(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        """Called with the new assignment, before the consumer fetches from its partitions."""
        ...


class ProtocolAssignor:
    """An assignor instance for one consumer. It must be the only one in
    ``partition_assignment_strategy``: with several, aiokafka joins once for each."""

    name = "stream"  # the name of Kafka Streams' assignor

    _member: Member

    def serve(self, member: Member) -> None:
        """Set the member. Call it before the consumer subscribes. A setter, because the member
        needs the consumer and the consumer its assignor."""
        self._member = member

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(0, sorted(topics), self._member.subscription())

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        topics = {topic for metadata in members.values() for topic in metadata.subscription}
        partitions = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        answers = self._member.compute_assignments(
            {member: metadata.user_data for member, metadata in members.items()}, partitions
        )
        return {member: _encoded(answer) for member, answer in answers.items()}

    def on_assignment(self, assignment: Any) -> None:
        partitions = [TopicPartition(*partition) for partition in assignment.partitions()]
        self._member.assigned(partitions, assignment.user_data)


def _encoded(answer: MemberAssignment) -> ConsumerProtocolMemberAssignment:
    topics = defaultdict(list)
    for topic, partition in answer.partitions:
        topics[topic].append(partition)
    return ConsumerProtocolMemberAssignment(0, list(topics.items()), answer.info.encode())
