"""Descriptions of topics and of a cluster, from its metadata."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.session import gather_outcomes
from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import DescribeLogDirsCall

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from kafkaclient.admin.session import AdminSession
    from kafkaclient.errors import KafkaError
    from kafkaclient.wire.admin import DescribeQuorumResult
    from kafkaclient.wire.api import MetadataResult, PartitionView, TopicInfo

_ADVICE: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic with this name exists",
}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions. ``topic_id`` is None before Kafka 2.8."""

    name: str
    topic_id: UUID | None
    internal: bool
    """Whether the brokers call the topic internal, as ``__consumer_offsets``."""
    partitions: tuple[PartitionView, ...]
    down_brokers: frozenset[int] = frozenset()
    """The brokers that have replicas and are down: the metadata does not name them. A replica
    that is not in sync on any other broker is behind."""

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, as Kafka's tools show it."""
        return len(self.partitions[0].replicas) if self.partitions else 0

    @property
    def under_replicated(self) -> tuple[PartitionView, ...]:
        """The partitions with a replica that is not in sync."""
        return tuple(p for p in self.partitions if len(p.isr) < len(p.replicas))

    @property
    def unavailable(self) -> tuple[PartitionView, ...]:
        """The partitions without a leader."""
        return tuple(p for p in self.partitions if p.leader < 0)


def description_of(info: TopicInfo, live: Iterable[int]) -> TopicDescription:
    """The description of a topic in metadata with these brokers. Raises the topic's error code as
    an error."""
    if info.error_code and info.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
        raise topic_error(info.error_code, info.name, "describing", "Describe")
    partitions = tuple(sorted(info.partitions))
    down = frozenset(node for view in partitions for node in view.replicas).difference(live)
    return TopicDescription(info.name, info.topic_id, info.is_internal, partitions, down)


def live_brokers(cluster: MetadataResult) -> list[int]:
    """The ids of the brokers that are up."""
    return [broker.node_id for broker in cluster.brokers]


def known_brokers(cluster: MetadataResult) -> set[int]:
    """The ids of the brokers that are up, or have replicas in this metadata."""
    replicas = (view.replicas for view in partitions_of(cluster).values())
    return set(live_brokers(cluster)).union(*replicas)


async def cordoned_brokers(session: AdminSession, nodes: Iterable[int]) -> set[int]:
    """The brokers whose log directories are all cordoned (KIP-1066): the controller itself places
    no replica there, but accepts explicit replicas. Brokers before 4.3, brokers that do not answer,
    and brokers without Describe on the cluster are not among them."""
    call = DescribeLogDirsCall({})
    answers, _ = await gather_outcomes({node: session.once(call, node) for node in nodes})
    return {
        node
        for node, answer in answers.items()
        if answer.directories and all(directory.cordoned for directory in answer.directories)
    }


def partitions_of(cluster: MetadataResult) -> dict[TopicPartition, PartitionView]:
    """All partitions in the metadata."""
    return {
        TopicPartition(topic.name, view.partition): view
        for topic in cluster.topics
        for view in topic.partitions
    }


def topic_error(
    code: int, name: str, doing: str, operation: str, detail: str | None = None
) -> KafkaError:
    """The exception for a broker's error code about a topic."""
    advice = denied(code, operation, name) or _ADVICE.get(code)
    return broker_error(code, f"{doing} topic {name!r}", detail, advice=advice)


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
    missing_brokers: dict[int, int]
    """Brokers that are down: the metadata does not name them. Each with the number of its
    replicas."""


def describe_cluster(
    cluster: MetadataResult, quorum: DescribeQuorumResult | None
) -> ClusterDescription:
    """The description from metadata of all topics and the quorum (None with ZooKeeper). The quorum
    may be denied. Raises the broker's error if it has another one."""
    denied = quorum is not None and quorum.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
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
        {node: replicas[node] for node in sorted(replicas.keys() - up)},
    )
