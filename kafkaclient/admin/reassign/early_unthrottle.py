"""Decides which throttled replicas are unthrottled shortly before they are in sync. No I/O.

A throttle delays the fetches of replicas that are not in sync. A leader delays records with
``acks=all`` until a replica that has almost caught up is in sync
(``Partition.maybeIncrementLeaderHW``, at most ``replica.lag.time.max.ms``). Together, the quota
delays clients. A replica without a throttle fetches its missing bytes at once, and is in sync two
fetches later.

The quota does not count the bytes of unthrottled replicas. So a replica is unthrottled only when it
lacks no more than one fetch, and the unthrottled bytes per second are limited to :data:`SHARE` of
the quota.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import TopicPartition

__all__ = ["FETCH_BYTES", "SHARE", "EarlyUnthrottling", "Remaining", "Replica", "Rest", "lacking"]

Replica: TypeAlias = "tuple[TopicPartition, int]"
"""A partition, and the broker of the replica."""

FETCH_BYTES = 1024 * 1024  # bytes of one partition in a fetch: replica.fetch.max.bytes by default
SHARE = 0.2  # share of a broker's quota that unthrottled replicas may add per second
_SAVED_S = 2.5  # seconds of unused share that a broker may save
_TRUSTED_LACK = 16 * FETCH_BYTES  # bytes from which an estimate by records is used


class Rest(NamedTuple):
    """The leader of a replica, and the number of bytes that the replica lacks."""

    leader: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """The missing bytes of new replicas that are not in sync. ``at`` is in seconds of any clock."""

    at: float
    rests: Mapping[Replica, Rest]
    rates: Mapping[int, int]
    """The quota of each broker in bytes per second. A broker without an entry has no quota."""


def lacking(whole: int, own: int, lag: int, records: int) -> int:
    """The bytes that a replica lacks. ``whole`` and ``records`` are the bytes and records on the
    leader, ``own`` the bytes and ``lag`` the missing records of the replica.

    Sizes on disk are exact for records of any size. But retention deletes segments from the
    leader's disk minutes earlier, so an estimate by records is used if it is much larger.
    """
    by_records = whole * lag // records if records else 0
    return max(whole - own, by_records if by_records > _TRUSTED_LACK else 0)


@dataclass(slots=True)
class EarlyUnthrottling:
    """Selects the replicas to unthrottle from successive measurements."""

    _unthrottled: set[Replica] = field(default_factory=set)
    _saved: dict[int, float] = field(default_factory=dict)
    """The bytes that may be unthrottled now, by broker."""
    _at: float | None = None

    def due(self, remaining: Remaining) -> list[Replica]:
        """The replicas to unthrottle now. They then count as unthrottled, unless :meth:`failed` is
        called."""
        passed = 0.0 if self._at is None else remaining.at - self._at
        self._at = remaining.at
        most = {node: rate * SHARE * _SAVED_S for node, rate in remaining.rates.items()}
        self._saved = {
            node: min(most[node], self._saved.get(node, most[node]) + rate * SHARE * passed)
            for node, rate in remaining.rates.items()
        }
        found = []
        for replica, rest in sorted(remaining.rests.items(), key=lambda item: item[1].nbytes):
            if rest.nbytes > FETCH_BYTES:
                break
            nodes = [node for node in (rest.leader, replica[1]) if node in most]
            if replica in self._unthrottled or not all(
                self._affords(node, rest.nbytes, most[node]) for node in nodes
            ):
                continue
            for node in nodes:
                self._saved[node] -= rest.nbytes
            self._unthrottled.add(replica)
            found.append(replica)
        return found

    def _affords(self, node: int, nbytes: int, most: float) -> bool:
        # A replica that lacks more than can be saved needs the full savings.
        return most > 0 and self._saved[node] >= min(nbytes, most)

    def failed(self, replica: Replica) -> None:
        """Record that the replica was not unthrottled, so that :meth:`due` returns it again."""
        self._unthrottled.discard(replica)

    def is_close(self, remaining: Remaining, seconds: float) -> bool:
        """Whether a replica may be due within ``seconds``."""
        reach = FETCH_BYTES + max(remaining.rates.values(), default=0) * seconds
        return any(
            rest.nbytes <= reach and replica not in self._unthrottled
            for replica, rest in remaining.rests.items()
        )
