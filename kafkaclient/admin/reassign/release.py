"""Which throttled replicas are let go shortly before they arrive. Pure: readings in, replicas out.

A throttle withholds records from replicas that are not in sync, and a leader has records with
``acks=all`` wait for a replica that has just caught up and is about to be in sync
(``Partition.maybeIncrementLeaderHW``; for ``replica.lag.time.max.ms`` at most). Both together, and
clients wait for as long as the quota does. A replica that is taken off the lists of throttled ones
by then takes what it lacks at once, and is in sync two fetches later.

What is let go is not counted by brokers. So it is little of each replica, no more than a fetch
brings at once, and little in a second: :data:`SHARE` of the quota.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import TopicPartition

__all__ = ["FETCH_BYTES", "SHARE", "Releases", "Remaining", "Replica", "Rest", "lacking"]

Replica: TypeAlias = "tuple[TopicPartition, int]"
"""A partition, and the broker that has the replica."""

FETCH_BYTES = 1024 * 1024
"""``replica.fetch.max.bytes``, by default: what a fetch brings of one partition."""

SHARE = 0.2
"""Of the quota of a broker: what may be let go in a second, beside what it lets through."""

_SAVED_S = 2.5
"""How long a share that nothing took is kept for what comes later."""

_MUCH = 16 * FETCH_BYTES


class Rest(NamedTuple):
    """What a replica lacks."""

    leader: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """What new replicas that are not in sync lack; ``at`` in seconds of any clock."""

    at: float
    rests: Mapping[Replica, Rest]
    rates: Mapping[int, int]
    """By broker, its quota; without an entry it has none."""


def lacking(whole: int, own: int, lag: int, records: int) -> int:
    """The bytes that a replica lacks, of a log with so many bytes and records on its leader.

    By the disks, for records may be of any size. But what retention deletes goes from the leader's
    disk minutes earlier: where the records that are missing are much more, they are believed.
    """
    by_records = whole * lag // records if records else 0
    return max(whole - own, by_records if by_records > _MUCH else 0)


@dataclass(slots=True)
class Releases:
    """Takes readings one after the other."""

    _released: set[Replica] = field(default_factory=set)
    _saved: dict[int, float] = field(default_factory=dict)
    """By broker, bytes that may be let go at once."""
    _at: float | None = None

    def due(self, remaining: Remaining) -> list[Replica]:
        """Those to be let go now, the least first; they count as let go until :meth:`failed`."""
        passed = 0.0 if self._at is None else remaining.at - self._at
        self._at = remaining.at
        most = {node: rate * SHARE * _SAVED_S for node, rate in remaining.rates.items()}
        self._saved = {
            node: min(most[node], self._saved.get(node, most[node]) + rate * SHARE * passed)
            for node, rate in remaining.rates.items()
        }
        found = []
        for replica, rest in sorted(remaining.rests.items(), key=lambda each: each[1].nbytes):
            if rest.nbytes > FETCH_BYTES:
                break
            nodes = [node for node in (rest.leader, replica[1]) if node in most]
            if replica in self._released or not all(
                self._affords(node, rest.nbytes, most[node]) for node in nodes
            ):
                continue
            for node in nodes:
                self._saved[node] -= rest.nbytes
            self._released.add(replica)
            found.append(replica)
        return found

    def _affords(self, node: int, nbytes: int, most: float) -> bool:
        # What is more than can be saved has to wait until all of that is there.
        return most > 0 and self._saved[node] >= min(nbytes, most)

    def failed(self, replica: Replica) -> None:
        """It could not be let go, and is to be tried again."""
        self._released.discard(replica)

    def is_close(self, remaining: Remaining, seconds: float) -> bool:
        """Whether within so many seconds a replica may come so far that it is to be let go."""
        reach = FETCH_BYTES + max(remaining.rates.values(), default=0) * seconds
        return any(
            rest.nbytes <= reach and replica not in self._released
            for replica, rest in remaining.rests.items()
        )
