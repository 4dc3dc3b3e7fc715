"""The results of starting and verifying a reassignment, and of clearing throttles. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.reassign.plan import moving_brokers
from kafkaclient.errors import ReassignmentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.reassign.throttle_marks import BrokerThrottle, TopicThrottle
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment
    from kafkaclient.wire.results import PartitionView


class MoveState(Enum):
    """The state of a partition's reassignment to a plan."""

    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    DIFFERENT = "different"
    """The partition is not being reassigned, and has other replicas than the plan."""
    MISSING = "missing"
    """The partition does not exist."""


class PartitionState(NamedTuple):
    """The target and the current replicas of a partition."""

    partition: TopicPartition
    state: MoveState
    target: tuple[int, ...]
    replicas: tuple[int, ...]
    """The current replicas, including replicas that are being added or removed."""

    @property
    def may_be_stale(self) -> bool:
        """Whether the replicas look like an ongoing reassignment although there is none."""
        return self.state is MoveState.DIFFERENT and set(self.replicas) >= set(self.target)

    def __str__(self) -> str:
        """The sentence that Kafka's tool prints."""
        if self.state is MoveState.COMPLETED:
            return f"Reassignment of partition {self.partition} is completed."
        if self.state is MoveState.IN_PROGRESS:
            return f"Reassignment of partition {self.partition} is still in progress."
        if self.state is MoveState.MISSING:
            return f"Partition {self.partition} does not exist."
        return (
            f"There is no active reassignment of partition {self.partition}, but replica set is "
            f"{_nodes(self.replicas)} rather than {_nodes(self.target)}."
        )


@dataclass(frozen=True, slots=True)
class Begun:
    """A plan whose reassignments have started."""

    plan: Mapping[TopicPartition, tuple[int, ...]]
    moves: Mapping[TopicPartition, Move]
    """The moves of the plan, and the other ongoing moves."""
    quota: int | None
    """The quota in bytes per second; None: the moves are not throttled."""
    before: Mapping[TopicPartition, tuple[int, ...]]
    """The replicas of the partitions before the reassignment, for a rollback."""
    failed: Mapping[TopicPartition, KafkaError]
    """The partitions whose reassignment did not start, with the error."""
    unthrottled: dict[int, KafkaError]
    """The brokers without a quota because they are down."""

    @property
    def started(self) -> frozenset[TopicPartition]:
        return frozenset(self.plan.keys() - self.failed.keys())

    @property
    def throttled(self) -> Mapping[TopicPartition, Move]:
        return {} if self.quota is None else self.moves

    @property
    def with_rates(self) -> frozenset[int]:
        """The brokers that have the quota."""
        return moving_brokers(self.throttled) - self.unthrottled.keys()


@dataclass(frozen=True, slots=True)
class Throttles:
    """All throttles of a cluster. ``failures`` has the brokers that did not answer,
    ``topic_failures`` the topics whose configuration this client may not describe. ``defaults`` has
    the rates of the broker defaults, for brokers without a rate of their own."""

    topics: Mapping[str, TopicThrottle]
    brokers: Mapping[int, BrokerThrottle]
    failures: Mapping[int, KafkaError] = field(default_factory=dict)
    topic_failures: Mapping[str, KafkaError] = field(default_factory=dict)
    defaults: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lifted:
    """The throttles that were cleared, the throttles that are still needed, and the failures."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    needed_topics: tuple[str, ...] = ()
    needed_brokers: tuple[int, ...] = ()
    failures: Mapping[str, KafkaError] = field(default_factory=dict)
    """The errors by description, as in ``broker 1``."""
    defaults: tuple[str, ...] = ()
    """The keys of the broker defaults that were deleted."""

    @property
    def left(self) -> dict[str, KafkaError]:
        return {f"the throttle of {what}": error for what, error in self.failures.items()}


@dataclass(frozen=True, slots=True)
class Verification:
    """The state of a plan's partitions and throttles."""

    partitions: tuple[PartitionState, ...]
    idle: bool
    """Whether the cluster has no ongoing reassignment at all."""
    lifted: Lifted | None
    """The throttles that were removed; None if they are preserved."""
    throttles: Throttles
    """The throttles of the plan's topics and the live brokers after that. The broker that answered
    may not know the latest changes."""

    @property
    def in_progress(self) -> bool:
        return any(one.state is MoveState.IN_PROGRESS for one in self.partitions)

    @property
    def completed(self) -> bool:
        return all(one.state is MoveState.COMPLETED for one in self.partitions)


def states(
    plan: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    views: Mapping[TopicPartition, PartitionView],
) -> tuple[PartitionState, ...]:
    """The states of a plan's partitions, sorted."""
    found = []
    for partition, target in sorted(plan.items()):
        wanted, state = tuple(target), MoveState.MISSING
        replicas: tuple[int, ...] = ()
        if partition in ongoing:
            state, replicas = MoveState.IN_PROGRESS, ongoing[partition].replicas
        elif partition in views:
            replicas = views[partition].replicas
            state = MoveState.COMPLETED if replicas == wanted else MoveState.DIFFERENT
        found.append(PartitionState(partition, state, wanted, replicas))
    return tuple(found)


def off_target(found: Iterable[PartitionState]) -> dict[TopicPartition, KafkaError]:
    """Errors for partitions without their target replicas although their reassignment has ended."""
    return {
        one.partition: ReassignmentError(
            f"{one.partition} no longer exists: its topic was deleted"
            if one.state is MoveState.MISSING
            else f"{one.partition} has the replicas {_nodes(one.replicas)} rather than "
            f"{_nodes(one.target)}: another client cancelled or changed the reassignment"
        )
        for one in found
        if one.state is not MoveState.COMPLETED
    }


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def some(partitions: Iterable[TopicPartition]) -> str:
    """The first five names, and the number of the others."""
    names = sorted(map(str, partitions))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
