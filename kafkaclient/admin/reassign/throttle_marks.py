"""Marks that distinguish the throttles of this package from the throttles of other tools. No I/O.

The same request sets a throttle and its mark. So if the process dies, the cluster's configuration
still tells that this package set the throttle, and which throttle it replaced.

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
    from collections.abc import Iterable, Mapping

__all__ = [
    "EVERY_REPLICA",
    "FOLLOWER_RATE",
    "FOLLOWER_REPLICAS",
    "LEADER_RATE",
    "LEADER_REPLICAS",
    "LIST_KEYS",
    "MARK",
    "RATE_KEYS",
    "BrokerMark",
    "ThrottledReplicas",
]

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATE_KEYS = (LEADER_RATE, FOLLOWER_RATE)

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LIST_KEYS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

EVERY_REPLICA = "*"

MARK = "2147483647:2147483647"
"""Partition and broker 2^31-1: an element that brokers accept and that matches no replica."""

_BROKER_MARK = re.compile(r"kafkaclient\.throttle\.(\d+)\.leader\.(\d+|none)\.follower\.(\d+|none)")


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

    @property
    def marked(self) -> bool:
        return self.ours is not None

    def lacks(self, elements: Iterable[str]) -> str | None:
        """The text to append, mark included, so that the list has these elements in Kafka's order;
        None if it has them. The list ``*`` has all elements."""
        missing = sorted(set(elements) - set(self.before))
        if self.before == (EVERY_REPLICA,) or not missing:
            return None
        return ",".join((MARK, *missing))

    @property
    def value(self) -> str | None:
        """The configuration value; None deletes the key."""
        ours = () if self.ours is None else (MARK, *self.ours)
        return ",".join((*self.before, *ours)) or None


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
        leader, follower = _word(self.leader), _word(self.follower)
        return f"kafkaclient.throttle.{self.rate}.leader.{leader}.follower.{follower}"

    def restored(self, rates: Mapping[str, int]) -> dict[str, int | None]:
        """The rates to restore when the mark is deleted (None: delete the rate). ``rates`` has the
        current rates; a rate that another tool has changed is not restored."""
        before = {LEADER_RATE: self.leader, FOLLOWER_RATE: self.follower}
        return {key: value for key, value in before.items() if rates.get(key) == self.rate}


def _number(word: str) -> int | None:
    return None if word == "none" else int(word)


def _word(number: int | None) -> str:
    return "none" if number is None else str(number)
