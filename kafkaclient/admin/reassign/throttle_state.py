"""The throttles of a cluster, and the decision which of them to lift. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.reassign.throttle_marks import (
    EVERY_REPLICA,
    MARK,
    BrokerMark,
    ThrottledReplicas,
)
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kafkaclient.errors import KafkaError

__all__ = ["BrokerThrottle", "LiftPlan", "Lifted", "Throttles", "TopicThrottle", "plan_lift"]


class TopicThrottle(NamedTuple):
    """The two lists of throttled replicas of a topic."""

    leader: ThrottledReplicas
    follower: ThrottledReplicas

    @property
    def marked(self) -> bool:
        return self.leader.marked or self.follower.marked

    @property
    def any(self) -> bool:
        return bool(self.leader.value or self.follower.value)

    def mentions(self, partition: int) -> bool:
        """Whether this package or another tool throttles a replica of the partition."""
        listed = {element for one in self for element in (*one.before, *(one.ours or ()))}
        return EVERY_REPLICA in listed or any(e.startswith(f"{partition}:") for e in listed)

    def ours(self) -> frozenset[str]:
        return frozenset((*(self.leader.ours or ()), *(self.follower.ours or ())))


class BrokerThrottle(NamedTuple):
    """The rates of a broker in bytes per second, by key, and the marks of this package. There are
    several marks if operators set rates at the same time."""

    rates: Mapping[str, int]
    marks: tuple[BrokerMark, ...] = ()

    @property
    def mark(self) -> BrokerMark | None:
        """The mark that matches the current rates, else the first mark."""
        matching = (mark for mark in self.marks if mark.rate in self.rates.values())
        return next(matching, self.marks[0] if self.marks else None)

    def restored(self) -> dict[str, int | None]:
        """The rates to restore when the marks are deleted (None: delete the rate). A rate that
        another tool has changed is not restored."""
        return {} if self.mark is None else self.mark.restored(self.rates)


@dataclass(frozen=True, slots=True)
class Throttles:
    """All throttles of a cluster. ``failures`` has the brokers that did not answer,
    ``topic_failures`` the topics whose configuration this client may not describe."""

    topics: Mapping[str, TopicThrottle]
    brokers: Mapping[int, BrokerThrottle]
    failures: Mapping[int, KafkaError] = field(default_factory=dict)
    topic_failures: Mapping[str, KafkaError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiftPlan:
    """The throttles to lift, and the throttles that are still needed."""

    topics: Mapping[str, TopicThrottle]
    """The elements to remove, by topic."""
    brokers: Mapping[int, BrokerThrottle]
    """The current throttles of brokers whose earlier rates are to be restored."""
    needed_topics: tuple[str, ...]
    needed_brokers: tuple[int, ...]
    failures: Mapping[str, KafkaError]

    @property
    def any(self) -> bool:
        return bool(self.topics or self.brokers)


@dataclass(frozen=True, slots=True)
class Lifted:
    """The throttles that were removed, the throttles that are still needed, and the failures."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    needed_topics: tuple[str, ...] = ()
    needed_brokers: tuple[int, ...] = ()
    failures: Mapping[str, KafkaError] = field(default_factory=dict)
    """The errors by description, as in ``broker 1``."""


def plan_lift(
    topics: Mapping[str, TopicThrottle],
    hidden: Mapping[str, KafkaError],
    present: Mapping[int, BrokerThrottle],
    silent: Mapping[int, KafkaError],
    needed: Callable[[TopicPartition, int | None], bool],
    moving: Mapping[TopicPartition, Collection[int]],
) -> LiftPlan:
    """The throttles of this package to lift.

    ``needed(partition, None)`` tells whether the partition is being reassigned,
    ``needed(partition, broker)`` whether this follower is still catching up. ``moving`` has the
    brokers of each ongoing reassignment. ``hidden`` are topics whose lists this client may not
    describe: they may need the rate of any broker. ``silent`` are brokers that did not answer.
    """
    removable: dict[str, TopicThrottle] = {}
    still_needed: dict[str, frozenset[str]] = {}
    for name, now in topics.items():
        if not now.marked:
            continue
        keep = _partitions_needed(name, now, needed)
        removed = TopicThrottle(*(_unneeded(replicas, keep) for replicas in now))
        left = now.ours() - removed.ours()
        if left:
            still_needed[name] = left
        if removed.marked:
            removable[name] = removed
    nodes = {int(element.partition(":")[2]) for left in still_needed.values() for element in left}
    for partition, involved in moving.items():
        lists = topics.get(partition.topic)
        if lists is None or lists.mentions(partition.partition):
            nodes |= set(involved)
    ours = {node: now for node, now in present.items() if now.marks}
    if hidden:
        nodes |= ours.keys()
    return LiftPlan(
        removable,
        {node: now for node, now in ours.items() if node not in nodes},
        tuple(sorted(still_needed)),
        tuple(sorted(ours.keys() & nodes)),
        {f"topic {name!r}": error for name, error in hidden.items()}
        | {f"broker {node}": error for node, error in silent.items()},
    )


def _partitions_needed(
    topic: str, now: TopicThrottle, needed: Callable[[TopicPartition, int | None], bool]
) -> frozenset[str]:
    """The partition numbers, as text, whose elements are still needed."""
    keep = {
        partition
        for partition in {element.partition(":")[0] for element in now.ours()}
        if needed(TopicPartition(topic, int(partition)), None)
    }
    for element in now.follower.ours or ():
        partition, _, node = element.partition(":")
        if needed(TopicPartition(topic, int(partition)), int(node)):
            keep.add(partition)
    return frozenset(keep)


def _unneeded(replicas: ThrottledReplicas, keep: frozenset[str]) -> ThrottledReplicas:
    """The elements to remove, as ``ours``. They include the mark if no element of ours remains."""
    if replicas.ours is None:
        return replicas
    gone = [element for element in replicas.ours if element.partition(":")[0] not in keep]
    mark = (MARK,) if len(gone) == len(replicas.ours) else ()
    return ThrottledReplicas(replicas.before, (*mark, *gone) or None)
