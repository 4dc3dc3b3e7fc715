"""How a throttle is marked as set by this package, and what it replaced. No I/O.

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
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
