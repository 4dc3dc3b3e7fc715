"""Replica placement with limits (KIP-578), and as Kafka places replicas (KIP-36). No I/O.

``place`` finds a placement whenever one exists. KIP-578's own algorithm skips full brokers. That is
not enough, because it uses up the capacity of brokers that later partitions need. This algorithm
first decides how many replicas each broker hosts, then which:

1. A broker hosts at most one replica of a partition, so it has ``min(capacity, partitions)`` slots.
   Loads per broker are feasible if no load exceeds ``partitions`` and the loads add up to
   ``partitions * replication factor``. Proof: deal the replicas of one broker after the other to
   the partitions in a cycle, and no partition gets a broker twice.
2. The same holds for racks if the brokers of a rack are dealt one after the other. A rack with at
   most ``partitions`` replicas is never used twice by a partition. A rack with at least
   ``partitions`` replicas is used by every partition.
3. Each partition then takes replicas in KIP-36's order. A broker or rack with as many remaining
   replicas as there are remaining partitions must be taken. This keeps 1 and 2 true for the
   remaining replicas, so every partition gets its replicas.

The placement is rack-aware in every partition if the capacities allow that. Otherwise the replicas
are still placed, and the order of choice prefers different racks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from random import Random


# --- Kafka's rack-aware replica assignment (KIP-36), for brokers without limits -------------------
# The algorithm is ``AdminUtils.assignReplicasToBrokers``, which ``kafka-reassign-partitions
# --generate`` uses. Leaders are assigned round robin. Each further round shifts the followers by
# one broker, so that all other brokers follow the partitions of a broker.


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
        raise broker_error(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions")
    if not 0 < replication_factor <= brokers:
        what = f"replication factor {replication_factor} with {brokers} brokers"
        raise broker_error(ErrorCode.INVALID_REPLICATION_FACTOR, what)


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


# --- Replica placement on brokers with limited capacity (KIP-578). No I/O -------------------------

Placement = tuple[tuple[int, ...], ...]
"""The replicas of every partition, the preferred leader first."""


def place(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    capacities: Mapping[int, int],
    rng: Random,
    start: Start | None = None,
    down: Collection[int] = (),
) -> Placement | None:
    """The replicas of new partitions; None if no placement exists.

    ``brokers`` maps ids to racks. If some brokers have a rack, those without one count as one
    further rack, as in Kafka's controller (``StripedReplicaPlacer``). ``capacities`` has the number
    of replicas that a broker may host; a broker that is not in it has no limit. ``start`` is the
    start of KIP-36's round robin, random by default: the same ``rng`` gives the same placement.
    ``down`` has further brokers, which are down. As in Kafka's controller they get replicas only if
    the ``brokers`` are too few, and never the first replica of a partition.

    Raises as :func:`~kafkaclient.admin.placement.assign`.
    """
    check_counts(len(brokers) + len(down) * bool(brokers), partitions, replication_factor)
    if replication_factor > len(brokers):
        every, rest = len(brokers), replication_factor - len(brokers)
        up = place(brokers, partitions, every, capacities=capacities, rng=rng, start=start)
        added = place(dict.fromkeys(down), partitions, rest, capacities=capacities, rng=rng)
        if up is None or added is None:
            return None
        return tuple(one + other for one, other in zip(up, added, strict=True))
    if any(rack is not None for rack in brokers.values()):
        brokers = {broker: rack or "" for broker, rack in brokers.items()}
    if start is None:
        start = Start(rng.randrange(len(brokers)), rng.randrange(len(brokers)))
    unlimited = assign(brokers, partitions, replication_factor, start)
    loads = Counter(broker for replicas in unlimited for broker in replicas)
    if all(loads[broker] <= capacity for broker, capacity in capacities.items()):
        return unlimited
    ring = Ring(brokers, start)
    slots = {
        broker: min(max(0, capacities.get(broker, partitions)), partitions) for broker in ring.order
    }
    if not is_feasible(slots.values(), partitions, replication_factor):
        return None
    groups = _rack_groups(ring, slots)
    shares = _shares(slots, groups, partitions, replication_factor) if groups else None
    if shares is None:
        groups = [list(ring.order)]
        shares = _shares(slots, groups, partitions, replication_factor)
        assert shares is not None  # for the whole cluster, is_feasible() is the same condition
    remaining = _RemainingReplicas(
        slots, groups, shares, partitions, replication_factor, start.leader
    )
    return tuple(remaining.take(ring, offset) for offset in range(partitions))


def is_feasible(capacities: Iterable[int], partitions: int, replication_factor: int) -> bool:
    """Whether brokers with these capacities can host the partitions, without regard to racks."""
    room = sum(min(max(0, capacity), partitions) for capacity in capacities)
    return room >= partitions * replication_factor


def _rack_groups(ring: Ring, slots: Mapping[int, int]) -> list[list[int]]:
    """The brokers with capacity, by rack; empty without racks."""
    groups: dict[str, list[int]] = defaultdict(list)
    for broker in ring.order:
        if ring.racks and slots[broker]:
            groups[ring.racks[broker]].append(broker)
    return list(groups.values())


def _shares(
    slots: Mapping[int, int], groups: Sequence[Sequence[int]], partitions: int, factor: int
) -> list[int] | None:
    """The number of replicas of each group, as even per broker as possible if each partition uses
    as many groups as possible; None if that is impossible."""
    replicas = partitions * factor
    low, high = (0, partitions) if len(groups) >= factor else (partitions, replicas)
    room = [sum(slots[broker] for broker in group) for group in groups]
    if any(size < low for size in room) or sum(min(size, high) for size in room) < replicas:
        return None

    def at(level: int) -> list[int]:
        """The groups' shares if every broker hosts up to ``level`` replicas."""
        filled = (sum(min(slots[b], level) for b in group) for group in groups)
        return [min(max(low, size), high) for size in filled]

    return _even(at, partitions, replicas)


