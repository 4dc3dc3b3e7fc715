"""KIP-794's uniform sticky partitioner, pure: no I/O, clock or client; the RNG is passed in.

As Java 4.x ships it (``BuiltInPartitioner``): records without key stay on one partition until
about ``batch.size`` bytes went there, then the next partition is drawn. With adaptive partitioning
the more batches a partition has queued, the less likely it is drawn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkaclient.cluster.view import TopicView

Random31 = Callable[[], int]
"""Returns a random integer from 0 to 2^31-1."""


class LoadTable(NamedTuple):
    """Cumulative weights over partitions; the last entry is the sum of all weights."""

    cumulative: tuple[int, ...]
    partitions: tuple[int, ...]

    def pick(self, draw: int) -> int:
        return self.partitions[bisect_right(self.cumulative, draw % self.cumulative[-1])]


def load_table(
    queue_sizes: Sequence[int],
    partitions: Sequence[int],
    partition_count: int,
    near: Collection[int] = (),
) -> LoadTable | None:
    """Weights ``max + 1 - queue size`` for the partitions that may be drawn. None: all are equal.

    ``queue_sizes`` (in batches) and ``partitions`` have the same order; partitions without a leader
    or excluded ones are left out. Queues 0, 3, 1 give weights 4, 1, 3 and the table 4, 5, 8. If a
    partition of ``near`` may be drawn, only those are, by their own maximum (KIP-1123). Whether all
    are equal is judged over all partitions, as in Java.
    """
    if partition_count < 2 or not partitions:
        return None
    longest = max(queue_sizes)
    if len(partitions) == partition_count and min(queue_sizes) == longest:
        return None
    if near and (inside := [n for n, partition in enumerate(partitions) if partition in near]):
        queue_sizes = [queue_sizes[n] for n in inside]
        partitions = [partitions[n] for n in inside]
        longest = max(queue_sizes)
    weights = [longest + 1 - size for size in queue_sizes]
    return LoadTable(tuple(accumulate(weights)), tuple(partitions))


class StickyPartition:
    """The partition that records without key go to at present, and the bytes appended to it."""

    __slots__ = ("partition", "produced")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.produced = 0

    def __repr__(self) -> str:
        return f"<StickyPartition {self.partition} produced={self.produced}>"


class BuiltInPartitioner:
    """One topic's sticky partition. The accumulator reports the appended bytes.

    ``before_draw()`` is called before each draw, and may assign ``load``. ``near(topic)`` returns
    the partitions whose leader is in the client's rack: without a load table only those are drawn,
    if there are any (KIP-1123). ``sticky_bytes``: how many bytes go to a partition before the next
    is drawn (``batch.size``, at least 1). The switch waits until every batch of the partition is
    full, so that lingering does not leave fractional batches (KAFKA-14156), but not beyond twice
    ``sticky_bytes``.
    """

    __slots__ = ("_before_draw", "_near", "_random", "_sticky", "_sticky_bytes", "load", "switches")

    def __init__(
        self,
        sticky_bytes: int,
        random31: Random31,
        before_draw: Callable[[], None] = lambda: None,
        near: Callable[[TopicView], Sequence[int]] = lambda _: (),
    ) -> None:
        if sticky_bytes < 1:
            raise ValueError(f"sticky_bytes must be at least 1, not {sticky_bytes}")
        self._sticky_bytes = sticky_bytes
        self._random = random31
        self._before_draw = before_draw
        self._near = near
        self._sticky: StickyPartition | None = None
        self.load: LoadTable | None = None
        """The weights by queue length. None: draw evenly among partitions with a leader."""
        self.switches = 0

    def current(self, topic: TopicView) -> StickyPartition:
        """The partition to append to now."""
        if self._sticky is None:
            self._sticky = StickyPartition(self.next_partition(topic))
        return self._sticky

    def reset(self) -> None:
        """Start over: the topic has lost partitions, perhaps the current one."""
        self._sticky = self.load = None

    def update(self, appended: int, topic: TopicView, *, all_full: bool) -> bool:
        """Count ``appended`` bytes on the current partition. Returns whether another was drawn.

        ``all_full``: every batch queued for the partition is full, or there is none.
        """
        sticky = self._sticky
        if sticky is None:
            return False
        sticky.produced += appended
        if not (
            (all_full and sticky.produced >= self._sticky_bytes)
            or sticky.produced >= 2 * self._sticky_bytes
        ):
            return False
        # The same partition may be drawn again, and starts from 0 bytes.
        self._sticky = StickyPartition(self.next_partition(topic))
        self.switches += 1
        return True

    def next_partition(self, topic: TopicView) -> int:
        """Draw a partition: by load, or evenly among those with a leader, or among all."""
        self._before_draw()
        draw = self._random()
        if self.load is not None:
            return self.load.pick(draw)
        available = self._near(topic) or topic.available
        if available:
            return available[draw % len(available)]
        return draw % topic.partition_count
