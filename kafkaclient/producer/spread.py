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


class Spread:
    """The bytes given to each partition of one topic, by whatever way.

    A partition falls behind by a few batches at most: a broker that becomes faster must not be
    given everything until it has caught up.
    """

    __slots__ = ("_batch", "_floor", "_given", "_heaps", "_near", "_random", "_view")

    def __init__(self, random31: Random31) -> None:
        self._random = random31
        self._batch = 0.0
        """The size of the largest batch lately."""
        self._given: list[int] = []
        self._floor = 0
        self._heaps: dict[int, list[_Entry]] = {}
        self._view: TopicView | None = None
        self._near: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<Spread given={self.given}>"

    @property
    def given(self) -> list[int]:
        """Bytes per partition; one that fell further behind than is allowed stands at the floor."""
        return [max(given, self._floor) for given in self._given]

    @property
    def leaders(self) -> Iterable[int]:
        """The brokers that lead a partition that competes."""
        return self._heaps.keys()

    @property
    def competing(self) -> dict[int, list[int]]:
        """By leader, the partitions that are chosen from."""
        return {leader: [entry[2] for entry in heap] for leader, heap in self._heaps.items()}

    def follow(self, view: TopicView, near: frozenset[int] = frozenset()) -> None:
        """Take up who leads what. A partition that is new starts at the floor.

        Only the partitions of the leaders in ``near`` compete while there are any (KIP-1123).
        """
        if view is self._view and near == self._near:
            return
        self._view, self._near = view, near
        missing = view.partition_count - len(self._given)
        self._given = self._given[: view.partition_count] + [self._floor] * missing
        self._heaps = {}
        leaders = {partition.leader for partition in view.partitions if partition.leader >= 0}
        competing = leaders & near or leaders
        for partition in view.partitions:
            if partition.leader in competing:
                entry = (self._given[partition.partition], self._random(), partition.partition)
                self._heaps.setdefault(partition.leader, []).append(entry)
        for heap in self._heaps.values():
            heapify(heap)

    def add(self, partition: int, nbytes: int) -> None:
        """``nbytes`` went to the partition."""
        if partition < len(self._given):
            given = self._given[partition] = max(self._given[partition], self._floor) + nbytes
            self._batch = max(nbytes, _FORGETTING * self._batch)
            self._floor = max(self._floor, given - int(_PATIENCE * self._batch))

    def forgive(self, leader: int) -> None:
        """The broker was out of order and is back: nothing of what it missed is made up for."""
        heap = self._heaps.get(leader, ())
        others = [
            self._given[entry[2]]
            for node, rest in self._heaps.items()
            if node != leader
            for entry in rest
        ]
        if others:
            usual = sum(others) // len(others)
            for _, _, partition in heap:
                self._given[partition] = max(self._given[partition], usual)

    def pick(self, leaders: Iterable[int], is_open: Callable[[int], bool]) -> int | None:
        """The partition furthest behind among those led by ``leaders`` that are open."""
        best: _Entry | None = None
        for leader in leaders:
            entry = self._first_open(self._heaps.get(leader), is_open)
            if entry is not None and (best is None or entry < best):
                best = entry
        return None if best is None else best[2]

    def _first_open(
        self, heap: list[_Entry] | None, is_open: Callable[[int], bool]
    ) -> _Entry | None:
        """The heap's first entry with an open partition, brought up to date on the way.

        Entries only ever grow, so that an old one is at worst found too early and moved back.
        """
        closed: list[_Entry] = []
        found: _Entry | None = None
        while heap and found is None:
            noted, _, partition = heap[0]
            given = max(self._given[partition], self._floor)
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
