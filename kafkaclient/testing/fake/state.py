"""The state of a fake cluster: its brokers, and what they share."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.classic_groups import ClassicGroupCoordinator
from kafkaclient.testing.fake.consumer_groups import ConsumerGroupCoordinator
from kafkaclient.testing.fake.fetch_sessions import FakeFetchSessions
from kafkaclient.testing.fake.log import (
    NO_LEADER,
    FakePartition,
    FakeTopic,
    RefusedError,
    ScriptedError,
)
from kafkaclient.testing.fake.transactions import TransactionCoordinator

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from kafkaclient.testing.fake.interceptors import Answer, Control, Request
    from kafkaclient.testing.fake.serving import Sasl

_Failures: TypeAlias = "defaultdict[tuple[str, int], deque[ScriptedError]]"
"""(topic, partition) -> the errors of the partition in the next requests."""


class _Connection(Protocol):
    """A client connection that a test can stall and resume."""

    transport: asyncio.Transport

    def stall(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(slots=True, eq=False)
class FakeBroker:
    """The address and state of one broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    running: bool = True
    fenced: bool = False
    """Whether the cluster has noticed that the broker is down."""
    cordoned: bool = False
    stalled: bool = False
    swallows_dials: bool = False
    produce_delay_s: float = 0.0
    produce_delays_overlap: bool = False
    throttle_ms: int = 0
    connections: set[_Connection] = field(default_factory=set)
    dials: list[asyncio.Future[None]] = field(default_factory=list)
    """The connection attempts that wait until ``swallows_dials`` is False."""


class ClientMetrics(NamedTuple):
    """Which metrics brokers want of clients; see :meth:`FakeCluster.subscribe_metrics`."""

    subscription_id: int
    requested_metrics: tuple[str, ...]
    push_interval_ms: int
    compression_types: tuple[int, ...]
    delta_temporality: bool
    max_bytes: int


