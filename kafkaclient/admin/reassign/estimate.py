"""Estimates the bytes and the time of a reassignment, and which quota is safe. No I/O.

The formulas and symbols are KIP-73's (questions 1, 4 and 5). T is the quota, IN the inbound bytes
per second of a broker, N the network bandwidth of a broker, R the replication factor. Brokers count
only throttled partitions against T. So the lower bound of T, and the time, use W instead of IN: the
bytes per second that a broker replicates of the moving partitions because producers write to them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaclient.admin.reassign.plan import new_brokers
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.wire.api import PartitionView

Sizes: TypeAlias = dict[int, dict[TopicPartition, int]]
"""The bytes of each replica, by broker."""

# Seconds over which a broker averages its rate, by default: replication.quota.window.num times
# replication.quota.window.size.seconds.
QUOTA_WINDOW_S = 11.0

# Bytes of the largest fetch response, by default: replica.fetch.response.max.bytes.
FETCH_RESPONSE_BYTES = 10 * 1024 * 1024

# Share of its quota that a destination broker reaches on average, measured on Kafka 4.3. Above its
# quota it pauses fetching for replica.fetch.backoff.ms. A source broker does not pause, and reaches
# its quota.
REACHED = 0.88


class SafeRange(NamedTuple):
    """The safe quotas: W < T < N - IN/R. ``below`` and ``above`` are the excluded bounds;
    ``above`` is None if N is unknown."""

    below: float
    above: float | None
    least_network: int
    """The smallest N, in bytes per second, for which a safe quota exists."""

    @property
    def is_empty(self) -> bool:
        """Whether no quota is safe."""
        return self.above is not None and math.floor(self.below) + 1 >= self.above

    def problem(self, quota: int) -> str | None:
        """Why a quota is not safe, as a sentence; None if it is safe."""
        if self.is_empty:
            return self.why_empty()
        if quota <= self.below:
            return (
                f"with a quota of {shown(quota)}/s the reassignment would never end, because a "
                f"broker replicates {shown(self.below)}/s that producers write to the moving "
                "partitions: use a quota above that"
            )
        if self.above is not None and quota >= self.above:
            return (
                f"a quota of {shown(quota)}/s leaves clients too little network bandwidth; use a "
                f"quota below {shown(self.above)}/s (N - IN/R)"
            )
        return None

    def why_empty(self) -> str:
        """Why no quota is safe, and which bandwidth makes one safe."""
        return (
            "no quota is safe with this network bandwidth (N): a quota (T) must be above the "
            f"{shown(self.below)}/s that producers write (W), and T + IN/R must be below N. "
            f"--network-bandwidth must be at least {self.least_network} bytes per second"
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """The size of a reassignment. Bytes are sizes on disk at the time of the estimate."""

    partitions: int
    """Number of partitions that get a new replica."""
    total_partitions: int
    """Number of partitions in the cluster."""
    bytes_to_move: int
    """Bytes that all new replicas lack."""
    bytes_in: Mapping[int, int]
    """Bytes to receive, by destination broker."""
    bytes_out: Mapping[int, int]
    """Bytes to send, by source broker."""
    log_bytes_per_broker: float
    """KIP-73's TotalLogSizePerBroker: the mean over the brokers that answered."""
    brokers: int
    inbound: float
    """IN: inbound bytes per second of the busiest broker; 0.0 if not measured."""
    written_in: Mapping[int, float]
    """Bytes per second that producers write to the moving partitions, by destination broker."""
    written_out: Mapping[int, float]
    """The bytes per second that a source broker sends of them, to old and new followers."""
    replication_factor: int
    """R: the smallest replication factor that moves, which gives the narrowest safe range."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Brokers that did not answer, with the reason. The other numbers do not include them."""
    waiting: tuple[str, ...] = ()
    """Topics that refuse records with ``acks=all`` until the new replicas are in sync, at the end
    of the reassignment; see :func:`waiting_topics`."""

    skipped: tuple[TopicPartition, ...] = ()
    """Partitions that were left out, because they need a broker that is down."""
    leader_changes: int = 0
    """Number of partitions that change their leader. A leader change delays records with
    ``acks=all`` by one or two times the brokers' ``replica.fetch.backoff.ms``, with any quota."""

    @property
    def written(self) -> float:
        """W: the largest of :attr:`written_in` and :attr:`written_out`."""
        return max((*self.written_in.values(), *self.written_out.values()), default=0.0)

    @property
    def move_ratio(self) -> float:
        """The share of the cluster's partitions that move, from 0.0 to 1.0."""
        return self.partitions / self.total_partitions if self.total_partitions else 0.0

    def move_time_s(self, quota: int) -> float | None:
        """KIP-73's MoveTime in seconds, with W instead of IN; None if the reassignment never
        completes."""
        rate = quota - self.written
        if rate <= 0:
            return None
        return self.move_ratio * self.log_bytes_per_broker * self.brokers / rate

    def expected_s(self, quota: int) -> float | None:
        """The expected seconds for the busiest broker, from its own bytes and the measured rates;
        None if the reassignment never completes."""
        rates = [(n, quota * REACHED - self.written_in[at]) for at, n in self.bytes_in.items()]
        rates += [(n, quota - self.written_out[at]) for at, n in self.bytes_out.items()]
        if any(rate <= 0 for _, rate in rates):
            return None
        return max((nbytes / rate for nbytes, rate in rates), default=0.0)

    def safe_range(self, network: int | None) -> SafeRange:
        """The safe quotas. ``network`` is N, a broker's network bandwidth in bytes per second."""
        of_clients = self.inbound / self.replication_factor
        above = None if network is None else network - of_clients
        least = math.floor(math.floor(self.written) + 1 + of_clients) + 1
        return SafeRange(self.written, above, least)

    def is_coarse(self, quota: int, network: int | None = None) -> bool:
        """Whether the first fetch responses of all brokers take longer than the brokers' averaging
        window (KIP-73, question 5), so that the quota is not kept. ``network`` is N."""
        brokers = max(1, self.brokers)
        rate = quota * brokers if network is None else min(quota * brokers, network)
        return rate * QUOTA_WINDOW_S < brokers * FETCH_RESPONSE_BYTES


