"""What is known of the cluster: immutable snapshots, and the pure functions that renew them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from kafkaclient.wire.api import BrokerInfo
    from kafkaclient.wire.results import MetadataResult, PartitionInfo, TopicInfo

__all__ = [
    "NO_EPOCH",
    "NO_LEADER",
    "Broker",
    "ClusterView",
    "LeaderHint",
    "PartitionView",
    "TopicView",
    "merge",
    "with_leaders",
]

NO_LEADER = -1
NO_EPOCH = -1


class Broker(NamedTuple):
    """A broker and the address at which it is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """Who leads a partition; ``leader`` is -1 when nobody does, ``leader_epoch`` -1 when the
    broker that told it does not know epochs."""

    partition: int
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's partitions; a partition's number is its index in ``partitions``."""

    name: str
    topic_id: UUID | None
    partitions: tuple[PartitionView, ...]
    available: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The numbers of the partitions that have a leader."""

    def __post_init__(self) -> None:
        led = tuple(p.partition for p in self.partitions if p.leader != NO_LEADER)
        object.__setattr__(self, "available", led)

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One snapshot. ``fetched_at`` is the clock's time of the last answer, in seconds."""

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    controller_id: int = -1
    cluster_id: str | None = None
    fetched_at: float = float("-inf")

    def leader(self, topic: str, partition: int) -> Broker | None:
        """The broker that leads the partition; None when the view does not know one."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return None
        return self.brokers.get(known.partitions[partition].leader)


class LeaderHint(NamedTuple):
    """A leader named in a Produce response's error (KIP-951)."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


def merge(
    old: ClusterView, result: MetadataResult, *, now: float, keep: Collection[str] | None = None
) -> ClusterView:
    """``old`` renewed by an answer to a Metadata call.

    The brokers are the answer's. A topic that the answer gives without an error replaces the
    known one, except that a partition with an older leader epoch than the known one is the
    tale of a broker that lags behind, and is not believed; a topic with another id was created
    anew, and nothing of the old one stays. Topics that the answer does not give, or gives with
    an error, stay as they are; ``keep`` names those allowed to (None: all).
    """
    topics = {name: topic for name, topic in old.topics.items() if keep is None or name in keep}
    for info in result.topics:
        if info.error_code == 0 and info.partitions and (keep is None or info.name in keep):
            topics[info.name] = _merge_topic(old.topics.get(info.name), info)
    return ClusterView(
        brokers=MappingProxyType({b.node_id: Broker(*b) for b in result.brokers}),
        topics=MappingProxyType(topics),
        controller_id=result.controller_id,
        cluster_id=result.cluster_id,
        fetched_at=now,
    )


def _merge_topic(old: TopicView | None, info: TopicInfo) -> TopicView:
    told = {p.partition: p for p in info.partitions}
    count = max(told) + 1
    known: tuple[PartitionView, ...] = ()
    if old is not None and _is_same_topic(old, info):
        known = old.partitions
        if info.topic_id is not None:
            # A topic never loses partitions while it keeps its id: the answer is out of date.
            count = max(count, len(known))
    partitions = tuple(
        _merge_partition(known[n] if n < len(known) else PartitionView(n), told.get(n))
        for n in range(count)
    )
    merged = TopicView(
        info.name, info.topic_id or (old.topic_id if known and old else None), partitions
    )
    return old if old == merged and old is not None else merged


def _is_same_topic(old: TopicView, info: TopicInfo) -> bool:
    return old.topic_id is None or info.topic_id is None or old.topic_id == info.topic_id


def _merge_partition(old: PartitionView, info: PartitionInfo | None) -> PartitionView:
    if info is None:
        return old
    epoch = info.leader_epoch
    if epoch == NO_EPOCH:
        epoch = old.leader_epoch  # from a broker that knows no epochs; keep the floor
    elif epoch < old.leader_epoch:
        return old
    return PartitionView(old.partition, info.leader, epoch, info.replicas, info.isr)


def with_leaders(
    view: ClusterView, hints: Iterable[LeaderHint], endpoints: Iterable[BrokerInfo] = ()
) -> ClusterView:
    """``view`` with the leaders that Produce responses named (KIP-951).

    A hint counts when its epoch is newer than the known one and its leader's address is known,
    from the view or from ``endpoints``. Returns ``view`` itself when nothing changes.
    """
    told = {broker.node_id: Broker(*broker) for broker in endpoints}
    brokers = dict(view.brokers)
    topics = dict(view.topics)
    for topic, partition, leader, epoch in hints:
        known = topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            continue
        current = known.partitions[partition]
        if epoch <= current.leader_epoch or (leader not in told and leader not in brokers):
            continue
        if leader in told:
            brokers[leader] = told[leader]
        partitions = list(known.partitions)
        partitions[partition] = current._replace(leader=leader, leader_epoch=epoch)
        topics[topic] = TopicView(known.name, known.topic_id, tuple(partitions))
    if topics == view.topics:
        return view
    return replace(view, brokers=MappingProxyType(brokers), topics=MappingProxyType(topics))
