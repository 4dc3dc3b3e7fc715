"""Which partition of a topic is furthest behind its fair share of bytes. Pure, RNG passed in.

Late binding asks for a partition only when a broker can take a batch: of the partitions led by
brokers that can, the one that has been given the fewest bytes gets it. Brokers of equal speed thus
get equal bytes to within a batch; a slow one gets less because it is free less often.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.partitioner import Random31

__all__ = ["Spread"]

# (bytes given when the entry was made, a draw for equal ones, partition)
_Entry = tuple[int, int, int]


# How far a partition can fall behind, in batches, and how fast a large batch is forgotten.
_PATIENCE, _FORGETTING = 4, 0.95
_NOBODY = -2
"""Who leads a partition that is new: not even nobody, as far as is known."""


class Spread:
    """The bytes given to each partition of one topic, by whatever way.

    A partition falls behind by a few batches at most: a broker that becomes faster must not be
    given everything until it has caught up.
    """

    __slots__ = (
        "_batch",
        "_floor",
        "_forgiven",
        "_given",
        "_heaps",
        "_leaders",
        "_near",
        "_random",
        "_view",
    )

    def __init__(self, random31: Random31) -> None:
        self._random = random31
        self._batch = 0.0
        """The size of the largest batch lately."""
        self._given: list[int] = []
        """By partition; what is less than its leader's :meth:`_least` counts as that."""
        self._floor = 0
        self._forgiven: dict[int, int] = {}
        """By leader: what its partitions stand at, at the least, since it was back in order."""
        self._heaps: dict[int, list[_Entry]] = {}
        self._leaders: list[int] = []
        self._view: TopicView | None = None
        self._near: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<Spread given={self.given}>"

    @property
    def given(self) -> list[int]:
        """Bytes per partition; one that fell further behind than is allowed stands at the floor."""
        least = {leader: self._least(leader) for leader in set(self._leaders)}
        known = zip(self._given, self._leaders, strict=True)
        return [max(given, least[leader]) for given, leader in known]

    @property
    def leaders(self) -> Iterable[int]:
        """The brokers that lead a partition that competes."""
        return self._heaps.keys()

    @property
    def competing(self) -> dict[int, list[int]]:
        """By leader, the partitions that are chosen from."""
        return {leader: [entry[2] for entry in heap] for leader, heap in self._heaps.items()}

    def follow(self, view: TopicView, near: frozenset[int] = frozenset()) -> bool:
        """Take up who leads what; whether other partitions compete now, or under other leaders.

        Only the partitions of the leaders in ``near`` compete while there are any (KIP-1123). One
        that is new starts at the floor. What has not moved is left alone.
        """
        if view is self._view and near == self._near:
            return False
        before, leaders = self._leaders, [partition.leader for partition in view.partitions]
        if leaders == before and near == self._near:
            self._view = view
            return False
        if self._forgiven:  # it goes by who led what until now
            known, forgiven = zip(self._given, before, strict=True), self._forgiven
            self._given = [f if (f := forgiven.get(n, 0)) > given else given for given, n in known]
            self._forgiven = {}
        self._view, self._near, self._leaders = view, near, leaders
        missing = len(leaders) - len(before)
        self._given = self._given[: len(leaders)] + [self._floor] * missing
        led = {leader for leader in leaders if leader >= 0}
        competing = led & near or led
        heaps = {leader: self._stayed(leader) for leader in competing}
        before = before + [_NOBODY] * missing
        for partition, (was, leader) in enumerate(zip(before, leaders, strict=False)):
            stayed = was == leader and leader in self._heaps
            if leader in competing and not stayed:
                heaps[leader].append((self._given[partition], self._random(), partition))
        for heap in heaps.values():
            heapify(heap)
        self._heaps = heaps
        return True

    def _stayed(self, leader: int) -> list[_Entry]:
        leaders, heap = self._leaders, self._heaps.get(leader, ())
        return [e for e in heap if e[2] < len(leaders) and leaders[e[2]] == leader]

    def _least(self, leader: int) -> int:
        """How little a partition of the leader can stand at."""
        return max(self._floor, self._forgiven.get(leader, 0))

    def add(self, partition: int, nbytes: int) -> None:
        """``nbytes`` went to the partition."""
        if partition < len(self._given):
            least = self._least(self._leaders[partition])
            given = self._given[partition] = max(self._given[partition], least) + nbytes
            self._batch = max(nbytes, _FORGETTING * self._batch)
            self._floor = max(self._floor, given - int(_PATIENCE * self._batch))

    def forgive(self, leader: int) -> None:
        """The broker was out of order and is back: nothing of what it missed is made up for."""
        if leader not in self._heaps:
            return
        others = [
            self._given[entry[2]]
            for node, rest in self._heaps.items()
            if node != leader
            for entry in rest
        ]
        if others:
            usual = sum(others) // len(others)
            self._forgiven[leader] = max(usual, self._forgiven.get(leader, 0))

    def pick(self, leaders: Iterable[int], is_open: Callable[[int], bool]) -> int | None:
        """The partition furthest behind among those led by ``leaders`` that are open."""
        best: _Entry | None = None
        for leader in leaders:
            entry = self._first_open(self._heaps.get(leader), is_open)
            if entry is not None:
                # All that are further behind than is allowed are so by the same.
                entry = (max(entry[0], self._least(leader)), *entry[1:])
                if best is None or entry < best:
                    best = entry
        return None if best is None else best[2]

    def _first_open(
        self, heap: list[_Entry] | None, is_open: Callable[[int], bool]
    ) -> _Entry | None:
        """The heap's first entry with an open partition, brought up to date on the way.

        Entries only ever grow, so that an old one is at worst found too early and moved back. One
        below the least that counts stays where it is: as that rises, it would be all of them.
        """
        closed: list[_Entry] = []
        found: _Entry | None = None
        while heap and found is None:
            noted, _, partition = heap[0]
            given = self._given[partition]
            if noted < given:
                heapreplace(heap, (given, self._random(), partition))
            elif is_open(partition):
                found = heap[0]
            else:
                closed.append(heappop(heap))
        for entry in closed:
            assert heap is not None
            heappush(heap, entry)
        return found
