"""Which partition is furthest behind its share of bytes, and the least share that each gets.

Late binding picks a partition only when a broker can take a batch: of the partitions led by
available brokers, the one with the fewest bytes gets the batch. Brokers of equal speed thus get
equal bytes to within a batch. A slow broker gets fewer because it is available less often.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from kafkaclient.producer.settings import NO_LANE, node_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.partitioning.kip794 import Random31


# --- The minimum share of bytes -------------------------------------------------------------------
# A slow broker is seldom available, so it gets few of the records without key: with linger.ms=0
# almost none, and the consumers of its partitions starve. The minimum is a fraction of the fair
# share (``partitioner.share.floor``). When a partition is below its minimum and its broker is
# available, a batch is reserved for the partition until it has its minimum.

_CREDIT = 4  # how far a partition can be ahead of its minimum share, in batches
_DECAY = 0.95  # of the largest batch size, with each batch


class MinimumShare:
    """Which partitions of one topic are below their minimum share.

    ``fraction`` is the minimum as a fraction of the fair share, 0 (none) to 1; ``batch`` the usual
    size of a batch in bytes. Time is counted in the topic's bytes: a partition with a minimum of
    1/6 that gets a byte is owed nothing for the topic's next 6 bytes. It can be ahead by a few
    batches.
    """

    __slots__ = ("_batch", "_due", "_fraction", "_heaps", "_price", "_total", "_usual")

    def __init__(self, fraction: float, batch: int) -> None:
        self._fraction = fraction
        self._usual = batch
        self._batch = float(batch)
        self._total = 0.0
        self._price = 0.0
        """How many bytes of the topic one byte of a partition pays for."""
        self._due: dict[int, float] = {}
        """By partition: the total at which the partition falls below its minimum."""
        self._heaps: dict[int, list[tuple[float, int]]] = {}
        """By lane: heaps of (due, partition). Entries may be outdated: ``due`` only grows."""

    def __repr__(self) -> str:
        return f"<MinimumShare total={self._total:.0f} due={self._due}>"

    def update(self, partitions: Mapping[int, Collection[int]]) -> None:
        """Use these partitions, by their lane: all that compete for unbound batches."""
        if not self._fraction:
            return
        if len(partitions) < 2:
            partitions = {}  # one broker: none is slower than another
        self._price = sum(map(len, partitions.values())) / self._fraction
        fresh = self._total + _CREDIT * self._batch * self._price
        before, self._due, self._heaps = self._due, {}, {}
        for lane, led in partitions.items():
            heap = [(min(before.get(n, fresh), fresh), n) for n in led]
            self._due.update([(partition, due) for due, partition in heap])
            heapify(heap)
            self._heaps[lane] = heap

    def add(self, partition: int, nbytes: int) -> None:
        """The partition was given ``nbytes``, or they were reserved for it."""
        self._total += nbytes
        due = self._due.get(partition)
        if due is None:
            return
        self._batch = max(self._usual, nbytes, _DECAY * self._batch)
        most = self._total + _CREDIT * self._batch * self._price
        self._due[partition] = min(due + nbytes * self._price, most)

    def write_off(self, partition: int) -> None:
        """The partition had its turn: its remaining deficit is cancelled."""
        if partition in self._due:
            self._due[partition] = max(self._due[partition], self._total)

    def is_below(self, partition: int, nbytes: int = 0) -> bool:
        """Whether the partition is below its minimum, and would be with ``nbytes`` more."""
        return self._due.get(partition, self._total) + nbytes * self._price < self._total

    def most_underserved(self, is_open: Callable[[int], bool]) -> int | None:
        """The partition furthest below its minimum whose lane ``is_open``. None: none is."""
        best: tuple[float, int] | None = None
        for lane, heap in self._heaps.items():
            while (due := self._due[heap[0][1]]) > heap[0][0]:
                heapreplace(heap, (due, heap[0][1]))
            first = heap[0]
            if first[0] < self._total and (best is None or first < best) and is_open(lane):
                best = first
        return None if best is None else best[1]


# --- Which partition of a topic is furthest behind its fair share of bytes ------------------------

# (bytes given when the entry was made, a random number for ties, partition)
_Entry = tuple[int, int, int]

_MOST_BEHIND = 4  # how far a partition can fall behind, in batches
_UNKNOWN_LANE = -(2**31)  # of a partition that is new; it differs from NO_LANE


class FairShare:
    """The bytes given to each partition of one topic, whether bound by key, caller or choice.

    A partition falls behind by a few batches at most: a broker that becomes faster must not get
    every batch until it has caught up.
    """

    __slots__ = (
        "_batch",
        "_bytes_given",
        "_heaps",
        "_lanes",
        "_least_of_all",
        "_near",
        "_random",
        "_reset_to",
        "_routes",
        "_view",
        "lanes",
    )

    def __init__(self, random31: Random31) -> None:
        self._random = random31
        self._batch = 0.0
        """The size of the largest of the last batches, in bytes."""
        self._bytes_given: list[int] = []
        """By partition. Less than the least bytes of its lane counts as these."""
        self._least_of_all = 0
        self._reset_to: dict[int, int] = {}
        """By lane whose broker has recovered: the least bytes that its partitions count with."""
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
        """Bytes by partition. A partition can fall behind by a few batches only."""
        least, reset_to = self._least_of_all, self._reset_to
        known = zip(self._bytes_given, self._lanes, strict=True)
        return [max(given, least, reset_to.get(lane, 0)) for given, lane in known]

    @property
    def competing(self) -> dict[int, list[int]]:
        """By lane, the partitions that compete for unbound batches."""
        return {lane: [entry[2] for entry in heap] for lane, heap in self._heaps.items()}

    def update(
        self,
        view: TopicView,
        near: frozenset[int] = frozenset(),
        routes: list[int] | None = None,
    ) -> bool:
        """Use new metadata. Returns whether the competing partitions or their lanes changed.

        Only the partitions of the leaders in ``near`` compete while there are any (KIP-1123). A new
        partition starts with the least bytes that count. ``routes`` are the partitions' lanes (-1:
        it does not compete), if these are not simply their leaders.
        """
        if view is self._view and near == self._near and routes == self._routes:
            return False
        before, lanes = self._lanes, routes or [partition.leader for partition in view.partitions]
        if lanes == before and near == self._near:
            self._view, self._routes = view, routes
            return False
        if self._reset_to:  # by the lanes until now
            known, reset_to = zip(self._bytes_given, before, strict=True), self._reset_to
            self._bytes_given = [max(reset_to.get(n, 0), given) for given, n in known]
            self._reset_to = {}
        self._view, self._near, self._routes, self._lanes = view, near, routes, lanes
        missing = len(lanes) - len(before)
        self._bytes_given = self._bytes_given[: len(lanes)] + [self._least_of_all] * missing
        led = {lane for lane in lanes if lane != NO_LANE}
        competing = {lane for lane in led if node_of(lane) in near} or led
        heaps = {lane: self._stayed(lane) for lane in competing}
        before = before + [_UNKNOWN_LANE] * missing
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

    def add(self, partition: int, nbytes: int) -> None:
        """The partition was given ``nbytes``."""
        bytes_given = self._bytes_given
        if partition < len(bytes_given):
            least = self._least(self._lanes[partition])
            given = bytes_given[partition] = max(bytes_given[partition], least) + nbytes
            self._batch = max(nbytes, _DECAY * self._batch)
            self._least_of_all = max(self._least_of_all, given - int(_MOST_BEHIND * self._batch))

    def _least(self, lane: int) -> int:
        """The least bytes that a partition of the lane counts with."""
        if not self._reset_to:
            return self._least_of_all
        return max(self._least_of_all, self._reset_to.get(lane, 0))

    def reset_to_average(self, lane: int) -> None:
        """The lane's broker recovered. Raise its partitions to the average of the others, so that
        the broker is not flooded while it catches up."""
        if lane not in self._heaps:
            return
        others = [
            self._bytes_given[entry[2]]
            for other, rest in self._heaps.items()
            if other != lane
            for entry in rest
        ]
        if others:
            average = sum(others) // len(others)
            if average:  # 0, as before the first record, would change nothing
                self._reset_to[lane] = max(average, self._reset_to.get(lane, 0))

    def pick(self, lanes: Iterable[int], is_open: Callable[[int], bool]) -> int | None:
        """The open partition of these lanes that is furthest behind. None: none is open."""
        first: list[tuple[int, int, int, int]] = []
        for lane in lanes:
            if found := self._first(lane):
                heappush(first, found)
        closed: list[tuple[int, _Entry]] = []
        while first and not is_open(first[0][2]):
            lane = heappop(first)[3]
            closed.append((lane, heappop(self._heaps[lane])))
            if found := self._first(lane):
                heappush(first, found)
        for lane, entry in closed:
            heappush(self._heaps[lane], entry)
        return first[0][2] if first else None

    def _first(self, lane: int) -> tuple[int, int, int, int] | None:
        """The first entry of the lane's heap, and the lane. Outdated entries are corrected first.

        Bytes only grow, so an outdated entry is found too early, and is moved back. An entry below
        the least bytes that count is not moved: as the least rises, all entries would be.
        """
        heap = self._heaps.get(lane)
        least = self._least(lane)
        while heap:
            noted, tie, partition = heap[0]
            given = self._bytes_given[partition]
            if noted >= given:
                # Partitions further behind than allowed are equal.
                return max(noted, least), tie, partition, lane
            heapreplace(heap, (given, self._random(), partition))
        return None
