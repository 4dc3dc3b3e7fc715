"""How the throttles that this package sets are told from those of others. Pure.

What is set is described where it is set, in the same request: whenever the process dies, what it
left says what it is and what was there before. There is nothing else to keep, or to lose.

- A topic's list of throttled replicas holds what was there before, then the element :data:`MARK`,
  then what was added. No broker has the number in the mark, so it throttles nothing. Elements are
  appended and subtracted (KIP-339), so operators who change a list at the same time keep each
  other's elements.
- A broker's two rates come with a key of its own, which brokers keep and do nothing with; its name
  (values of unknown keys are never told) has the rate that was set and the two that it replaced.

Kafka's own tool deletes lists and rates whatever they hold, so it undoes all of it but that key.
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
    "MarkedList",
]

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATE_KEYS = (LEADER_RATE, FOLLOWER_RATE)

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LIST_KEYS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

EVERY_REPLICA = "*"

MARK = "2147483647:2147483647"
"""Partition and broker 2^31-1: an element that brokers accept and that matches nothing."""

_BROKER_MARK = re.compile(r"kafkaclient\.throttle\.(\d+)\.leader\.(\d+|none)\.follower\.(\d+|none)")


class MarkedList(NamedTuple):
    """A topic's list: ``before`` is what others set, ``ours`` what was added; None: nothing was."""

    before: tuple[str, ...] = ()
    ours: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, value: str | None) -> MarkedList:
        """From the configuration's value; None and the empty one are both an empty list."""
        elements = [each.strip() for each in (value or "").split(",")]
        elements = [each for each in elements if each]
        if MARK not in elements:
            return cls(tuple(elements))
        at = elements.index(MARK)
        return cls(tuple(elements[:at]), tuple(elements[at + 1 :]))

    @property
    def marked(self) -> bool:
        return self.ours is not None

    def lacks(self, elements: Iterable[str]) -> str | None:
        """What has to be appended, mark included, for these elements to be throttled, in Kafka's
        order; None: nothing. A list of every replica (``*``) has them all."""
        missing = sorted(set(elements) - set(self.before))
        if self.before == (EVERY_REPLICA,) or not missing:
            return None
        return ",".join((MARK, *missing))

    @property
    def value(self) -> str | None:
        """For the configuration; None: the key is to be deleted."""
        ours = () if self.ours is None else (MARK, *self.ours)
        return ",".join((*self.before, *ours)) or None


class BrokerMark(NamedTuple):
    """The rate set on a broker, bytes per second, and the two that it replaced (None: unset)."""

    rate: int
    leader: int | None
    follower: int | None

    @classmethod
    def all_of(cls, keys: Iterable[str]) -> tuple[BrokerMark, ...]:
        """The marks among a broker's keys: several, if operators set a rate at the same time."""
        found = (_BROKER_MARK.fullmatch(key) for key in sorted(keys))
        return tuple(
            cls(int(match[1]), _number(match[2]), _number(match[3])) for match in found if match
        )

    @property
    def key(self) -> str:
        leader, follower = _word(self.leader), _word(self.follower)
        return f"kafkaclient.throttle.{self.rate}.leader.{leader}.follower.{follower}"

    def restored(self, rates: Mapping[str, int]) -> dict[str, int | None]:
        """What each rate is to be when the mark goes: None for unset. ``rates`` has what is set
        now; one that somebody else has changed since is left out."""
        before = {LEADER_RATE: self.leader, FOLLOWER_RATE: self.follower}
        return {key: value for key, value in before.items() if rates.get(key) == self.rate}


def _number(word: str) -> int | None:
    return None if word == "none" else int(word)


def _word(number: int | None) -> str:
    return "none" if number is None else str(number)
