"""The share floor: how little a slow broker's partitions may get under late binding. Pure.

A slow broker is seldom free, so that it gets few of the records without key: with a linger of 0
next to none, and whoever consumes its partitions starves. The floor is a part of the fair share of
bytes. When the broker of a partition below it is free, records are set aside for that partition
until the floor is reached.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = ["MinimumShare"]

# How many batches a partition can be ahead of its floor, and how fast a large one is forgotten.
_CREDIT, _FORGETTING = 4, 0.95


class MinimumShare:
    """Which partitions of one topic are below their floor.

    ``fraction`` is the floor as a part of the fair share, 0 (none) to 1; ``batch`` the usual size
    of a batch in bytes. Time is counted in the topic's bytes: a partition with a floor of 1/6 that
    gets a byte is owed nothing for the topic's next 6. It can save up a few batches' worth.
    """

    __slots__ = ("_batch", "_due", "_fraction", "_heaps", "_price", "_total", "_usual")

    def __init__(self, fraction: float, batch: int) -> None:
        self._fraction = fraction
        self._usual = batch
        self._batch: float = batch
        self._total = 0.0
        self._price = 0.0
        """The topic's bytes that one byte stands for."""
        self._due: dict[int, float] = {}
        """By partition: the total at which it falls below its floor."""
        self._heaps: dict[int, list[tuple[float, int]]] = {}
        """By leader: the same, perhaps out of date; what is due is only ever put off."""

    def __repr__(self) -> str:
        return f"<MinimumShare total={self._total:.0f} due={self._due}>"

    def update(self, partitions: Mapping[int, Collection[int]]) -> None:
        """Leaders and their partitions, all that compete for records."""
        if not self._fraction:
            return
        if len(partitions) < 2:
            partitions = {}  # one broker: nobody is slower than another
        self._price = sum(map(len, partitions.values())) / self._fraction
        fresh = self._total + _CREDIT * self._batch * self._price
        before, self._due, self._heaps = self._due, {}, {}
        for leader, led in partitions.items():
            heap = [(d if (d := before.get(n, fresh)) < fresh else fresh, n) for n in led]
            self._due.update([(partition, due) for due, partition in heap])
            heapify(heap)
            self._heaps[leader] = heap

    def add(self, partition: int, nbytes: int) -> None:
        """``nbytes`` went to the partition, or were set aside for it."""
        self._total += nbytes
        due = self._due.get(partition)
        if due is None:
            return
        self._batch = max(self._usual, nbytes, _FORGETTING * self._batch)
        most = self._total + _CREDIT * self._batch * self._price
        self._due[partition] = min(due + nbytes * self._price, most)

    def write_off(self, partition: int) -> None:
        """The partition had its turn: what is still owed to it is not made up for."""
        if partition in self._due:
            self._due[partition] = max(self._due[partition], self._total)

    def is_below(self, partition: int, nbytes: int = 0) -> bool:
        """Whether the partition is below its floor, and would be with ``nbytes`` more."""
        return self._due.get(partition, self._total) + nbytes * self._price < self._total

    def most_underserved(self, is_open: Callable[[int], bool]) -> int | None:
        """The partition furthest below its floor whose leader ``is_open``, if any is below."""
        best: tuple[float, int] | None = None
        for leader, heap in self._heaps.items():
            while (due := self._due[heap[0][1]]) > heap[0][0]:
                heapreplace(heap, (due, heap[0][1]))
            first = heap[0]
            if first[0] < self._total and (best is None or first < best) and is_open(leader):
                best = first
        return None if best is None else best[1]