def estimate(
    moves: Mapping[TopicPartition, Move],
    partitions: Mapping[TopicPartition, PartitionView],
    sizes: Sizes,
    *,
    growth: Mapping[int, Mapping[TopicPartition, float]] | None = None,
    silent: Mapping[int, str] | None = None,
    min_in_sync: Mapping[str, int] | None = None,
    targets: Mapping[TopicPartition, Sequence[int]] | None = None,
    skipped: tuple[TopicPartition, ...] = (),
) -> Estimate:
    """The estimate from metadata of all partitions, the sizes on disk and their :func:`growth_of`.
    ``targets`` has the target replicas by partition."""
    grown = growth or {}
    bytes_in: Counter[int] = Counter()
    bytes_out: Counter[int] = Counter()
    written_in: defaultdict[int, float] = defaultdict(float)
    written_out: defaultdict[int, float] = defaultdict(float)
    factors = []
    for partition, move in moves.items():
        view, new = partitions[partition], new_brokers(move)
        if new:
            factors.append(len(view.replicas))
        size = size_of(partition, view.leader, sizes) if new else 0
        written = grown.get(view.leader, {}).get(partition, 0.0)
        for node in new:
            lacks = max(0, size - sizes.get(node, {}).get(partition, 0))
            bytes_in[node] += lacks
            bytes_out[view.leader] += lacks
            written_in[node] += written
        if new:  # the bytes for its in-sync followers count against the leader's quota, too
            written_out[view.leader] += written * len((new | set(view.isr)) - {view.leader})
    return Estimate(
        partitions=len(factors),
        total_partitions=len(partitions),
        bytes_to_move=bytes_in.total(),
        bytes_in=dict(bytes_in),
        bytes_out=dict(bytes_out),
        log_bytes_per_broker=(
            sum(sum(each.values()) for each in sizes.values()) / len(sizes) if sizes else 0.0
        ),
        brokers=len(sizes),
        inbound=max((sum(each.values()) for each in grown.values()), default=0.0),
        written_in=dict(written_in),
        written_out=dict(written_out),
        replication_factor=min(factors, default=1) or 1,
        silent=silent or {},
        waiting=waiting_topics(moves, partitions, min_in_sync or {}),
        skipped=skipped,
        leader_changes=sum(
            partitions[partition].leader not in target
            for partition, target in (targets or {}).items()
        ),
    )


def waiting_topics(
    moves: Mapping[TopicPartition, Move],
    partitions: Mapping[TopicPartition, PartitionView],
    min_in_sync: Mapping[str, int],
) -> tuple[str, ...]:
    """The topics that accept records with ``acks=all`` now, but not during the reassignment.

    A leader requires ``min.insync.replicas`` in-sync replicas, but at most the number of replicas
    (``Partition.effectiveMinIsr``). During a reassignment a partition has its old and its new
    replicas. So a partition with a single replica and a minimum of two refuses records until the
    new replica is in sync.
    """
    found = set()
    for partition, move in moves.items():
        least, view = min_in_sync.get(partition.topic, 1), partitions[partition]
        now = min(least, len(view.replicas))
        then = min(least, len(view.replicas) + len(new_brokers(move)))
        if now <= len(view.isr) < then:
            found.add(partition.topic)
    return tuple(sorted(found))


def growth_of(
    first: Sizes, second: Sizes, seconds: float
) -> dict[int, dict[TopicPartition, float]]:
    """The growth of each replica in bytes per second, by broker, between two readings ``seconds``
    apart. Replicas that shrank, were added or were removed do not count."""
    return {
        node: {
            p: max(0, n - first[node][p]) / seconds for p, n in after.items() if p in first[node]
        }
        for node, after in second.items()
        if node in first
    }


def size_of(partition: TopicPartition, leader: int, sizes: Sizes) -> int:
    """The size of the leader's replica, or of the largest replica if that is unknown."""
    own = sizes.get(leader, {}).get(partition)
    if own is not None:
        return own
    return max((each.get(partition, 0) for each in sizes.values()), default=0)


def shown(nbytes: float) -> str:
    """A human-readable size with decimal units: ``1,234 B``, ``12.3 KB``."""
    if abs(nbytes) < 10_000:
        return f"{nbytes:,.0f} B"
    for unit in ("KB", "MB", "GB"):
        nbytes /= 1000
        if abs(nbytes) < 1000:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1000:,.1f} TB"
