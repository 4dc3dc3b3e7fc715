"""The fake cluster's topics and partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.testing.fake.log import PartitionLog

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "INTERNAL_TOPICS",
    "NO_LEADER",
    "FakePartition",
    "FakeTopic",
    "is_valid_topic_name",
]

NO_LEADER = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own, as brokers tell."""

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of ``max.message.bytes``."""


@dataclass(slots=True)
class FakePartition:
    """A partition: one log, whoever leads it. ``leader`` is -1 when nobody does."""

    topic: str
    index: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    moving_to: list[int] = field(default_factory=list)
    """The replicas that it is to have when the reassignment under way is done; else empty."""
    moving_from: list[int] = field(default_factory=list)
    """Those that it had before."""
    copied: dict[int, int] = field(default_factory=dict)
    """How many records a replica has that is being added; else none."""

    def end_offset_at(self, node_id: int) -> int:
        """Where the log of a replica ends."""
        adding = self.moving_to and node_id not in self.moving_from
        return self.copied.get(node_id, 0) if adding else self.log.end_offset

    def lead(self, node_id: int) -> None:
        """Make a broker the leader (-1: none) under a new leader epoch."""
        self.leader = node_id
        self.leader_epoch += 1

    def arrive(self) -> None:
        """End the move under way, if there is one."""
        if self.moving_to:
            self.replicas, self.isr = self.moving_to, list(self.moving_to)
            self.moving_to, self.moving_from, self.copied = [], [], {}
            if self.leader not in self.replicas:
                self.lead(self.replicas[0])


@dataclass(slots=True)
class FakeTopic:
    """A topic; the two settings are Kafka's topic configurations of that name, which act.
    ``configs`` has what was set, for those who ask."""

    name: str
    topic_id: UUID
    partitions: list[FakePartition] = field(default_factory=list)
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    min_insync_replicas: int = 1
    configs: dict[str, str] = field(default_factory=dict)


def is_valid_topic_name(name: str) -> bool:
    """Java's ``Topic.isValid``."""
    return name not in {".", ".."} and re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is not None
