"""A read under way: what has been fetched, decoded and given out, partition by partition."""

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

__all__ = ["Reading"]

_MOST_DECODED = 64 * 1024 * 1024


class Reading:
    """An asynchronous iterator over :class:`FetchedBatch`; made by :meth:`Reader.read`.

    Batches of one partition come in the order of its log; partitions take turns. Nothing is asked
    of brokers but while a batch is awaited: who takes none for a while stops the fetching, with at
    most ``fetch.max.bytes`` ahead. It ends when each partition has come to its end, by
    :meth:`aclose`, with its reader, or by an error; :attr:`positions` tells where a new read would
    go on. To be used by one task at a time.
    """

    def __init__(self, cluster: Cluster, cursors: Sequence[Cursor], *, headers: bool) -> None:
        config = cluster.config
        self._cluster = cluster
        self._cursors = {cursor.topic_partition: cursor for cursor in cursors}
        self._headers = headers
        self._limit = min(config.max_partition_fetch_bytes, _MOST_DECODED)
        self._line: deque[Cursor] = deque(cursors)
        """Those not done, in the order of their turns."""
        self._news = asyncio.Event()
        self._fetches = Fetches(config, cluster, cursors, self._news.set)
        self._found = False
        self._busy = False
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._line)} partitions to go"
        return f"<Reading {state}, {self._fetches.held} B fetched or asked for>"

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where each partition goes on: past the batches given, and past what needs not be."""
        return {tp: cursor.position for tp, cursor in self._cursors.items()}

    @property
    def topics(self) -> set[str]:
        """The topics that are not read to their end yet."""
        return {cursor.topic_partition.topic for cursor in self._line}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FetchedBatch:
        """Raises:
        MetadataTimeoutError: a topic is not known within ``max.block.ms``.
        PartitionOutOfRangeError: a topic has no such partition.
        OffsetOutOfRangeError: a partition has no such offset (any more).
        UnreadableBatchError: a batch in the log is damaged, or older than Kafka 0.11.
        FetchTimeoutError: a partition could not be fetched for ``max.block.ms``.
        UnknownTopicError: a topic was created anew while it was read.
        AuthorizationError: reading is not permitted.
        KafkaError: any other answer that retrying does not mend.
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
                look_at = self._fetches.top_up()
                await asyncio.sleep(0)  # the request leaves, and its answer may come while we work
                batch = self._next_batch()
                if batch is not None:
                    return batch
                if not self._line:
                    self.close()
                    raise StopAsyncIteration
                if not self._news.is_set():
                    await self._wait(look_at)
                self._news.clear()
        except KafkaError:
            self.close()
            raise
        finally:
            self._busy = False
        if self._line:
            raise ReaderStateError("the read was closed before it had come to its end")
        raise StopAsyncIteration

    async def _wait(self, look_at: float | None) -> None:
        delay = None if look_at is None else max(0.0, look_at - self._cluster.now())
        try:
            async with asyncio.timeout(delay):
                await self._news.wait()
        except TimeoutError:
            pass  # time to look again

    def _next_batch(self) -> FetchedBatch | None:
        """From whichever partition's turn it is and has something."""
        for _ in range(len(self._line)):
            cursor = self._line.popleft()
            try:
                batch = self._take(cursor)
            finally:
                if cursor.done:
                    while cursor.parts:
                        cursor.parts.popleft().drop()
                else:
                    self._line.append(cursor)
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
        """End the read at once; what has been fetched and not given is let go."""
        if not self._closed:
            self._closed = True
            self._fetches.close()
            for cursor in self._cursors.values():
                while cursor.parts:
                    cursor.parts.popleft().drop()
            self._news.set()

    async def aclose(self) -> None:
        """The same, as asynchronous generators have it (``contextlib.aclosing``)."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
