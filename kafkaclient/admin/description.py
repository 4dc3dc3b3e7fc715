"""What is told of a cluster: its brokers, and how much room the partition limits leave."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkaclient.admin.limits import Limits, Usage
    from kafkaclient.wire.admin import DescribeQuorumResult
    from kafkaclient.wire.results import MetadataResult

__all__ = [
    "BrokerDescription",
    "BrokerUsage",
    "ClusterDescription",
    "LimitsReport",
    "report",
    "seen_by",
]


class BrokerDescription(NamedTuple):
    """A broker that is up. All topics count here, internal ones too."""

    node_id: int
    host: str
    port: int
    rack: str | None
    leaders: int
    """Partitions that it leads."""
    replicas: int
    """Partitions that it has, those it leads among them."""
    out_of_sync: int
    """Of them those that have fallen behind."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as a broker tells of it."""

    cluster_id: str | None
    controller_id: int
    """The active controller; -1 when it is not known."""
    controllers: tuple[int, ...]
    """All that may become it; empty with ZooKeeper, where any broker may."""
    brokers: tuple[BrokerDescription, ...]
    topics: int
    partitions: int
    offline_partitions: int
    """Without a leader."""
    missing_brokers: tuple[int, ...]
    """Brokers that have replicas and are not up."""


def seen_by(cluster: MetadataResult, quorum: DescribeQuorumResult | None) -> ClusterDescription:
    """From metadata of all topics, and who votes (None with ZooKeeper)."""
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    partitions = [partition for topic in cluster.topics for partition in topic.partitions]
    for partition in partitions:
        leaders[partition.leader] += 1
        replicas.update(partition.replicas)
        in_sync.update(partition.isr)
    up = {broker.node_id for broker in cluster.brokers}
    return ClusterDescription(
        cluster.cluster_id,
        cluster.controller_id if quorum is None else quorum.leader_id,
        () if quorum is None else tuple(sorted(quorum.voters)),
        tuple(
            BrokerDescription(
                *broker,
                leaders[broker.node_id],
                replicas[broker.node_id],
                replicas[broker.node_id] - in_sync[broker.node_id],
            )
            for broker in sorted(cluster.brokers)
        ),
        len(cluster.topics),
        len(partitions),
        leaders[-1],
        tuple(sorted(replicas.keys() - up)),
    )


class BrokerUsage(NamedTuple):
    """A broker and ``max.broker.partitions``."""

    node_id: int
    rack: str | None
    up: bool
    hosted: int
    """Replicas that count."""
    headroom: int | None
    """How many more it may take, below 0 when it has too many; None without a limit."""


@dataclass(frozen=True, slots=True)
class LimitsReport:
    """The limits beside what is used of them."""

    limits: Limits
    brokers: tuple[BrokerUsage, ...]
    counted: int
    """What ``max.partitions`` bounds: partitions, or replicas if the limits say so."""
    partitions: int
    replicas: int

    @property
    def headroom(self) -> int | None:
        """How many more the cluster may have, below 0 when there are too many; None without a
        limit."""
        most = self.limits.max_partitions
        return None if most is None else most - self.counted

    @property
    def violations(self) -> tuple[str, ...]:
        """What is above a limit, in words."""
        return self.above(1.0)

    def above(self, share: float) -> tuple[str, ...]:
        """What uses more than this share of a limit, in words."""
        found = []
        limit, most = self.limits.max_broker_partitions, self.limits.max_partitions
        if limit is not None:
            found += [
                f"broker {broker.node_id} has {broker.hosted} of max.broker.partitions={limit}"
                for broker in self.brokers
                if broker.hosted > limit * share
            ]
        if most is not None and self.counted > most * share:
            found.append(
                f"the cluster has {self.counted} {self.limits.count} of max.partitions={most}"
            )
        return tuple(found)


def report(limits: Limits, usage: Usage) -> LimitsReport:
    limit = limits.max_broker_partitions
    return LimitsReport(
        limits,
        tuple(
            BrokerUsage(
                broker,
                usage.racks.get(broker),
                broker in usage.racks,
                hosted,
                None if limit is None else limit - hosted,
            )
            for broker, hosted in sorted(usage.hosted.items())
        ),
        usage.counted(limits),
        usage.partitions,
        usage.replicas,
    )
