"""A read in progress: fetches, decodes and yields batches, partition by partition."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from kafkaclient.errors import KafkaError, ReaderStateError
from kafkaclient.reader.batch import FetchedBatch
from kafkaclient.reader.fetch import Fetches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.reader.cluster import Cluster
    from kafkaclient.reader.cursor import Cursor
    from kafkaclient.types import TopicPartition

_MOST_DECODED = 64 * 1024 * 1024


class Reading:
    """An asynchronous iterator over :class:`FetchedBatch`; :meth:`Reader.read` makes it.

    Batches of one partition come in the order of its log; partitions take turns. It sends requests
    only while a batch is awaited, and has at most ``fetch.max.bytes`` of fetched batches. It ends
    when each partition has reached its end, with :meth:`aclose`, with its reader, or with an error.
    :attr:`positions` are the offsets at which a new read would continue. Only one task at a time
    may use it.
    """

    def __init__(self, cluster: Cluster, cursors: Sequence[Cursor], *, headers: bool) -> None:
        config = cluster.config
        self._cluster = cluster
        self._cursors = {cursor.topic_partition: cursor for cursor in cursors}
        self._headers = headers
        self._limit = min(config.max_partition_fetch_bytes, _MOST_DECODED)
        self._turns: deque[Cursor] = deque(cursors)
        """The partitions that are not done, in the order of their turns."""
        self._news = asyncio.Event()
        self._fetches = Fetches(config, cluster, cursors, self._news.set)
        self._found = False
        self._busy = False
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._turns)} partitions to go"
        return f"<Reading {state}, {self._fetches.held} B fetched or requested>"

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset at which each partition continues, behind the batches that were yielded."""
        return {tp: cursor.position for tp, cursor in self._cursors.items()}

    @property
    def topics(self) -> set[str]:
        """The topics with a partition that is not done."""
        return {cursor.topic_partition.topic for cursor in self._turns}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FetchedBatch:
        """Raises:
        MetadataTimeoutError: a topic is not known within ``max.block.ms``.
        PartitionOutOfRangeError: a topic has no such partition.
        OffsetOutOfRangeError: a partition has no such offset (any more).
        UnreadableBatchError: a batch in the log is damaged, or older than Kafka 0.11.
        FetchTimeoutError: a partition could not be fetched for ``max.block.ms``.
        UnknownTopicError: a topic was deleted and created again while it was read.
        AuthorizationError: reading is not permitted.
        KafkaError: a broker answered with another error that is not retriable.
        ReaderStateError: the reader was closed meanwhile, or another task is reading here.
        """
        if self._busy:
            raise ReaderStateError("two tasks take batches from one read")
        self._busy = True
        try:
            if not self._found:
                await self._cluster.find(self._cursors)
                self._found = True
            while not self._closed:
                check_at = self._fetches.top_up()
                # The requests leave. Their responses may come while a batch is decoded.
                await asyncio.sleep(0)
                batch = self._next_batch()
                if batch is not None:
                    return batch
                if not self._turns:
                    self.close()
                    raise StopAsyncIteration
                # A response without visible records has been used up: there is room for a request.
                if not self._news.is_set() and not self._fetches.has_used_up_response:
                    await self._wait(check_at)
                self._news.clear()
        except KafkaError:
            self.close()
            raise
        finally:
            self._busy = False
        if self._turns:
            raise ReaderStateError("the read was closed before it reached its end")
        raise StopAsyncIteration

    async def _wait(self, check_at: float | None) -> None:
        delay = None if check_at is None else max(0.0, check_at - self._cluster.now())
        try:
            async with asyncio.timeout(delay):
                await self._news.wait()
        except TimeoutError:
            pass  # the caller checks again

    def _next_batch(self) -> FetchedBatch | None:
        """A batch of the first partition, in the order of turns, that has records."""
        for _ in range(len(self._turns)):
            cursor = self._turns.popleft()
            try:
                batch = self._take(cursor)
            finally:
                if cursor.done:
                    cursor.drop_parts()
                else:
                    self._turns.append(cursor)
            if batch is not None:
                return batch
        return None

    def _take(self, cursor: Cursor) -> FetchedBatch | None:
        while cursor.parts and not cursor.done:
            part = cursor.parts[0]
            columns, cursor.position = part.take(
                cursor.position, cursor.end, self._limit, self._headers
            )
            if not part:
                cursor.parts.popleft()
            if columns is not None:
                return FetchedBatch(
                    cursor.topic_partition, columns, cursor.position, cursor.high_watermark
                )
        if cursor.error is not None and not cursor.parts:
            raise cursor.error
        return None

    def close(self) -> None:
        """End the read at once, and release batches that were fetched and not yielded."""
        if not self._closed:
            self._closed = True
            self._fetches.close()
            for cursor in self._cursors.values():
                cursor.drop_parts()
            self._news.set()

    async def aclose(self) -> None:
        """End the read; the same name as asynchronous generators have (``contextlib.aclosing``)."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
