"""Immutable snapshots of the cluster. identity.py decides what becomes part of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.wire.api import PartitionView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.api import TopicInfo

__all__ = [
    "NO_EPOCH",
    "NO_LEADER",
    "Broker",
    "ClusterView",
    "Doubt",
    "LeaderHint",
    "PartitionView",
    "TopicView",
]

NO_LEADER = -1
NO_EPOCH = -1


class Broker(NamedTuple):
    """A broker and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's partitions; a partition's number is its index in ``partitions``."""

    name: str
    topic_id: UUID | None
    partitions: tuple[PartitionView, ...]
    former_ids: tuple[UUID, ...] = ()
    """The ids that other answers of this cluster had for the name, the latest last: of deleted
    topics, which brokers with old metadata may still send."""
    available: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The numbers of the partitions that have a leader."""
    leaders: frozenset[int] = field(init=False, compare=False, repr=False)
    """The leaders of all partitions, with ``NO_LEADER`` if a partition has none."""

    def __post_init__(self) -> None:
        led = tuple([p.partition for p in self.partitions if p.leader != NO_LEADER])
        object.__setattr__(self, "available", led)
        object.__setattr__(self, "leaders", frozenset([p.leader for p in self.partitions]))

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


class Doubt(NamedTuple):
    """Answers about a topic that look older than the view, without one between them that agrees
    with the view: the time of the first, and how many there were."""

    since: float
    answers: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One snapshot. ``fetched_at`` is the clock's time of the last answer, in seconds."""

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    controller_id: int = -1
    cluster_id: str | None = None
    fetched_at: float = float("-inf")
    last_infos: Mapping[str, TopicInfo] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    """The last response about each topic that is unchanged since then. The same response again
    changes nothing."""
    doubts: Mapping[str, Doubt] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    """By topic name; see identity.py."""

    def leader(self, topic: str, partition: int) -> Broker | None:
        """The partition's leader; None if the view does not have it."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return self.brokers.get(known.partitions[partition].leader)

    def leader_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The leader epochs of partitions that the view has."""
        return {p: self.topics[p.topic].partitions[p.partition].leader_epoch for p in partitions}


class LeaderHint(NamedTuple):
    """A leader named in a Produce response's error (KIP-951)."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
