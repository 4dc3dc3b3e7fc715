"""Estimates the bytes and the time of a reassignment, and which quota is safe. No I/O.

The formulas and symbols are KIP-73's (questions 1, 4 and 5). T is the quota, IN the inbound bytes
per second of a broker, N the network bandwidth of a broker, R the replication factor.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaclient.admin.reassign.moves import new_brokers
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.wire.results import PartitionView

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
    """The safe quotas: IN < T < N - IN/R. ``below`` and ``above`` are the excluded bounds;
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
                f"with a quota of {shown(quota)}/s the reassignment would never end, because "
                f"{shown(self.below)}/s come into a broker: use a quota above that"
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
            f"{shown(self.below)}/s that come into a broker (IN), and T + IN/R must be below N. "
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
    """Bytes of all new replicas."""
    bytes_in: Mapping[int, int]
    """Bytes to receive, by destination broker."""
    bytes_out: Mapping[int, int]
    """Bytes to send, by source broker."""
    log_bytes_per_broker: float
    """KIP-73's TotalLogSizePerBroker: the mean over the brokers that answered."""
    brokers: int
    inbound: float
    """IN: inbound bytes per second of the busiest broker; 0.0 if not measured."""
    replication_factor: int
    """R: the smallest replication factor that moves, which gives the narrowest safe range."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Brokers that did not answer, with the reason. The other numbers do not include them."""
    waiting: tuple[str, ...] = ()
    """Topics that refuse records with ``acks=all`` until the new replicas are in sync, at the end
    of the reassignment; see :func:`waiting_topics`."""

    leader_changes: int = 0
    """Number of partitions that change their leader. A leader change delays records with
    ``acks=all`` by one or two times the brokers' ``replica.fetch.backoff.ms``, with any quota."""

    @property
    def move_ratio(self) -> float:
        """The share of the cluster's partitions that move, from 0.0 to 1.0."""
        return self.partitions / self.total_partitions if self.total_partitions else 0.0

    def move_time_s(self, quota: int) -> float | None:
        """KIP-73's MoveTime in seconds; None if the reassignment never completes."""
        rate = quota - self.inbound
        if rate <= 0:
            return None
        return self.move_ratio * self.log_bytes_per_broker * self.brokers / rate

    def expected_s(self, quota: int) -> float | None:
        """The expected seconds for the busiest broker, from its own bytes and the measured rates;
        None if the reassignment never completes."""
        rate_in, rate_out = quota * REACHED - self.inbound, quota - self.inbound
        if rate_in <= 0:
            return None
        return max(
            max(self.bytes_in.values(), default=0) / rate_in,
            max(self.bytes_out.values(), default=0) / rate_out,
        )

    def safe_range(self, network: int | None) -> SafeRange:
        """The safe quotas. ``network`` is N, a broker's network bandwidth in bytes per second."""
        of_clients = self.inbound / self.replication_factor
        above = None if network is None else network - of_clients
        least = math.floor(math.floor(self.inbound) + 1 + of_clients) + 1
        return SafeRange(self.inbound, above, least)

    def is_coarse(self, quota: int) -> bool:
        """Whether the quota is too low to be kept: a single fetch response exceeds it for longer
        than the brokers' averaging window (KIP-73, question 5)."""
        return quota * QUOTA_WINDOW_S < FETCH_RESPONSE_BYTES


def estimate(
    moves: Mapping[TopicPartition, Move],
    partitions: Mapping[TopicPartition, PartitionView],
    sizes: Sizes,
    *,
    inbound: float = 0.0,
    silent: Mapping[int, str] | None = None,
    min_in_sync: Mapping[str, int] | None = None,
    targets: Mapping[TopicPartition, Sequence[int]] | None = None,
) -> Estimate:
    """The estimate from metadata of all partitions and the sizes on disk. ``targets`` has the
    target replicas by partition."""
    bytes_in: Counter[int] = Counter()
    bytes_out: Counter[int] = Counter()
    factors = []
    for partition, move in moves.items():
        view, new = partitions[partition], new_brokers(move)
        if new:
            factors.append(len(view.replicas))
        size = size_of(partition, view.leader, sizes) if new else 0
        for node in new:
            bytes_in[node] += size
            bytes_out[view.leader] += size
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
        inbound=inbound,
        replication_factor=min(factors, default=1) or 1,
        silent=silent or {},
        waiting=waiting_topics(moves, partitions, min_in_sync or {}),
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


def inbound_rate(first: Sizes, second: Sizes, seconds: float) -> float:
    """IN: the growth of the busiest broker's logs in bytes per second, between two readings
    ``seconds`` apart. Replicas that shrank, were added or were removed do not count."""
    grown = [
        sum(max(0, size - first[node][p]) for p, size in after.items() if p in first[node])
        for node, after in second.items()
        if node in first
    ]
    return max(grown, default=0) / seconds


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
