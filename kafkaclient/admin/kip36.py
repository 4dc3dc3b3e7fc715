"""Where replicas go when there is room everywhere: Kafka's rack-aware assignment (KIP-36).

After ``AdminUtils.assignReplicasToBrokers``, which ``kafka-reassign-partitions --generate`` uses to
this day. Leaders go round robin; the followers of each further round are shifted by one, so that
a broker's partitions are followed by all the others.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Ring", "Start", "alternated", "assign", "start_of_extension"]

_INVALID_PARTITIONS = 37
_INVALID_REPLICATION_FACTOR = 38


class Start(NamedTuple):
    """Where the rounds begin: ``leader`` is the place of the first leader in the ring, ``shift``
    that of its followers, ``partition`` the number of the first partition."""

    leader: int
    shift: int
    partition: int = 0


class Ring:
    """The brokers in the order in which they are gone through, and each partition's candidates.

    ``brokers`` maps ids to racks, all of them known or none. Raises ConfigError otherwise.
    """

    def __init__(self, brokers: Mapping[int, str | None], start: Start) -> None:
        known = {broker: rack for broker, rack in brokers.items() if rack is not None}
        if known and len(known) < len(brokers):
            unknown = sorted(brokers.keys() - known.keys())
            raise ConfigError(f"brokers {unknown} have no rack, others have: give all or none one")
        self.racks = known
        self.order = alternated(known) if known else list(brokers)
        self._stride = len(set(known.values())) if known else 1
        self._start = start

    def candidates(self, offset: int) -> Iterator[int]:
        """All brokers, the best first, for the partition ``offset`` places after the first."""
        count = len(self.order)
        current = self._start.partition + offset
        # A new round begins wherever the number of the partition is a multiple of the brokers'.
        rounds = current // count - max(0, self._start.partition - 1) // count
        shift = (self._start.shift + rounds) * self._stride
        first = (current + self._start.leader) % count
        yield self.order[first]
        for step in range(count - 1):
            yield self.order[(first + 1 + (shift + step) % (count - 1)) % count]


def assign(
    brokers: Mapping[int, str | None], partitions: int, replication_factor: int, start: Start
) -> tuple[tuple[int, ...], ...]:
    """The replicas of every partition, the preferred leader first.

    With racks no two replicas share one before each rack has a replica. Raises the broker's own
    errors: INVALID_PARTITIONS for none, INVALID_REPLICATION_FACTOR for more than there are
    brokers; ConfigError when some brokers have a rack and others do not.
    """
    check_counts(len(brokers), partitions, replication_factor)
    ring = Ring(brokers, start)
    if not ring.racks:
        return tuple(_first(ring, offset, replication_factor) for offset in range(partitions))
    return tuple(_spread(ring, offset, replication_factor) for offset in range(partitions))


def check_counts(brokers: int, partitions: int, replication_factor: int) -> None:
    """Raise for numbers that no placement can have, as a broker would."""
    if partitions <= 0:
        raise broker_error(_INVALID_PARTITIONS, f"{partitions} partitions")
    if not 0 < replication_factor <= brokers:
        what = f"replication factor {replication_factor} with {brokers} brokers"
        raise broker_error(_INVALID_REPLICATION_FACTOR, what)


def _first(ring: Ring, offset: int, replication_factor: int) -> tuple[int, ...]:
    candidates = ring.candidates(offset)
    return tuple([next(candidates) for _ in range(replication_factor)])


def _spread(ring: Ring, offset: int, replication_factor: int) -> tuple[int, ...]:
    racks, all_racks = ring.racks, len(set(ring.racks.values()))
    chosen: list[int] = []
    used: set[str] = set()
    # Those passed over because of their rack get their turn in the next rounds over the ring.
    while len(chosen) < replication_factor:
        for broker in ring.candidates(offset):
            if broker in chosen or (racks[broker] in used and len(used) < all_racks):
                continue
            chosen.append(broker)
            used.add(racks[broker])
            if len(chosen) == replication_factor:
                break
    return tuple(chosen)


def alternated(racks: Mapping[int, str]) -> list[int]:
    """The brokers one rack after the other, cyclically: each rack's first, each one's second..."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[racks[broker]].append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for each in rounds for broker in each if broker is not None]


def start_of_extension(brokers: Sequence[int], existing: int, first_leader: int) -> Start:
    """Where the partitions added to a topic begin (Java: ``AdminZkClient``), so that they go on
    as if they had been there from the start. ``first_leader``: partition 0's first replica."""
    ordered = sorted(brokers)
    at = next((n for n, broker in enumerate(ordered) if broker >= first_leader), 0)
    return Start(at, at, existing)
