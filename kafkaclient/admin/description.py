"""Descriptions of a cluster: its brokers, and its usage of the partition limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.error_codes import CLUSTER_AUTHORIZATION_FAILED
from kafkaclient.broker_errors import broker_error

if TYPE_CHECKING:
    from kafkaclient.admin.limits import Limits, Usage
    from kafkaclient.wire.admin import DescribeQuorumResult
    from kafkaclient.wire.results import MetadataResult


class BrokerDescription(NamedTuple):
    """A broker that is up. The numbers include internal topics."""

    node_id: int
    host: str
    port: int
    rack: str | None
    leaders: int
    """Number of partitions that the broker leads."""
    replicas: int
    """Number of replicas on the broker, leaders included."""
    out_of_sync: int
    """Number of replicas on the broker that are not in sync."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster, as one broker describes it."""

    cluster_id: str | None
    controller_id: int
    """The active controller; -1 if unknown."""
    controllers: tuple[int, ...] | None
    """The voters of the controller quorum; empty with ZooKeeper. None if the principal may not
    Describe the cluster; :attr:`controller_id` is then -1."""
    brokers: tuple[BrokerDescription, ...]
    topics: int
    partitions: int
    offline_partitions: int
    """Number of partitions without a leader."""
    missing_brokers: tuple[int, ...]
    """Brokers that have replicas and are down."""


def describe_cluster(
    cluster: MetadataResult, quorum: DescribeQuorumResult | None
) -> ClusterDescription:
    """The description from metadata of all topics and the quorum (None with ZooKeeper). The quorum
    may be denied. Raises the broker's error if it has another one."""
    denied = quorum is not None and quorum.error_code == CLUSTER_AUTHORIZATION_FAILED
    if quorum is not None and quorum.error_code and not denied:
        raise broker_error(quorum.error_code, "describing the controllers of the cluster")
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
        None if denied else () if quorum is None else tuple(sorted(quorum.voters)),
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
    """One broker's usage of ``max.broker.partitions``."""

    node_id: int
    rack: str | None
    up: bool
    hosted: int
    """Number of replicas that count against the limit."""
    headroom: int | None
    """How many more replicas the limit allows, negative above the limit; None without a limit."""


@dataclass(frozen=True, slots=True)
class LimitsReport:
    """The partition limits and their usage."""

    limits: Limits
    brokers: tuple[BrokerUsage, ...]
    counted: int
    """The number that ``max.partitions`` bounds: partitions, or replicas if so configured."""
    partitions: int
    replicas: int

    @property
    def headroom(self) -> int | None:
        """How many more ``max.partitions`` allows, negative above it; None without a limit."""
        most = self.limits.max_partitions
        return None if most is None else most - self.counted

    @property
    def violations(self) -> tuple[str, ...]:
        """A sentence for each exceeded limit."""
        return self.above(1.0)

    def above(self, share: float) -> tuple[str, ...]:
        """A sentence for each limit of which more than ``share`` (0.0 to 1.0) is used."""
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


def limits_report(limits: Limits, usage: Usage) -> LimitsReport:
    brokers = []
    for node, hosted in sorted(usage.hosted.items()):
        limit = limits.max_broker_partitions
        headroom = None if limit is None else limit - hosted
        rack, up = usage.racks.get(node), node in usage.racks
        brokers.append(BrokerUsage(node, rack, up, hosted, headroom))
    counted = usage.counted(limits)
    return LimitsReport(limits, tuple(brokers), counted, usage.partitions, usage.replicas)
