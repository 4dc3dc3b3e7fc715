"""Kafka's rack-aware replica assignment (KIP-36), for brokers without limits.

The algorithm is ``AdminUtils.assignReplicasToBrokers``, which ``kafka-reassign-partitions
--generate`` uses. Leaders are assigned round robin. Each further round shifts the followers by one
broker, so that all other brokers follow the partitions of a broker.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.error_codes import INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Start(NamedTuple):
    """The start of the round robin: ``leader`` is the ring index of the first leader, ``shift`` is
    the shift of the first followers, ``partition`` is the number of the first partition."""

    leader: int
    shift: int
    partition: int = 0


class Ring:
    """The brokers in round-robin order, and the candidate brokers of each partition.

    ``brokers`` maps ids to racks. Raises ConfigError if only some of the racks are known.
    """

    def __init__(self, brokers: Mapping[int, str | None], start: Start) -> None:
        known = {broker: rack for broker, rack in brokers.items() if rack is not None}
        if known and len(known) < len(brokers):
            unknown = sorted(brokers.keys() - known.keys())
            raise ConfigError(
                f"brokers {unknown} have no rack, but other brokers have one; configure a rack on "
                "all brokers or on none"
            )
        self.racks = known
        self.order = alternated(known) if known else list(brokers)
        self._stride = len(set(known.values())) if known else 1
        self._start = start

    def candidates(self, offset: int) -> Iterator[int]:
        """All brokers, best candidate first, for the partition ``offset`` after the first one."""
        count = len(self.order)
        current = self._start.partition + offset
        # A round starts at each partition number that is a multiple of the number of brokers.
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

    Two replicas share a rack only if every rack has a replica. Raises INVALID_PARTITIONS if there
    are no partitions, INVALID_REPLICATION_FACTOR if there are too few brokers (as a broker does),
    and ConfigError if only some brokers have a rack.
    """
    check_counts(len(brokers), partitions, replication_factor)
    ring = Ring(brokers, start)
    return tuple(_spread(ring, offset, replication_factor) for offset in range(partitions))


def check_counts(brokers: int, partitions: int, replication_factor: int) -> None:
    """Raise the broker's error if no placement can have these numbers."""
    if partitions <= 0:
        raise broker_error(INVALID_PARTITIONS, f"{partitions} partitions")
    if not 0 < replication_factor <= brokers:
        what = f"replication factor {replication_factor} with {brokers} brokers"
        raise broker_error(INVALID_REPLICATION_FACTOR, what)


def _spread(ring: Ring, offset: int, replication_factor: int) -> tuple[int, ...]:
    racks, all_racks = ring.racks, len(set(ring.racks.values()))
    chosen: list[int] = []
    used: set[str | None] = set()
    # A broker that was skipped because of its rack may be chosen in a later round.
    while len(chosen) < replication_factor:
        for broker in ring.candidates(offset):
            rack = racks.get(broker)
            if broker in chosen or (rack in used and len(used) < all_racks):
                continue
            chosen.append(broker)
            used.add(rack)
            if len(chosen) == replication_factor:
                break
    return tuple(chosen)


def alternated(racks: Mapping[int, str]) -> list[int]:
    """The brokers with alternating racks: the first broker of each rack, then the second, ..."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[racks[broker]].append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for brokers in rounds for broker in brokers if broker is not None]


def start_of_extension(brokers: Sequence[int], existing: int, first_leader: int) -> Start:
    """The start for partitions that are added to a topic (Java: ``AdminZkClient``). It continues
    the round robin of the topic. ``first_leader`` is the first replica of partition 0."""
    ordered = sorted(brokers)
    at = next((n for n, broker in enumerate(ordered) if broker >= first_leader), 0)
    return Start(at, at, existing)
