"""The results of the steps of a reassignment, and the marks of throttles. No I/O.

The same request sets a throttle and its mark. So if the process dies, the cluster's configuration
still shows that this package set the throttle, and which throttle it replaced.

- A topic's list of throttled replicas has the earlier elements, then :data:`MARK`, then the
  elements of this package. No broker has the id in the mark, so the mark throttles nothing.
  Elements are appended and subtracted (KIP-339), so concurrent operators do not lose elements.
- A broker's two rates have a third key as their mark. Brokers store the unknown key, ignore it and
  never return its value. So the key's name contains the new rate and the two replaced rates.

Kafka's own tool deletes lists and rates with any content, so it undoes everything except that key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.reassign.plan import moving_brokers
from kafkaclient.errors import ReassignmentError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment
    from kafkaclient.wire.api import PartitionView


LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATE_KEYS = (LEADER_RATE, FOLLOWER_RATE)

LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
ALL_RATE_KEYS = (*RATE_KEYS, LOG_DIRS_RATE)
"""All rates that Kafka's tool sets. This package does not set the rate for log directories."""

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LIST_KEYS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

EVERY_REPLICA = "*"

MARK = "2147483647:2147483647"
"""Partition and broker 2^31-1: an element that brokers accept and that matches no replica."""

_BROKER_MARK = re.compile(r"kafkaclient\.throttle\.(\d+)\.leader\.(\d+|none)\.follower\.(\d+|none)")


class ListRemoval(NamedTuple):
    """How to remove elements of this package from a list of throttled replicas."""

    elements: tuple[str, ...]
    """The elements to subtract; with :data:`MARK` if no other element of this package stays."""
    deletes_key: bool
    """Whether the list has no other elements, so that its key is deleted."""


class ThrottledReplicas(NamedTuple):
    """A topic's list of throttled replicas. ``before`` has the elements of other tools, ``ours``
    the elements of this package; ``ours`` is None if the list has no mark."""

    before: tuple[str, ...] = ()
    ours: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, value: str | None) -> ThrottledReplicas:
        """The list from a configuration value. None and "" are the empty list."""
        elements = [word.strip() for word in (value or "").split(",") if word.strip()]
        if MARK not in elements:
            return cls(tuple(elements))
        at = elements.index(MARK)
        return cls(tuple(elements[:at]), tuple(elements[at + 1 :]))

    def addition(self, elements: Iterable[str]) -> str | None:
        """The text to append, mark included, so that the list has these elements in Kafka's order;
        None if it has them. The list ``*`` has all elements."""
        missing = sorted(set(elements) - set(self.before))
        if self.before == (EVERY_REPLICA,) or not missing:
            return None
        return ",".join((MARK, *missing))

    def removal(self, needed: Collection[str]) -> ListRemoval | None:
        """The removal of this package's elements, except those of the partition numbers ``needed``.
        None if there is nothing to remove."""
        if self.ours is None:
            return None
        gone = tuple(e for e in self.ours if e.partition(":")[0] not in needed)
        if len(gone) == len(self.ours):
            return ListRemoval((MARK, *gone), not self.before)
        return ListRemoval(gone, deletes_key=False) if gone else None

    @property
    def value(self) -> str | None:
        """The configuration value; None deletes the key."""
        ours = () if self.ours is None else (MARK, *self.ours)
        return ",".join((*self.before, *ours)) or None


class TopicThrottle(NamedTuple):
    """The two lists of throttled replicas of a topic."""

    leader: ThrottledReplicas
    follower: ThrottledReplicas

    @property
    def marked(self) -> bool:
        """Whether this package throttles the topic."""
        return self.leader.ours is not None or self.follower.ours is not None

    @property
    def any(self) -> bool:
        return bool(self.leader.value or self.follower.value)

    def mentions(self, partition: int) -> bool:
        """Whether this package or another tool throttles a replica of the partition."""
        listed = {element for one in self for element in (*one.before, *(one.ours or ()))}
        return EVERY_REPLICA in listed or any(e.startswith(f"{partition}:") for e in listed)

    def ours(self) -> frozenset[str]:
        """The elements of this package in both lists."""
        return frozenset((*(self.leader.ours or ()), *(self.follower.ours or ())))


class BrokerMark(NamedTuple):
    """The rate of a broker in bytes per second, and the two replaced rates (None: unset)."""

    rate: int
    leader: int | None
    follower: int | None

    @classmethod
    def all_of(cls, keys: Iterable[str]) -> tuple[BrokerMark, ...]:
        """The marks among a broker's keys; several if operators set rates at the same time."""
        found = (_BROKER_MARK.fullmatch(key) for key in sorted(keys))
        return tuple(
            cls(int(match[1]), _number(match[2]), _number(match[3])) for match in found if match
        )

    @property
    def key(self) -> str:
        leader, follower = ("none" if rate is None else rate for rate in self[1:])
        return f"kafkaclient.throttle.{self.rate}.leader.{leader}.follower.{follower}"

    def restored(self, rates: Mapping[str, int]) -> dict[str, int | None]:
        """The rates to restore when the mark is deleted (None: delete the rate). ``rates`` has the
        current rates; a rate that another tool has changed is not restored."""
        before = {LEADER_RATE: self.leader, FOLLOWER_RATE: self.follower}
        return {key: value for key, value in before.items() if rates.get(key) == self.rate}


class BrokerThrottle(NamedTuple):
    """The rates of a broker in bytes per second, by key of :data:`ALL_RATE_KEYS`, and the marks of
    this package. There are several marks if operators set rates at the same time."""

    rates: Mapping[str, int]
    marks: tuple[BrokerMark, ...] = ()

    @property
    def mark(self) -> BrokerMark | None:
        """The mark that matches the current rates, else the first mark."""
        present = {self.rates.get(key) for key in RATE_KEYS}
        matching = (mark for mark in self.marks if mark.rate in present)
        return next(matching, self.marks[0] if self.marks else None)

    def restored(self) -> dict[str, int | None]:
        """The rates to restore; see :meth:`BrokerMark.restored`."""
        return {} if self.mark is None else self.mark.restored(self.rates)


def _number(word: str) -> int | None:
    return None if word == "none" else int(word)


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
