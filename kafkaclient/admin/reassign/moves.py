"""Which replicas a reassignment reads from and writes to, and so which of them are throttled.

After ``ReassignPartitionsCommand.calculateProposedMoveMap`` and its ``calculateLeaderThrottles``
and ``calculateFollowerThrottles``. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment

__all__ = [
    "Move",
    "arrivals",
    "bootstrap_map",
    "follower_replicas",
    "leader_replicas",
    "move_map",
    "moving_brokers",
    "names_partition",
]


class Move(NamedTuple):
    """A partition's replicas that others may copy from, and those that are to be made."""

    sources: frozenset[int]
    destinations: frozenset[int]


def current_move(ongoing: OngoingReassignment) -> Move:
    """The move that is under way."""
    adding = frozenset(ongoing.adding)
    return Move(frozenset(ongoing.replicas) - adding, adding)


def move_map(
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    present: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """The moves as they will be: those proposed, and those under way that the proposal leaves
    alone. ``present`` has the replicas of the proposed partitions.

    A partition is read from every replica that it has before its move, as any may come to lead it.
    """
    moves = {partition: current_move(each) for partition, each in ongoing.items()}
    for partition, target in proposed.items():
        underway = moves.get(partition)
        sources = frozenset(present[partition]) if underway is None else underway.sources
        moves[partition] = Move(sources, frozenset(target) - sources)
    return moves


def bootstrap_map(
    brokers: Iterable[int], present: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, Move]:
    """What brokers read that start empty, or have much to catch up with (KIP-73, question 2): all
    of their replicas, from the other replicas of the same partitions."""
    joining = frozenset(brokers)
    return {
        partition: Move(frozenset(replicas) - joining, joining & frozenset(replicas))
        for partition, replicas in present.items()
        if not joining.isdisjoint(replicas)
    }


def leader_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, ...]]:
    """By topic, the elements of ``leader.replication.throttled.replicas``, in Kafka's order."""
    return _elements({partition: move.sources for partition, move in moves.items()})


def follower_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, ...]]:
    """By topic, the elements of ``follower.replication.throttled.replicas``, in Kafka's order."""
    return _elements({partition: arrivals(move) for partition, move in moves.items()})


def arrivals(move: Move) -> frozenset[int]:
    """The brokers that get a replica which they do not have."""
    return move.destinations - move.sources


def moving_brokers(moves: Mapping[TopicPartition, Move]) -> frozenset[int]:
    """Every broker that is read from or written to."""
    return frozenset().union(*(move.sources | move.destinations for move in moves.values()))


def names_partition(element: str, partitions: Iterable[int]) -> bool:
    """Whether an element of a list is about one of these partitions of its topic."""
    return element.partition(":")[0] in {str(partition) for partition in partitions}


def _elements(
    brokers: Mapping[TopicPartition, Iterable[int]],
) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = defaultdict(set)
    for (topic, partition), nodes in brokers.items():
        found[topic].update(f"{partition}:{node}" for node in nodes)
    # Sorted as text, like Kafka's tool does: 10:1 comes before 2:1.
    return {topic: tuple(sorted(elements)) for topic, elements in found.items() if elements}
