"""The source and destination replicas of a reassignment: the replicas to throttle. No I/O.

Java: ``ReassignPartitionsCommand.calculateProposedMoveMap``, ``calculateLeaderThrottles`` and
``calculateFollowerThrottles``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment
    from kafkaclient.wire.results import PartitionView


class Move(NamedTuple):
    """The brokers from which a partition's new replicas may copy, and the brokers that get them."""

    sources: frozenset[int]
    destinations: frozenset[int]


def current_move(ongoing: OngoingReassignment) -> Move:
    """The move of an ongoing reassignment."""
    adding = frozenset(ongoing.adding)
    return Move(frozenset(ongoing.replicas) - adding, adding)


def move_map(
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    present: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """The proposed moves, and the ongoing moves of other partitions. ``present`` has the current
    replicas of the proposed partitions.

    Every replica that a partition has before its move is a source, because it may become leader.
    """
    moves = {partition: current_move(state) for partition, state in ongoing.items()}
    for partition, target in proposed.items():
        underway = moves.get(partition)
        sources = frozenset(present[partition]) if underway is None else underway.sources
        moves[partition] = Move(sources, frozenset(target) - sources)
    return moves


def throttle_map(
    moves: Mapping[TopicPartition, Move],
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """The replicas to throttle for ``moves``. An ongoing reassignment may be complete before the
    controller gets the partition's new target: its new replicas are then the sources."""
    found = dict(moves)
    for partition in ongoing.keys() & proposed.keys():
        state, (sources, destinations) = ongoing[partition], moves[partition]
        completed = frozenset(state.replicas) - frozenset(state.removing)
        later = frozenset(proposed[partition]) - completed
        found[partition] = Move(sources | completed, destinations | later)
    return found


def bootstrap_map(
    brokers: Iterable[int], present: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, Move]:
    """The moves of brokers that are empty or far behind (KIP-73, question 2). All their replicas
    are destinations, the other replicas of the same partitions are sources."""
    joining = frozenset(brokers)
    return {
        partition: Move(frozenset(replicas) - joining, joining & frozenset(replicas))
        for partition, replicas in present.items()
        if not joining.isdisjoint(replicas)
    }


def in_sync(view: PartitionView, live: Container[int]) -> frozenset[int]:
    """The in-sync replicas on brokers that are up. The ISR may still have its last, dead leader."""
    return frozenset(node for node in view.replicas if node in view.isr and node in live)


def leaves_fewer_in_sync(
    view: PartitionView, move: Move, target: Sequence[int], live: Container[int]
) -> bool:
    """Whether a move removes live in-sync replicas without replacement, and keeps a replica that
    is down or not in sync. New replicas are in sync at the end, or the move does not end."""
    now, new = in_sync(view, live), new_brokers(move)
    kept = frozenset(target) - new
    return not kept <= now and len(kept & now) + len(new) < len(now)


def leader_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, ...]]:
    """By topic, the elements of ``leader.replication.throttled.replicas``, in Kafka's order."""
    return _elements({partition: move.sources for partition, move in moves.items()})


def follower_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, ...]]:
    """By topic, the elements of ``follower.replication.throttled.replicas``, in Kafka's order."""
    return _elements({partition: move.destinations for partition, move in moves.items()})


def new_brokers(move: Move) -> frozenset[int]:
    """The brokers that get a new replica."""
    return move.destinations - move.sources


def moving_brokers(moves: Mapping[TopicPartition, Move]) -> frozenset[int]:
    """All source and destination brokers."""
    return frozenset().union(*(move.sources | move.destinations for move in moves.values()))


def _elements(brokers: Mapping[TopicPartition, Iterable[int]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = defaultdict(set)
    for (topic, partition), nodes in brokers.items():
        found[topic].update(f"{partition}:{node}" for node in nodes)
    # Kafka's tool also sorts as text: 10:1 is before 2:1.
    return {topic: tuple(sorted(elements)) for topic, elements in found.items() if elements}
