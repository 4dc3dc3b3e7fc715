"""What became of a reassignment: begun, verified. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ReassignmentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.reassign.throttle_state import Lifted, Throttles
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment
    from kafkaclient.wire.results import PartitionView

__all__ = [
    "Begun",
    "MoveState",
    "PartitionState",
    "Verification",
    "off_target",
    "some",
    "states",
]


class MoveState(Enum):
    """How a partition stands to a plan."""

    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    DIFFERENT = "different"
    """Nothing is under way, and it has other replicas."""
    MISSING = "missing"
    """There is no such partition."""


class PartitionState(NamedTuple):
    """A partition of a plan."""

    partition: TopicPartition
    state: MoveState
    target: tuple[int, ...]
    replicas: tuple[int, ...]
    """Those that it has, those that come and go among them."""

    @property
    def may_be_stale(self) -> bool:
        """Whether it looks as it does while a move is under way, though none is."""
        return self.state is MoveState.DIFFERENT and set(self.replicas) >= set(self.target)

    def __str__(self) -> str:
        """In the words of Kafka's tool."""
        if self.state is MoveState.COMPLETED:
            return f"Reassignment of partition {self.partition} is completed."
        if self.state is MoveState.IN_PROGRESS:
            return f"Reassignment of partition {self.partition} is still in progress."
        return (
            f"There is no active reassignment of partition {self.partition}, but replica set is "
            f"{_nodes(self.replicas)} rather than {_nodes(self.target)}."
        )


@dataclass(frozen=True, slots=True)
class Begun:
    """A plan whose moves have begun."""

    plan: Mapping[TopicPartition, tuple[int, ...]]
    moves: Mapping[TopicPartition, Move]
    """Of the plan, and those that were under way besides."""
    quota: int | None
    """Bytes per second that they were throttled to; None: they were not."""
    before: Mapping[TopicPartition, tuple[int, ...]]
    """The replicas that its partitions had before they began to move: the way back."""
    failed: Mapping[TopicPartition, KafkaError]
    """What did not begin, and why."""
    unthrottled: dict[int, KafkaError]
    """Brokers that are down and so have no quota yet."""

    @property
    def started(self) -> frozenset[TopicPartition]:
        return frozenset(self.plan.keys() - self.failed.keys())

    @property
    def throttled(self) -> Mapping[TopicPartition, Move]:
        return {} if self.quota is None else self.moves


@dataclass(frozen=True, slots=True)
class Verification:
    """A plan beside what is."""

    partitions: tuple[PartitionState, ...]
    idle: bool
    """Nothing is under way in the whole cluster."""
    lifted: Lifted | None
    """The throttles that were taken away; None when they were to be preserved."""
    throttles: Throttles
    """Of the plan's topics and the brokers that are up, as they were told right afterwards: a
    broker may not have heard of the latest changes."""

    @property
    def in_progress(self) -> bool:
        return any(each.state is MoveState.IN_PROGRESS for each in self.partitions)

    @property
    def completed(self) -> bool:
        return all(each.state is MoveState.COMPLETED for each in self.partitions)


def states(
    plan: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    views: Mapping[TopicPartition, PartitionView],
) -> tuple[PartitionState, ...]:
    """Where a plan's partitions are, in their order."""
    found = []
    for partition, target in sorted(plan.items()):
        wanted = tuple(target)
        if partition in ongoing:
            underway = ongoing[partition].replicas
            found.append(PartitionState(partition, MoveState.IN_PROGRESS, wanted, underway))
            continue
        view = views.get(partition)
        replicas = () if view is None else view.replicas
        state = MoveState.MISSING if view is None else MoveState.DIFFERENT
        if replicas == wanted:
            state = MoveState.COMPLETED
        found.append(PartitionState(partition, state, wanted, replicas))
    return tuple(found)


def off_target(found: Iterable[PartitionState]) -> dict[TopicPartition, KafkaError]:
    """What did not arrive, though its move is over: somebody else cancelled or changed it."""
    return {
        each.partition: ReassignmentError(
            f"{each.partition} has the replicas {_nodes(each.replicas)} rather than "
            f"{_nodes(each.target)}: somebody else cancelled or changed its move"
        )
        for each in found
        if each.state is not MoveState.COMPLETED
    }


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def some(partitions: Iterable[TopicPartition]) -> str:
    """The first of them by name, and how many more."""
    names = sorted(map(str, partitions))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
