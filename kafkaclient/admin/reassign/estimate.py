"""What a quota means for a reassignment: how much moves, for how long, and which quota is safe.

The formulas are KIP-73's (its questions 1, 4 and 5), with its symbols: T the quota, IN the bytes
per second that come into a broker, N what its network carries, R the replication factor. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaclient.admin.reassign.moves import arrivals
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.wire.results import PartitionView

__all__ = ["Estimate", "SafeRange", "Sizes", "estimate"]

Sizes: TypeAlias = dict[int, dict[TopicPartition, int]]
"""By broker, the bytes of each of its replicas."""

QUOTA_WINDOW_S = 11.0
"""``replication.quota.window.num`` times ``.size.seconds``, by default."""

FETCH_RESPONSE_BYTES = 10 * 1024 * 1024
"""``replica.fetch.response.max.bytes``, by default: what comes at once."""

REACHED = 0.88
"""The share of its quota that a broker takes over the whole time of a move, as seen on Kafka 4.3:
when it is above, it asks again a second later (``replica.fetch.backoff.ms``). One that gives does
not wait so, and reaches its quota."""


class SafeRange(NamedTuple):
    """IN < T < N - IN/R, both ends excluded; ``above`` is None when N is not known."""

    below: float
    above: float | None
    least_network: int
    """The smallest N, in bytes per second, with which a quota is safe."""

    @property
    def is_empty(self) -> bool:
        """Whether no quota is safe."""
        return self.above is not None and math.floor(self.below) + 1 >= self.above

    def problem(self, quota: int) -> str | None:
        """What is wrong with a quota, in words; None: it is safe."""
        if self.is_empty:
            return self.why_empty()
        if quota <= self.below:
            return (
                f"{shown(self.below)}/s come into a broker, so that with a quota of "
                f"{shown(quota)}/s the moves would never end: it has to be above that"
            )
        if self.above is not None and quota >= self.above:
            return (
                f"a quota of {shown(quota)}/s leaves clients too little of the network: it has to "
                f"be below {shown(self.above)}/s (N - IN/R)"
            )
        return None

    def why_empty(self) -> str:
        """Why no quota is safe, and what would help."""
        return (
            "no quota is safe with this network bandwidth (N): a quota (T) has to be above the "
            f"{shown(self.below)}/s that come into a broker (IN), and T + IN/R has to be below N. "
            f"--network-bandwidth has to be at least {self.least_network} bytes per second"
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """How much a reassignment moves. Bytes are those on disk when it was made."""

    partitions: int
    """That get a replica on a broker that has none of them yet."""
    total_partitions: int
    """Of the cluster."""
    bytes_to_move: int
    """Over all new replicas."""
    bytes_in: Mapping[int, int]
    """By broker that gets replicas."""
    bytes_out: Mapping[int, int]
    """By broker that is copied from."""
    log_bytes_per_broker: float
    """The mean over all brokers that answered: TotalLogSizePerBroker."""
    brokers: int
    inbound: float
    """IN: bytes per second that came into the busiest broker, replication included; 0.0 when
    that was not measured."""
    replication_factor: int
    """R: the smallest among what moves, which makes the safe range the narrowest."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Brokers that did not tell what they have, and why: all the rest is without them."""
    waiting: tuple[str, ...] = ()
    """Topics whose records with acks=all are refused until new replicas are in sync, which is
    until the end of the move; see :func:`waiting_topics`."""

    leader_changes: int = 0
    """Partitions that get another leader. Each of them holds up records with ``acks=all`` once, for
    one or two times ``replica.fetch.backoff.ms`` of the brokers, whatever the quota is."""

    @property
    def move_ratio(self) -> float:
        """#partitions to be moved / #total partition count."""
        return self.partitions / self.total_partitions if self.total_partitions else 0.0

    def move_time_s(self, quota: int) -> float | None:
        """KIP-73's MoveTime; None: it never ends."""
        rate = quota - self.inbound
        if rate <= 0:
            return None
        return self.move_ratio * self.log_bytes_per_broker * self.brokers / rate

    def expected_s(self, quota: int) -> float | None:
        """What the busiest broker needs for what it really has to give or to take, at the rate
        that moves are seen to have; None: it never ends."""
        taken, given = quota * REACHED - self.inbound, quota - self.inbound
        if taken <= 0:
            return None
        return max(
            max(self.bytes_in.values(), default=0) / taken,
            max(self.bytes_out.values(), default=0) / given,
        )

    def safe_range(self, network: int | None) -> SafeRange:
        """``network``: N, bytes per second that a broker's network carries."""
        of_clients = self.inbound / self.replication_factor
        above = None if network is None else network - of_clients
        least = math.floor(math.floor(self.inbound) + 1 + of_clients) + 1
        return SafeRange(self.inbound, above, least)

    def is_coarse(self, quota: int) -> bool:
        """Whether so low a quota is exceeded by a single fetch for longer than brokers look back
        (KIP-73, question 5)."""
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
    """From metadata of all partitions and what is on the disks. ``targets``: the replicas that the
    partitions are to have."""
    bytes_in: Counter[int] = Counter()
    bytes_out: Counter[int] = Counter()
    moving = 0
    for partition, move in moves.items():
        new = arrivals(move)
        if not new:
            continue
        moving += 1
        leader = partitions[partition].leader
        size = size_of(partition, leader, sizes)
        for node in new:
            bytes_in[node] += size
            bytes_out[leader] += size
    factors = [len(partitions[p].replicas) for p, move in moves.items() if arrivals(move)]
    return Estimate(
        partitions=moving,
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
    """Topics that take records with acks=all now, and will not while they move.

    A leader asks for ``min.insync.replicas``, but for no more than there are replicas
    (``Partition.effectiveMinIsr``). While a partition moves it has its old and its new replicas, so
    that one with a single replica and a minimum of two stops until the new one is in sync.
    """
    found = set()
    for partition, move in moves.items():
        least, view = min_in_sync.get(partition.topic, 1), partitions[partition]
        now = min(least, len(view.replicas))
        then = min(least, len(view.replicas) + len(arrivals(move)))
        if now <= len(view.isr) < then:
            found.add(partition.topic)
    return tuple(sorted(found))


def inbound_rate(first: Sizes, second: Sizes, seconds: float) -> float:
    """IN, from two readings ``seconds`` apart: how fast the logs of the busiest broker grew.
    Replicas that shrank or went count nothing, those that came neither."""
    grown = [
        sum(max(0, size - first[node][p]) for p, size in after.items() if p in first[node])
        for node, after in second.items()
        if node in first
    ]
    return max(grown, default=0) / seconds


def size_of(partition: TopicPartition, leader: int, sizes: Sizes) -> int:
    """The leader's size of a partition, or the largest when that is not known."""
    own = sizes.get(leader, {}).get(partition)
    if own is not None:
        return own
    return max((each.get(partition, 0) for each in sizes.values()), default=0)


def shown(nbytes: float) -> str:
    """Bytes for people: 1,234 B, 12.3 KB, in thousands."""
    if abs(nbytes) < 10_000:
        return f"{nbytes:,.0f} B"
    for unit in ("KB", "MB", "GB"):
        nbytes /= 1000
        if abs(nbytes) < 1000:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1000:,.1f} TB"
