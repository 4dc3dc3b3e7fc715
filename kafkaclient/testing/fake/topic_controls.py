"""The methods of :class:`~kafkaclient.testing.fake.FakeCluster` for topics and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.testing.fake.topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    NO_LEADER,
    FakePartition,
    FakeTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from kafkaclient.testing.fake.broker import FakeBroker
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["TopicControls"]


class TopicControls:
    """The topic methods of :class:`~kafkaclient.testing.fake.FakeCluster`."""

    _state: ClusterState

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int = 1,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        min_insync_replicas: int = 1,
    ) -> None:
        """Create a topic. The leader of partition n is broker n modulo the number of brokers,
        unless ``assignments`` lists the replicas of each partition, the leader first."""
        if name in self._state.topics:
            raise ValueError(f"topic {name!r} exists")
        self._state.create_topic(
            name,
            partitions,
            replication_factor,
            assignments=assignments,
            max_message_bytes=max_message_bytes,
            min_insync_replicas=min_insync_replicas,
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. A new topic with the same name gets another topic id."""
        del self._state.topics[self._topic(name).name]

    def topic_id(self, name: str) -> UUID:
        """The id of the topic (KIP-516)."""
        return self._topic(name).topic_id

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to ``total``."""
        self._state.grow_topic(self._topic(name), total)

    def configure_topic(
        self,
        name: str,
        *,
        max_message_bytes: int | None = None,
        min_insync_replicas: int | None = None,
    ) -> None:
        """Change the given settings. They apply from the next request on."""
        topic = self._topic(name)
        if max_message_bytes is not None:
            topic.max_message_bytes = max_message_bytes
        if min_insync_replicas is not None:
            topic.min_insync_replicas = min_insync_replicas

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader; -1 without a leader."""
        return self._partition(topic, partition).leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader epoch of a partition, which starts at 0."""
        return self._partition(topic, partition).leader_epoch

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Elect a leader under a new leader epoch (-1: no leader). The leader becomes an in-sync
        replica.

        Clients learn the leader from their next Metadata or Produce response (KIP-951).
        """
        moved = self._partition(topic, partition)
        if node_id != NO_LEADER:
            self._broker(node_id)
            for nodes in (moved.replicas, moved.isr):
                if node_id not in nodes:
                    nodes.append(node_id)
        moved.elect(node_id)

    def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Set a partition's in-sync replicas. If they are too few, ``acks=all`` fails."""
        self._partition(topic, partition).isr = list(isr)

    def copy_replica(self, topic: str, partition: int, node_id: int, records: int) -> None:
        """Set the number of records of a replica that is being added."""
        self._partition(topic, partition).copied[node_id] = records

    def finish_reassignments(self) -> None:
        """Complete all ongoing reassignments."""
        for topic in self._state.topics.values():
            for partition in topic.partitions:
                partition.finish_reassignment()

    def _topic(self, name: str) -> FakeTopic:
        if name not in self._state.topics:
            raise ValueError(f"unknown topic {name!r}; known: {sorted(self._state.topics)}")
        return self._state.topics[name]

    def _partition(self, topic: str, partition: int) -> FakePartition:
        known = self._topic(topic).partitions
        if not 0 <= partition < len(known):
            raise ValueError(f"topic {topic!r} has {len(known)} partitions, but no {partition}")
        return known[partition]

    def _broker(self, node_id: int) -> FakeBroker:
        raise NotImplementedError
