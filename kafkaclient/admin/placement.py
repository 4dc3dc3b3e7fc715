"""Where replicas go when brokers have room for so many only (KIP-578). No I/O, no state.

A placement is found whenever there is one. KIP-578's own way, to pass over full brokers, is not
enough: it spends the room of brokers that later partitions cannot do without. Here it is decided
first how many replicas each broker takes, then which:

1. A broker takes at most one replica of a partition, so it has ``min(capacity, partitions)``
   places. Numbers of replicas per broker can be realised if none exceeds ``partitions`` and they
   add up to ``partitions * replication factor``: lay the brokers' replicas one after the other,
   round and round the partitions, and no partition meets a broker twice.
2. So it is with racks, if the brokers of each lie side by side: with no more than ``partitions``
   replicas no partition meets a rack twice, with no fewer every partition meets it.
3. Partition by partition the replicas are then taken in KIP-36's order, except that a broker with
   as many replicas left as there are partitions left has to be taken, and likewise a rack. This
   keeps 1 and 2 true of what is left, so it never comes to a dead end.

Racks are respected in every partition when that is possible within the capacities; otherwise as far
as the order of choice allows, and replicas are placed all the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaclient.admin.kip36 import Ring, Start, assign, check_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random

__all__ = ["Placement", "is_feasible", "place"]

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
) -> Placement | None:
    """Replicas for new partitions; None when there is no way to place them.

    ``brokers`` maps ids to racks, which count only when all are known. ``capacities`` says how
    many replicas a broker may take; one that is not in it takes any number. ``start`` is where the
    rounds of KIP-36 begin, by default anywhere: the same ``rng`` gives the same placement.

    Raises as :func:`~kafkaclient.admin.kip36.assign`.
    """
    check_counts(len(brokers), partitions, replication_factor)
    if any(rack is None for rack in brokers.values()):
        brokers = dict.fromkeys(brokers)
    if start is None:
        start = Start(rng.randrange(len(brokers)), rng.randrange(len(brokers)))
    usual = assign(brokers, partitions, replication_factor, start)
    loads = Counter(broker for replicas in usual for broker in replicas)
    if all(loads[broker] <= capacity for broker, capacity in capacities.items()):
        return usual
    ring = Ring(brokers, start)
    places = {
        broker: min(max(0, capacities.get(broker, partitions)), partitions) for broker in ring.order
    }
    task = _Task(partitions, replication_factor, places)
    if not is_feasible(places.values(), partitions, replication_factor):
        return None
    in_racks = _rack_groups(ring, places)
    shares = _shares(task, in_racks) if in_racks else None
    if shares is not None:
        return _realise(task, ring, in_racks, shares, start.leader)
    everywhere = [list(ring.order)]
    shares = _shares(task, everywhere)
    assert shares is not None  # of the whole cluster it is the condition above
    return _realise(task, ring, everywhere, shares, start.leader)


def is_feasible(capacities: Iterable[int], partitions: int, replication_factor: int) -> bool:
    """Whether brokers with these capacities can take the partitions, racks aside. Exact."""
    room = sum(min(max(0, capacity), partitions) for capacity in capacities)
    return room >= partitions * replication_factor


@dataclass(frozen=True, slots=True)
class _Task:
    partitions: int
    replication_factor: int
    places: Mapping[int, int]

    @property
    def replicas(self) -> int:
        return self.partitions * self.replication_factor

    def bounds(self, groups: int) -> tuple[int, int]:
        """The fewest and the most replicas of a group of brokers, if there are so many groups and
        each partition is to be in as many of them as it can."""
        if groups >= self.replication_factor:
            return 0, self.partitions
        return self.partitions, self.replicas


def _rack_groups(ring: Ring, places: Mapping[int, int]) -> list[list[int]]:
    """The brokers with room by rack; without racks nothing."""
    groups: dict[str, list[int]] = defaultdict(list)
    for broker in ring.order:
        if ring.racks and places[broker]:
            groups[ring.racks[broker]].append(broker)
    return list(groups.values())


# --- how many -----------------------------------------------------------------------------------


def _shares(task: _Task, groups: Sequence[Sequence[int]]) -> list[int] | None:
    """How many replicas each group takes, as evenly by broker as the bounds allow; None when the
    bounds allow nothing."""
    low, high = task.bounds(len(groups))
    room = [sum(task.places[broker] for broker in group) for group in groups]
    if any(each < low for each in room) or sum(min(each, high) for each in room) < task.replicas:
        return None

    def at(level: int) -> list[int]:
        """The groups' shares if every broker took up to ``level``."""
        filled = (sum(min(task.places[b], level) for b in group) for group in groups)
        return [min(max(low, each), high) for each in filled]

    level = _last(task.partitions, lambda level: sum(at(level)) <= task.replicas)
    shares, following = at(level), at(level + 1)
    missing = task.replicas - sum(shares)
    for index, more in enumerate(following):
        step = min(missing, more - shares[index])
        shares[index] += step
        missing -= step
    return shares


