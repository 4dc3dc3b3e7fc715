"""The minimum share of bytes that a slow broker's partitions get under late binding. Pure.

A slow broker is seldom available, so it gets few of the records without key: with linger.ms=0
almost none, and the consumers of its partitions starve. The minimum is a fraction of the fair share
(``partitioner.share.floor``). When a partition is below its minimum and its broker is available, a
batch is reserved for the partition until it has its minimum.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

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
        """By leader: heaps of (due, partition). Entries may be outdated: ``due`` only grows."""

    def __repr__(self) -> str:
        return f"<MinimumShare total={self._total:.0f} due={self._due}>"

    def update(self, partitions: Mapping[int, Collection[int]]) -> None:
        """Use these partitions, by their leader: all that compete for unbound batches."""
        if not self._fraction:
            return
        if len(partitions) < 2:
            partitions = {}  # one broker: none is slower than another
        self._price = sum(map(len, partitions.values())) / self._fraction
        fresh = self._total + _CREDIT * self._batch * self._price
        before, self._due, self._heaps = self._due, {}, {}
        for leader, led in partitions.items():
            heap = [(d if (d := before.get(n, fresh)) < fresh else fresh, n) for n in led]
            self._due.update([(partition, due) for due, partition in heap])
            heapify(heap)
            self._heaps[leader] = heap

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
        """The partition furthest below its minimum whose leader ``is_open``. None: none is."""
        best: tuple[float, int] | None = None
        for leader, heap in self._heaps.items():
            while (due := self._due[heap[0][1]]) > heap[0][0]:
                heapreplace(heap, (due, heap[0][1]))
            first = heap[0]
            if first[0] < self._total and (best is None or first < best) and is_open(leader):
                best = first
        return None if best is None else best[1]
