"""How far a read has come in one partition, and what stands in its way."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkaclient.errors import FetchTimeoutError, KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from uuid import UUID

    from kafkaclient.reader.part import Part
    from kafkaclient.types import TopicPartition

__all__ = ["FOREVER", "Cursor", "Fetch"]

_AHEAD = 2
"""How many answers a partition may have waiting, however large they are."""

FOREVER = 2**63 - 1
"""The end of a read that has none."""


class Cursor:
    """One partition of a read: ``position`` is the offset of the next record to give, ``end``
    (excluded) where it is done. Fetching runs ahead of it."""

    def __init__(self, topic_partition: TopicPartition, start: int, end: int) -> None:
        self.topic_partition = topic_partition
        self.position = start
        self.end = end
        self.fetch_offset: int | None = start
        """Where to fetch next; None once what was fetched does not tell."""
        self.parts: deque[Part] = deque()
        """Fetched and not taken yet."""
        self.fetch: Fetch | None = None
        """The request under way."""
        self.idle = False
        """When it was asked for last, there was nothing more."""
        self.high_watermark = -1
        self.topic_id: UUID | None = None
        """Of the topic when it was first fetched: another one of the same name is another log."""
        self.replica: int | None = None
        """The follower that the leader has named (KIP-392), until ``replica_until``."""
        self.replica_until = 0.0
        self.error: KafkaError | None = None
        """What ends the read, once all before it has been given."""
        self.retry_at = 0.0
        self.failures = 0
        self._failing_since = 0.0

    def __repr__(self) -> str:
        end = "" if self.end == FOREVER else f" of {self.end}"
        return f"<Cursor {self.topic_partition} at {self.position}{end}, {self.buffered} B ahead>"

    @property
    def done(self) -> bool:
        return self.position >= self.end

    @property
    def buffered(self) -> int:
        """Bytes fetched and not taken yet."""
        return sum(part.size for part in self.parts)

    def is_hungry(self, enough: int) -> bool:
        """Whether more is to be fetched; not with ``enough`` bytes at hand, in several answers."""
        return (
            self.fetch is None
            and self.error is None
            and self.fetch_offset is not None
            and self.fetch_offset < self.end
            and (len(self.parts) < _AHEAD or self.buffered < enough)
        )

    def fetched(self, part: Part | None, high_watermark: int, *, idle: bool) -> None:
        """The answer's part, None if it brought none; ``idle`` if there is none to be had yet."""
        self.failures = 0
        self.high_watermark = high_watermark
        self.idle = idle
        if part is not None:
            self.parts.append(part)
            self.fetch_offset = part.next_offset

    def failed(self, error: KafkaError, now: float, pause_s: float, patience_s: float) -> None:
        """It could not be fetched; it may be again after the pause, unless the patience is over."""
        self.failures += 1
        self.replica = None
        self.retry_at = now + pause_s
        if self.failures == 1:
            self._failing_since = now
        if not error.retriable:
            self.error = error.for_one()
        elif now - self._failing_since >= patience_s:
            timeout = FetchTimeoutError(
                f"{self.topic_partition}: nothing could be fetched at offset {self.fetch_offset} "
                f"for {now - self._failing_since:.3g} s (max.block.ms), in {self.failures} "
                f"attempts; the last failed so: {error}"
            )
            timeout.topic_partition, timeout.offset = self.topic_partition, self.position
            timeout.__cause__ = error
            self.error = timeout


class Fetch:
    """A request under way: at most one per broker."""

    def __init__(self, node_id: int, cursors: Sequence[Cursor], reserved: int) -> None:
        self.node_id = node_id
        self.cursors = cursors
        self.reserved = reserved
        self.late_at = 0.0
        self.task: asyncio.Task[None] | None = None
