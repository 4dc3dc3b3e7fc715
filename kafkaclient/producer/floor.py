"""The share floor: how little a slow broker's partitions may get under late binding. Pure.

A slow broker is seldom free, so that it gets few of the records without key: with a linger of 0
next to none, and whoever consumes its partitions starves. The floor is a part of the fair share of
bytes. A partition below it has records set aside for it, which wait for its broker.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["ShareFloor"]

# How many batches a partition can be ahead of its floor, and behind.
_CREDIT, _DEBT = 4, 1


class ShareFloor:
    """Which partitions of one topic are below their floor.

    ``fraction`` is the floor as a part of the fair share, 0 (none) to 1; ``batch`` the usual size
    of a batch in bytes. Time is counted in the topic's bytes: a partition with a floor of 1/6 that
    gets a byte owes nothing for the topic's next 6. It can save up and owe a few batches' worth.
    """

    __slots__ = ("_batch", "_due", "_fraction", "_heap", "_price", "_total")

    def __init__(self, fraction: float, batch: int) -> None:
        self._fraction = fraction
        self._batch = batch
        self._total = 0.0
        self._price = 0.0
        """The topic's bytes that one byte stands for."""
        self._due: dict[int, float] = {}
        """By partition: the total at which it falls below its floor."""
        self._heap: list[tuple[float, int]] = []

    def __repr__(self) -> str:
        return f"<ShareFloor total={self._total:.0f} due={self._due}>"

    def follow(self, partitions: Collection[int]) -> None:
        """These partitions have a leader and compete for records."""
        if not self._fraction:
            return
        self._price = len(partitions) / self._fraction
        fresh = self._total + _CREDIT * self._batch * self._price
        self._due = {p: min(self._due.get(p, fresh), fresh) for p in partitions}
        self._heap = [(due, partition) for partition, due in self._due.items()]
        heapify(self._heap)

    def add(self, partition: int, nbytes: int) -> None:
        """``nbytes`` went to the partition, or were set aside for it."""
        self._total += nbytes
        due = self._due.get(partition)
        if due is None:
            return
        self._batch = max(self._batch, nbytes)
        span = self._batch * self._price
        paid = max(due, self._total - _DEBT * span) + nbytes * self._price
        self._due[partition] = min(paid, self._total + _CREDIT * span)

    def lowest(self) -> int | None:
        """The partition furthest below its floor, if any is below."""
        heap, total = self._heap, self._total
        while heap and heap[0][0] <= total:
            noted, partition = heap[0]
            due = self._due[partition]
            if due <= noted:
                return partition
            heapreplace(heap, (due, partition))
        return None

    def excuse(self, partition: int) -> None:
        """The partition's broker is out of order: it is owed nothing for the time being."""
        self._due[partition] = self._total + self._batch * self._price
