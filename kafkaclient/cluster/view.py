"""Immutable snapshots of the cluster, and the pure functions that update them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.wire.results import PartitionView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.api import BrokerInfo
    from kafkaclient.wire.results import MetadataResult, TopicInfo

__all__ = [
    "NO_EPOCH",
    "NO_LEADER",
    "Broker",
    "ClusterView",
    "LeaderHint",
    "PartitionView",
    "TopicView",
    "impossible",
    "merge",
    "with_leaders",
]

NO_LEADER = -1
NO_EPOCH = -1
_REMEMBERED_IDS = 16
_MOST_LEFT_OUT = 10_000
"""How many partitions a response may leave out: each costs memory, but no byte in the response."""


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
    """The ids of deleted topics of this name, the latest last. Brokers with old metadata may still
    send them."""
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


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One snapshot. ``fetched_at`` is the clock's time of the last answer, in seconds."""

    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    controller_id: int = -1
    cluster_id: str | None = None
    fetched_at: float = float("-inf")
    told: Mapping[str, TopicInfo] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    """The last response about each topic that is unchanged since then. The same response again
    changes nothing."""

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


def merge(
    old: ClusterView, result: MetadataResult, *, now: float, keep: Collection[str] | None = None
) -> ClusterView:
    """``old`` updated by a Metadata response.

    The brokers are taken from the response. A topic without error replaces the known one, except
    for partitions with an older leader epoch than the known one: they come from a broker with old
    metadata. A topic with another id was deleted and created again, and keeps nothing of the old
    one. Topics that are not in the response, or have an error or :func:`impossible` partitions,
    stay unchanged if ``keep`` names them (None: all).
    """
    topics = {name: topic for name, topic in old.topics.items() if keep is None or name in keep}
    same_cluster = old.cluster_id == result.cluster_id
    told = {name: info for name, info in old.told.items() if name in topics}
    for info in result.topics:
        name, known = info.name, topics.get(info.name)
        if info.error_code or not info.partitions or (keep is not None and name not in keep):
            continue
        if known is not None and info.topic_id in known.former_ids and same_cluster:
            continue
        if told.get(name) is not info:
            if impossible(info):
                continue
            topics[name] = _merge_topic(old.topics.get(name), info)
            told[name] = info
    return ClusterView(
        brokers=MappingProxyType({b.node_id: Broker(*b) for b in result.brokers}),
        topics=MappingProxyType(topics),
        controller_id=result.controller_id,
        cluster_id=result.cluster_id,
        fetched_at=now,
        told=MappingProxyType(told),
    )


def impossible(info: TopicInfo) -> str:
    """Why a topic cannot have these partitions; "" if it can."""
    numbers = [partition.partition for partition in info.partitions]
    if not numbers:
        return "no partition"
    lowest, highest = min(numbers), max(numbers)
    if lowest < 0:
        return f"a partition numbered {lowest}"
    if highest >= len(numbers) + _MOST_LEFT_OUT:
        return f"{len(numbers)} partitions, and one of them numbered {highest}"
    return ""


def _merge_topic(old: TopicView | None, info: TopicInfo) -> TopicView:
    known: tuple[PartitionView, ...] = ()
    former_ids: tuple[UUID, ...] = ()
    if old is not None:
        former_ids = old.former_ids
        if _is_same_topic(old, info):
            known = old.partitions
        elif old.topic_id is not None:
            others = [former for former in former_ids if former != info.topic_id]
            former_ids = (*others, old.topic_id)[-_REMEMBERED_IDS:]
    told = _in_order(info.partitions, known)
    if info.topic_id is not None:
        # A topic with the same id never loses partitions: the response is out of date.
        told += known[len(told) :]
    # Unchanged objects stay the same, so that comparing them is cheap.
    common = [a if a == b else _newer(a, b) for a, b in zip(known, told, strict=False)]
    partitions = (*common, *told[len(common) :])
    topic_id = info.topic_id or (old.topic_id if known and old else None)
    merged = TopicView(info.name, topic_id, partitions, former_ids)
    return old if old == merged and old is not None else merged


def _in_order(
    told: tuple[PartitionView, ...], known: tuple[PartitionView, ...]
) -> tuple[PartitionView, ...]:
    """The partitions by number. Those that the response leaves out are unchanged."""
    numbers = [partition.partition for partition in told]
    if numbers == list(range(len(numbers))):
        return told
    by_number = dict(zip(numbers, told, strict=True))
    known += tuple(map(PartitionView, range(len(known), max(numbers) + 1)))
    return tuple([by_number.get(n, known[n]) for n in range(max(numbers) + 1)])


def _is_same_topic(old: TopicView, info: TopicInfo) -> bool:
    return old.topic_id is None or info.topic_id is None or old.topic_id == info.topic_id


def _newer(old: PartitionView, told: PartitionView) -> PartitionView:
    if told.leader_epoch == NO_EPOCH:
        # From a broker without leader epochs: keep the known epoch as the minimum.
        return told._replace(leader_epoch=old.leader_epoch)
    return old if told.leader_epoch < old.leader_epoch else told


def with_leaders(
    view: ClusterView, hints: Iterable[LeaderHint], endpoints: Iterable[BrokerInfo] = ()
) -> ClusterView:
    """``view`` with the leaders that Produce responses named (KIP-951).

    A hint counts if its epoch is newer than the known one, and its leader's address is in the view
    or in ``endpoints``. Returns ``view`` itself if nothing changes.
    """
    addresses = {broker.node_id: Broker(*broker) for broker in endpoints}
    brokers = dict(view.brokers)
    changed: dict[str, list[PartitionView]] = {}
    for topic, partition, leader, epoch in hints:
        known = view.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            continue
        current = (changed.get(topic) or known.partitions)[partition]
        if epoch <= current.leader_epoch or (leader not in addresses and leader not in brokers):
            continue
        if leader in addresses:
            brokers[leader] = addresses[leader]
        if topic not in changed:
            changed[topic] = list(known.partitions)
        changed[topic][partition] = current._replace(leader=leader, leader_epoch=epoch)
    if not changed:
        return view
    topics = dict(view.topics)
    for topic, partitions in changed.items():
        topics[topic] = replace(topics[topic], partitions=tuple(partitions))
    return replace(
        view,
        brokers=MappingProxyType(brokers),
        topics=MappingProxyType(topics),
        told=MappingProxyType({k: v for k, v in view.told.items() if k not in changed}),
    )