def _even(at: Callable[[int], list[int]], highest: int, total: int, turn: int = 0) -> list[int]:
    """Numbers that add up to ``total``: those of the last level, up to ``highest``, at which
    ``at(level)`` is not more, and the rest from the index ``turn`` on."""
    level = bisect_right(range(highest + 1), total, key=lambda n: sum(at(n))) - 1
    numbers, following = at(level), at(level + 1)
    missing = total - sum(numbers)
    for step in range(len(numbers)):
        index = (turn + step) % len(numbers)
        more = min(missing, following[index] - numbers[index])
        numbers[index] += more
        missing -= more
    return numbers


def _loads(slots: Sequence[int], share: int, turn: int) -> list[int]:
    """A group's share by broker, as even as the slots allow."""
    return _even(lambda level: [min(each, level) for each in slots], max(slots), share, turn)


class _RemainingReplicas:
    """The replicas that are not placed yet. :meth:`take` removes the replicas of one partition.
    ``groups`` has the brokers by their racks, ``shares`` the number of replicas of each group.

    Invariant: no broker has more remaining replicas than there are remaining partitions. The same
    holds for a group if partitions use a group at most once. If every partition uses every group,
    no group has fewer remaining replicas than there are remaining partitions.
    """

    def __init__(
        self,
        slots: Mapping[int, int],
        groups: Sequence[Sequence[int]],
        shares: Sequence[int],
        partitions: int,
        factor: int,
        turn: int,
    ) -> None:
        self._factor = factor
        self._one_each = len(groups) >= factor
        self._partitions = partitions
        self._shares = list(shares)
        self._left: dict[int, int] = {}
        self._group_of: dict[int, int] = {}
        for index, group in enumerate(groups):
            loads = _loads([slots[broker] for broker in group], shares[index], turn)
            self._left |= zip(group, loads, strict=True)
            self._group_of |= dict.fromkeys(group, index)
        self._with_left: dict[int, set[int]] = defaultdict(set)
        for broker, left in self._left.items():
            self._with_left[left].add(broker)

    def take(self, ring: Ring, offset: int) -> tuple[int, ...]:
        """Remove and return the replicas of the next partition: those that the invariant demands,
        then others in KIP-36's order, which is also the order of the result."""
        partitions, group_of = self._partitions, self._group_of
        if self._one_each:
            needed = {n for n, share in enumerate(self._shares) if share == partitions}
            most = [1] * len(self._shares)
        else:
            needed = set(range(len(self._shares)))
            most = [share - partitions + 1 for share in self._shares]
        chosen = list(self._with_left[partitions])
        needed.difference_update(group_of[broker] for broker in chosen)
        for broker in ring.candidates(offset):
            if not needed:
                break
            if self._left.get(broker) and group_of[broker] in needed:
                needed.remove(group_of[broker])
                chosen.append(broker)
        demanded = bool(chosen)
        used = Counter(group_of[broker] for broker in chosen)
        for broker in _by_preference(ring, offset, chosen):
            if len(chosen) == self._factor:
                break
            if self._left.get(broker) and used[group_of[broker]] < most[group_of[broker]]:
                chosen.append(broker)
                used[group_of[broker]] += 1
        if demanded:
            in_order = (broker for broker in ring.candidates(offset) if broker in chosen)
            chosen = list(islice(in_order, len(chosen)))
        for broker in chosen:
            left = self._left[broker]
            self._with_left[left].remove(broker)
            self._with_left[left - 1].add(broker)
            self._left[broker] = left - 1
            self._shares[group_of[broker]] -= 1
        self._partitions -= 1
        return tuple(chosen)


def _by_preference(ring: Ring, offset: int, chosen: list[int]) -> Iterator[int]:
    """The brokers that are not ``chosen`` yet; first the brokers in racks without a chosen one."""
    racks = ring.racks
    if racks:
        for broker in ring.candidates(offset):
            if all(racks[broker] != racks[taken] for taken in chosen):
                yield broker
    for broker in ring.candidates(offset):
        if broker not in chosen:
            yield broker
