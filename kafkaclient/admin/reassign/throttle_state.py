"""What is throttled, and what is to be taken away of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.reassign.marks import EVERY_REPLICA, MARK, BrokerMark, MarkedList
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kafkaclient.errors import KafkaError

__all__ = ["BrokerThrottle", "Lifted", "Lifting", "Throttles", "TopicThrottle", "lifting_of"]


class TopicThrottle(NamedTuple):
    """The lists of a topic."""

    leader: MarkedList
    follower: MarkedList

    @property
    def marked(self) -> bool:
        return self.leader.marked or self.follower.marked

    @property
    def any(self) -> bool:
        return bool(self.leader.value or self.follower.value)

    def names(self, partition: int) -> bool:
        """Whether a replica of this partition is throttled, whoever listed it."""
        listed = {each for now in self for each in (*now.before, *(now.ours or ()))}
        return EVERY_REPLICA in listed or any(each.startswith(f"{partition}:") for each in listed)

    def ours(self) -> frozenset[str]:
        return frozenset((*(self.leader.ours or ()), *(self.follower.ours or ())))


class BrokerThrottle(NamedTuple):
    """The rates set on a broker itself, bytes per second by key, and this package's marks: more
    than one, if operators set a rate at the same time."""

    rates: Mapping[str, int]
    marks: tuple[BrokerMark, ...] = ()

    @property
    def mark(self) -> BrokerMark | None:
        """The mark of the rate that holds now, if there are several."""
        holds = (each for each in self.marks if each.rate in self.rates.values())
        return next(holds, self.marks[0] if self.marks else None)

    def restored(self) -> dict[str, int | None]:
        """What each rate is to be when the marks go: None for unset. One that somebody else has
        changed since is left out."""
        return {} if self.mark is None else self.mark.restored(self.rates)


@dataclass(frozen=True, slots=True)
class Throttles:
    """All throttles of a cluster that there are; ``failures`` has brokers that did not tell,
    ``topic_failures`` topics whose configuration this client may not see."""

    topics: Mapping[str, TopicThrottle]
    brokers: Mapping[int, BrokerThrottle]
    failures: Mapping[int, KafkaError] = field(default_factory=dict)
    topic_failures: Mapping[str, KafkaError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lifting:
    """What is to be taken away, and what is still needed."""

    topics: Mapping[str, TopicThrottle]
    """By topic, what of ours is to go from its lists."""
    brokers: Mapping[int, BrokerThrottle]
    """By broker that is to get its own rates back, what is set there."""
    needed_topics: tuple[str, ...]
    needed_brokers: tuple[int, ...]
    failures: Mapping[str, KafkaError]

    @property
    def any(self) -> bool:
        return bool(self.topics or self.brokers)


@dataclass(frozen=True, slots=True)
class Lifted:
    """What was taken away, what is still needed, and where it did not succeed."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    needed_topics: tuple[str, ...] = ()
    needed_brokers: tuple[int, ...] = ()
    failures: Mapping[str, KafkaError] = field(default_factory=dict)
    """By what it was, in words."""


def lifting_of(
    told: Mapping[str, TopicThrottle],
    hidden: Mapping[str, KafkaError],
    present: Mapping[int, BrokerThrottle],
    silent: Mapping[int, KafkaError],
    needed: Callable[[TopicPartition, int | None], bool],
    moving: Mapping[TopicPartition, Collection[int]],
) -> Lifting:
    """What of this package's throttles may be taken away.

    ``needed(partition, broker)`` says what has to stay: of a partition (broker None), or because
    this follower has not caught up. ``moving``: the brokers of each partition that moves.
    ``hidden``: topics whose lists this client may not see. These may need any broker's rate.
    """
    go: dict[str, TopicThrottle] = {}
    kept: dict[str, frozenset[str]] = {}
    for name, now in told.items():
        if not now.marked:
            continue
        keep = _partitions_needed(name, now, needed)
        away = TopicThrottle(*(_unneeded(each, keep) for each in now))
        left = now.ours() - away.ours()
        if left:
            kept[name] = left
        if away.marked:
            go[name] = away
    nodes = {int(element.partition(":")[2]) for each in kept.values() for element in each}
    for partition, involved in moving.items():
        lists = told.get(partition.topic)
        if lists is None or lists.names(partition.partition):
            nodes |= set(involved)
    ours = {node: now for node, now in present.items() if now.marks}
    if hidden:
        nodes |= ours.keys()
    return Lifting(
        go,
        {node: now for node, now in ours.items() if node not in nodes},
        tuple(sorted(kept)),
        tuple(sorted(ours.keys() & nodes)),
        {f"topic {name!r}": error for name, error in hidden.items()}
        | {f"broker {node}": error for node, error in silent.items()},
    )


def _partitions_needed(
    topic: str, now: TopicThrottle, needed: Callable[[TopicPartition, int | None], bool]
) -> frozenset[str]:
    """The partitions, as text, whose elements are to stay."""
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


def _unneeded(each: MarkedList, keep: frozenset[str]) -> MarkedList:
    """What of a list is to go (``ours``), the mark among it when nothing of ours is left."""
    if each.ours is None:
        return each
    gone = [element for element in each.ours if element.partition(":")[0] not in keep]
    mark = (MARK,) if len(gone) == len(each.ours) else ()
    return MarkedList(each.before, (*mark, *gone) or None)
