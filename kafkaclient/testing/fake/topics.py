"""The fake cluster's topics and partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.testing.fake.log import PartitionLog

if TYPE_CHECKING:
    from uuid import UUID

NO_LEADER = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The topics that brokers call internal."""

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default of max.message.bytes


@dataclass(slots=True)
class FakePartition:
    """A partition with one log for all replicas. ``leader`` is -1 without a leader."""

    topic: str
    index: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    moving_to: list[int] = field(default_factory=list)
    """The target replicas of an ongoing reassignment, else empty."""
    moving_from: list[int] = field(default_factory=list)
    """The replicas before an ongoing reassignment, else empty."""
    copied: dict[int, int] = field(default_factory=dict)
    """The number of records of each replica that is being added."""

    def end_offset_at(self, node_id: int) -> int:
        """The log end offset of a replica."""
        adding = self.moving_to and node_id not in self.moving_from
        return self.copied.get(node_id, 0) if adding else self.log.end_offset

    def elect(self, node_id: int) -> None:
        """Make a broker the leader (-1: no leader) under a new leader epoch."""
        self.leader = node_id
        self.leader_epoch += 1

    def finish_reassignment(self) -> None:
        """Complete an ongoing reassignment, if there is one."""
        if self.moving_to:
            self.replicas, self.isr = self.moving_to, list(self.moving_to)
            self.moving_to, self.moving_from, self.copied = [], [], {}
            if self.leader not in self.replicas:
                self.elect(self.replicas[0])


@dataclass(slots=True)
class FakeTopic:
    """A topic. ``max_message_bytes`` and ``min_insync_replicas`` are in force; ``configs`` has the
    configuration that DescribeConfigs returns."""

    name: str
    topic_id: UUID
    partitions: list[FakePartition] = field(default_factory=list)
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    min_insync_replicas: int = 1
    configs: dict[str, str] = field(default_factory=dict)


def is_valid_topic_name(name: str) -> bool:
    """Java's ``Topic.isValid``."""
    return name not in {".", ".."} and re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is not None
