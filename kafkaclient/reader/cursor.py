"""The position of a read in one partition, and the error that stops it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaclient.errors import FetchTimeoutError, KafkaError, UnknownTopicError
from kafkaclient.topic_names import partition_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from kafkaclient.reader.batch import FetchedPart
    from kafkaclient.types import TopicPartition

_AHEAD = 2
"""How many fetched parts a partition may have, whatever their size."""

_FOREVER = 2**63 - 1  # the end of a read without an end


class Cursor:
    """One partition of a read, from ``position``, the offset of the next record for the caller, to
    ``end`` (excluded; None: without an end). Fetches are ahead of the position.

    Raises ValueError if there are no such offsets.
    """

    def __init__(self, where: tuple[str, int], start: int, end: int | None) -> None:
        self.topic_partition: TopicPartition = partition_of(where)
        if start < 0 or (end is not None and end < start):
            raise ValueError(
                f"{self.topic_partition}: there is no range of offsets from {start} to {end}"
            )
        self.position = start
        self.end: int = _FOREVER if end is None else end
        self.fetch_offset: int | None = start
        """The offset of the next fetch; None if the fetched bytes do not contain it."""
        self.last_epoch: int = -1
        """The leader epoch of the record before ``fetch_offset``, -1 if it is not known."""
        self.parts: deque[FetchedPart] = deque()
        """Fetched parts that the caller has not taken yet."""
        self.fetch: Fetch | None = None
        """The request in flight."""
        self.paused: bool = False
        """Whether the caller wants no batches now. Then nothing is fetched either."""
        self.idle: bool = False
        """Whether the last fetch reached the end of the log."""
        self.high_watermark: int = -1
        self.last_fetch: tuple[int, int, float] | None = None
        """The high watermark, the last stable offset and the time of the last response."""
        self.log_end: int | None = None
        """Where the read meets the end of the log, as of the last fetch: the last stable offset
        with ``read_committed``, otherwise the high watermark."""
        self.topic_id: UUID | None = None
        """The topic's id in the first fetch that was answered. Another id is another log."""
        self.cluster_id: str | None = None
        """The cluster of the first fetch. In another one the offsets mean other records."""
        self.replica: int | None = None
        """The follower that the leader has named (KIP-392), until ``replica_until``."""
        self.replica_until: float = 0.0
        self.error: KafkaError | None = None
        """The error that ends the read after the caller has taken all parts."""
        self.retry_at: float = 0.0
        self.failures: int = 0
        self._failing_since = 0.0

    def __repr__(self) -> str:
        end = "" if self.end == _FOREVER else f" of {self.end}"
        return f"<Cursor {self.topic_partition} at {self.position}{end}, {self.buffered} B ahead>"

    @property
    def done(self) -> bool:
        return self.position >= self.end

    @property
    def buffered(self) -> int:
        """Fetched bytes that the caller has not taken yet."""
        return sum(part.size for part in self.parts)

    @property
    def failure(self) -> KafkaError | None:
        """The error, if the caller has taken all parts before it."""
        return None if self.parts else self.error

    def moved_to(self, position: int, topic_id: UUID | None) -> Cursor:
        """A cursor for the same partition at another position. If this one has failed because the
        topic was created again, the new one reads the new topic, which has ``topic_id``."""
        moved = Cursor(self.topic_partition, position, self.end)
        moved.paused, moved.last_fetch = self.paused, self.last_fetch
        if isinstance(self.error, UnknownTopicError):
            moved.topic_id = topic_id
        else:
            moved.topic_id, moved.cluster_id = self.topic_id, self.cluster_id
        return moved

    def drop_parts(self) -> None:
        """Release everything that was fetched."""
        while self.parts:
            self.parts.popleft().drop()

    def give_up(self) -> None:
        """The read does not need this cursor any more. The response in flight is ignored."""
        self.drop_parts()
        self.fetch = None

    def rewind(self) -> None:
        """Release everything that was fetched, to fetch it again from the position on."""
        self.give_up()
        self.fetch_offset, self.last_epoch = self.position, -1

    def is_hungry(self, enough: int) -> bool:
        """Whether to fetch more: not if there are several parts with ``enough`` bytes."""
        return (
            self.fetch is None
            and not self.paused
            and self.error is None
            and self.fetch_offset is not None
            and self.fetch_offset < self.end
            and (len(self.parts) < _AHEAD or self.buffered < enough)
        )

    def fetched(self, part: FetchedPart | None, high_watermark: int, log_end: int) -> None:
        """Add a response's part, None if it had no records."""
        self.failures = 0
        self.high_watermark = high_watermark
        self.log_end = log_end
        self.idle = log_end <= (self.fetch_offset or 0)
        if part is not None:
            self.parts.append(part)
            self.fetch_offset, self.last_epoch = part.next_offset, part.last_epoch

    def failed(self, error: KafkaError, now: float, pause_s: float, patience_s: float) -> None:
        """A fetch has failed. Retry after the pause, unless it has failed for ``patience_s``."""
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
                f"attempts; the last error: {error}"
            )
            timeout.topic_partition, timeout.offset = self.topic_partition, self.position
            timeout.__cause__ = error
            self.error = timeout


@dataclass(eq=False)
class Fetch:
    """A Fetch request in flight: at most one per broker. ``reserved``: bytes of its response.
    ``topic_ids``: the topics that were asked for, by name, if the brokers have ids."""

    node_id: int
    cursors: Sequence[Cursor]
    reserved: int
    late_at: float
    topic_ids: Mapping[str, UUID | None]

    @property
    def wanted(self) -> list[Cursor]:
        """The partitions whose response is still awaited: another broker may have got the request
        of a partition meanwhile, or the caller may have removed it."""
        return [cursor for cursor in self.cursors if cursor.fetch is self]
