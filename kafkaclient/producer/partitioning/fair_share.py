"""Which partition of a topic is furthest behind its fair share of bytes. Pure, RNG passed in.

Late binding asks for a partition only when a broker can take a batch: of the partitions led by
brokers that can, the one that has been given the fewest bytes gets it. Brokers of equal speed thus
get equal bytes to within a batch; a slow one gets less because it is free less often.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from kafkaclient.producer.lane_id import NO_LANE, node_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.partitioning.kip794 import Random31

__all__ = ["FairShare"]

# (bytes given when the entry was made, a draw for equal ones, partition)
_Entry = tuple[int, int, int]


# How far a partition can fall behind, in batches, and how fast a large batch is forgotten.
_PATIENCE, _FORGETTING = 4, 0.95
_NOBODY = -(2**31)
"""The lane of a partition that is new: not even none, as far as is known."""


class FairShare:
    """The bytes given to each partition of one topic, by whatever way.

    A partition falls behind by a few batches at most: a broker that becomes faster must not be
    given everything until it has caught up.
    """

    __slots__ = (
        "_batch",
        "_bytes_given",
        "_floor",
        "_forgiven",
        "_heaps",
        "_lanes",
        "_near",
        "_random",
        "_routes",
        "_view",
        "lanes",
    )

    def __init__(self, random31: Random31) -> None:
        self._random = random31
        self._batch = 0.0
        """The size of the largest batch lately."""
        self._bytes_given: list[int] = []
        """By partition; what is less than its leader's :meth:`_least` counts as that."""
        self._floor = 0
        self._forgiven: dict[int, int] = {}
        """By lane: what its partitions stand at, at the least, since it was back in order."""
        self._heaps: dict[int, list[_Entry]] = {}
        self.lanes: AbstractSet[int] = self._heaps.keys()
        """The lanes of the partitions that compete."""
        self._lanes: list[int] = []
        self._routes: list[int] | None = None
        self._view: TopicView | None = None
        self._near: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        return f"<FairShare given={self.bytes_given}>"

    @property
    def bytes_given(self) -> list[int]:
        """Bytes per partition; one that fell further behind than is allowed stands at the floor."""
        least = {lane: self._least(lane) for lane in set(self._lanes)}
        known = zip(self._bytes_given, self._lanes, strict=True)
        return [max(given, least[lane]) for given, lane in known]

    @property
    def competing(self) -> dict[int, list[int]]:
        """By lane, the partitions that are chosen from."""
        return {lane: [entry[2] for entry in heap] for lane, heap in self._heaps.items()}

    def update(
        self,
        view: TopicView,
        near: frozenset[int] = frozenset(),
        routes: list[int] | None = None,
    ) -> bool:
        """Take up who leads what; whether other partitions compete now, or by other lanes.

        Only the partitions of the leaders in ``near`` compete while there are any (KIP-1123). One
        that is new starts at the floor. What has not moved is left alone. ``routes`` are the
        partitions' lanes (-1: it does not compete), if these are not simply their leaders.
        """
        if view is self._view and near == self._near and routes == self._routes:
            return False
        before, lanes = self._lanes, routes or [partition.leader for partition in view.partitions]
        if lanes == before and near == self._near:
            self._view, self._routes = view, routes
            return False
        if self._forgiven:  # it goes by who led what until now
            known, forgiven = zip(self._bytes_given, before, strict=True), self._forgiven
            self._bytes_given = [
                f if (f := forgiven.get(n, 0)) > given else given for given, n in known
            ]
            self._forgiven = {}
        self._view, self._near, self._routes, self._lanes = view, near, routes, lanes
        missing = len(lanes) - len(before)
        self._bytes_given = self._bytes_given[: len(lanes)] + [self._floor] * missing
        led = {lane for lane in lanes if lane != NO_LANE}
        competing = {lane for lane in led if node_of(lane) in near} or led
        heaps = {lane: self._stayed(lane) for lane in competing}
        before = before + [_NOBODY] * missing
        for partition, (was, lane) in enumerate(zip(before, lanes, strict=False)):
            stayed = was == lane and lane in self._heaps
            if lane in competing and not stayed:
                heaps[lane].append((self._bytes_given[partition], self._random(), partition))
        for heap in heaps.values():
            heapify(heap)
        self._heaps, self.lanes = heaps, heaps.keys()
        return True

    def _stayed(self, lane: int) -> list[_Entry]:
        lanes, heap = self._lanes, self._heaps.get(lane, ())
        return [e for e in heap if e[2] < len(lanes) and lanes[e[2]] == lane]

    def _least(self, lane: int) -> int:
        """How little a partition of the lane can stand at."""
        return max(self._floor, self._forgiven.get(lane, 0))

    def add(self, partition: int, nbytes: int) -> None:
        """``nbytes`` went to the partition."""
        if partition < len(self._bytes_given):
            least = self._least(self._lanes[partition])
            given = self._bytes_given[partition] = max(self._bytes_given[partition], least) + nbytes
            self._batch = max(nbytes, _FORGETTING * self._batch)
            self._floor = max(self._floor, given - int(_PATIENCE * self._batch))

    def reset_to_average(self, lane: int) -> None:
        """The broker was out of order and is back: nothing of what it missed is made up for."""
        if lane not in self._heaps:
            return
        others = [
            self._bytes_given[entry[2]]
            for other, rest in self._heaps.items()
            if other != lane
            for entry in rest
        ]
        if others:
            usual = sum(others) // len(others)
            self._forgiven[lane] = max(usual, self._forgiven.get(lane, 0))

    def pick(self, lanes: Iterable[int], is_open: Callable[[int], bool]) -> int | None:
        """The partition furthest behind among those of these lanes that are open."""
        best: _Entry | None = None
        for lane in lanes:
            entry = self._first_open(self._heaps.get(lane), is_open)
            if entry is not None:
                least = self._least(lane)
                if entry[0] < least:  # all that are further behind than is allowed are so alike
                    entry = (least, *entry[1:])
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
            given = self._bytes_given[partition]
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