def _loads(
    places: Mapping[int, int], group: Sequence[int], share: int, turn: int
) -> dict[int, int]:
    """The group's share by broker, as evenly as their places allow; ``turn`` says with whom what
    is left over begins."""
    highest = max(places[broker] for broker in group)
    level = _last(highest, lambda level: sum(min(places[b], level) for b in group) <= share)
    loads = {broker: min(places[broker], level) for broker in group}
    missing = share - sum(loads.values())
    able = [broker for broker in group if places[broker] > level]
    for step in range(missing):
        loads[able[(turn + step) % len(able)]] += 1
    return loads


def _last(highest: int, holds: Callable[[int], bool]) -> int:
    """The last number up to ``highest`` for which ``holds`` is true; it is true of 0, and once it
    is false it stays so."""
    low = 0
    while low < highest:
        middle = (low + highest + 1) // 2
        if holds(middle):
            low = middle
        else:
            highest = middle - 1
    return low


# --- which --------------------------------------------------------------------------------------


def _realise(
    task: _Task, ring: Ring, groups: Sequence[Sequence[int]], shares: Sequence[int], turn: int
) -> Placement:
    stock = _Stock(task, groups, shares, turn)
    return tuple(stock.take(ring, offset) for offset in range(task.partitions))


class _Stock:
    """The replicas that are left to place; those of one partition are taken out at a time.

    Of every broker, and (if each partition shall be in as many groups as it can) of every group,
    no more are left than partitions are, and of groups, if there are few of them, no fewer.
    """

    def __init__(
        self, task: _Task, groups: Sequence[Sequence[int]], shares: Sequence[int], turn: int
    ) -> None:
        self._factor = task.replication_factor
        self._one_each = len(groups) >= task.replication_factor
        self._partitions = task.partitions
        self._shares = list(shares)
        self._left: dict[int, int] = {}
        self._group_of: dict[int, int] = {}
        for index, group in enumerate(groups):
            self._left |= _loads(task.places, group, shares[index], turn)
            self._group_of |= dict.fromkeys(group, index)
        self._with_left: dict[int, set[int]] = defaultdict(set)
        for broker, left in self._left.items():
            self._with_left[left].add(broker)

    def take(self, ring: Ring, offset: int) -> tuple[int, ...]:
        """The replicas of the next partition, in KIP-36's order as far as possible."""
        must = self._with_left.pop(self._partitions, set())
        row = _Row(self._factor, [self._bounds(share) for share in self._shares])
        for broker in must:
            row.expect(self._group_of[broker])
        chosen: list[int] = []
        for broker in _by_preference(ring, offset, chosen):
            if self._left.get(broker) and row.accepts(self._group_of[broker], broker in must):
                chosen.append(broker)
                if not row.open:
                    break
        for broker in chosen:
            left = self._left[broker]
            if left != self._partitions:
                self._with_left[left].remove(broker)
            self._with_left[left - 1].add(broker)
            self._left[broker] = left - 1
            self._shares[self._group_of[broker]] -= 1
        self._partitions -= 1
        return tuple(chosen)

    def _bounds(self, share: int) -> tuple[int, int]:
        """The fewest and the most replicas that a partition takes from a group."""
        if self._one_each:
            return int(share == self._partitions), 1
        return 1, share - self._partitions + 1


class _Row:
    """One partition: which groups its replicas may come from, and must come from."""

    def __init__(self, replication_factor: int, bounds: Sequence[tuple[int, int]]) -> None:
        self.open = replication_factor
        """How many replicas it still needs."""
        self._least = [low for low, _ in bounds]
        self._most = [high for _, high in bounds]
        self._expected = [0] * len(bounds)
        self._owed = sum(self._least)

    def expect(self, group: int) -> None:
        """One more broker of the group has to be taken."""
        before = max(self._least[group], self._expected[group])
        self._expected[group] += 1
        self._owed += max(self._least[group], self._expected[group]) - before

    def accepts(self, group: int, expected: bool) -> bool:
        """Take a broker of the group, unless what has to be taken would then find no place."""
        still_expected = self._expected[group] - expected
        if self._most[group] < 1 + still_expected:
            return False
        before = max(self._least[group], self._expected[group])
        after = max(self._least[group] - 1, still_expected)
        if self._owed - before + after > self.open - 1:
            return False
        self._owed += after - before
        self._least[group] -= 1
        self._most[group] -= 1
        self._expected[group] = still_expected
        self.open -= 1
        return True


def _by_preference(ring: Ring, offset: int, chosen: list[int]) -> Iterator[int]:
    """The brokers that are not ``chosen`` yet, those in racks that have none of them first."""
    racks = ring.racks
    if racks:
        for broker in ring.candidates(offset):
            if all(racks[broker] != racks[taken] for taken in chosen):
                yield broker
    for broker in ring.candidates(offset):
        if broker not in chosen:
            yield broker