class ClusterState:
    """The state of a cluster, which the modules of the APIs read and change."""

    cluster_id = "fake-cluster"

    def __init__(
        self,
        brokers: Sequence[FakeBroker],
        versions: dict[int, tuple[int, int]],
        *,
        default_partitions: int,
        auto_create_topics: bool,
        now: Callable[[], float],
        sasl: Sasl | None,
        transactions_v2: bool,
        closes_api_versions_above: int | None,
    ) -> None:
        self.brokers = {broker.node_id: broker for broker in brokers}
        self.versions = versions
        self.now = now
        self.sasl = sasl
        self.closes_api_versions_above = closes_api_versions_above
        self.default_partitions = default_partitions
        self.auto_create_topics = auto_create_topics
        self.topics: dict[str, FakeTopic] = {}
        self.topic_names: dict[UUID, str] = {}
        """Topic id -> name, also of deleted topics."""
        self.broker_configs: dict[str, dict[str, str]] = {}
        """The dynamic configuration by broker id; "" is the default of all brokers."""
        self.transactions_v2 = transactions_v2
        self.transactions = TransactionCoordinator(self)
        self.groups = ClassicGroupCoordinator()
        self.consumer_groups = ConsumerGroupCoordinator()
        self.produce_failures: _Failures = defaultdict(deque)
        self.fetch_failures: _Failures = defaultdict(deque)
        self.interceptors: list[Control] = []
        self.client_metrics: ClientMetrics | None = None
        self.rack_aware_fetch = False
        self.fetch_sessions = FakeFetchSessions()
        self.waiting_fetches: set[Callable[[], None]] = set()
        """Each answers a Fetch request if it has enough records now."""
        self._producer_ids = count(1000)
        self._topic_ids = count(1)
        self._client_instance_ids = count(1)

    def intercept(self, request: Request) -> Answer:
        """The answer of the first interceptor that has one."""
        answers = (control.answer(request) for control in self.interceptors)
        answer = next((answer for answer in answers if answer is not None), None)
        self.interceptors = [control for control in self.interceptors if control.active]
        return answer

    def serve_waiting_fetches(self) -> None:
        """Answer the Fetch requests that waited for a change of the logs."""
        for serve in list(self.waiting_fetches):
            serve()

    def next_failure(self, failures: _Failures, topic: str, index: int) -> ScriptedError | None:
        waiting = failures[topic, index]
        return waiting.popleft() if waiting else None

    def is_alive(self, node_id: int) -> bool:
        return node_id in self.brokers and not self.brokers[node_id].fenced

    def alive_brokers(self) -> list[int]:
        """The node ids of brokers that are not fenced, in order."""
        return [node_id for node_id, broker in self.brokers.items() if not broker.fenced]

    def endpoint(self, node_id: int) -> dict[str, Any]:
        """The fields of a broker in responses."""
        broker = self.brokers[node_id]
        names = ("node_id", "host", "port", "rack")
        return {name: getattr(broker, name) for name in names}

    def new_client_instance_id(self) -> UUID:
        return UUID(int=next(self._client_instance_ids))

    def new_producer_id(self) -> int:
        return next(self._producer_ids)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and the groups' offsets in it."""
        del self.topics[name]
        committed = self.transactions.committed
        for each in [each for each in committed if each[1] == name]:
            del committed[each]

    def partition(self, topic: str, index: int) -> FakePartition:
        """Raises RefusedError if the partition does not exist."""
        if not self.has_partition(topic, index):
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.topics[topic].partitions[index]

    def has_partition(self, topic: str, index: int) -> bool:
        return topic in self.topics and 0 <= index < len(self.topics[topic].partitions)

    def name_of(self, requested: Any) -> str:
        """The name of the topic that a request names by id. Raises RefusedError if it does not
        exist."""
        name = self.topic_names.get(requested.topic_id, "")
        if name not in self.topics or self.topics[name].topic_id != requested.topic_id:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    def not_led(
        self,
        partition: FakePartition,
        moved: set[int],
        code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ) -> RefusedError:
        """The error of a partition with another leader, which names the leader (KIP-951). Adds a
        leader that is alive to ``moved``."""
        if self.is_alive(partition.leader):
            moved.add(partition.leader)
        hint = {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}
        return RefusedError(code, current_leader=hint)

    def endpoints(self, nodes: set[int]) -> list[dict[str, Any]]:
        """The addresses of brokers in responses."""
        return [self.endpoint(node_id) for node_id in sorted(nodes)]

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int = 1,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. ``assignments``: the replicas by partition, the leader first."""
        # Never the null id. A topic that is created again gets a new id.
        topic = FakeTopic(name, UUID(int=next(self._topic_ids)), configs=dict(configs or {}))
        if assignments is None:
            total = self.default_partitions if partitions is None else partitions
            assignments = [self._spread(index, replication_factor) for index in range(total)]
        self.topics[name] = topic
        self.topic_names[topic.topic_id] = name
        self.add_partitions(topic, assignments)

    def add_partitions(self, topic: FakeTopic, assignments: Sequence[Sequence[int]]) -> None:
        for replicas in assignments:
            isr = [node_id for node_id in replicas if self.is_alive(node_id)]
            topic.partitions.append(
                FakePartition(
                    topic.name,
                    len(topic.partitions),
                    replicas=list(replicas),
                    isr=isr,
                    leader=isr[0] if isr else NO_LEADER,
                )
            )

    def grow_topic(self, topic: FakeTopic, total: int) -> None:
        replication = len(topic.partitions[0].replicas)
        indices = range(len(topic.partitions), total)
        self.add_partitions(topic, [self._spread(index, replication) for index in indices])

    def _spread(self, index: int, replication_factor: int) -> list[int]:
        """The replicas of a partition: its leader is broker ``index`` in a cycle of the brokers.
        Brokers that are down come last, cordoned ones get none."""
        nodes = [node for node, broker in self.brokers.items() if not broker.cordoned]
        cycle = [nodes[(index + offset) % len(nodes)] for offset in range(len(nodes))]
        return sorted(cycle, key=lambda node: not self.is_alive(node))[:replication_factor]

    def broker_left(self, node_id: int) -> None:
        """Fence a broker. Its partitions elect another in-sync replica, or have no leader."""
        self.brokers[node_id].fenced = True
        for partition in self._partitions_of(node_id):
            if node_id in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(node_id)
            if partition.leader == node_id:
                candidates = [node for node in partition.isr if self.is_alive(node)]
                partition.elect(candidates[0] if candidates else NO_LEADER)

    def broker_joined(self, node_id: int) -> None:
        """Unfence a broker. It is in sync at once, and leads its partitions without a leader."""
        self.brokers[node_id].fenced = False
        for partition in self._partitions_of(node_id):
            if partition.leader == NO_LEADER and node_id in partition.isr:
                partition.elect(node_id)
            if node_id not in partition.isr:
                partition.isr.append(node_id)

    def _partitions_of(self, node_id: int) -> list[FakePartition]:
        return [
            partition
            for topic in self.topics.values()
            for partition in topic.partitions
            if node_id in partition.replicas
        ]
