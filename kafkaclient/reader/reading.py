"""A read in progress: fetches, decodes and yields batches, partition by partition."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from kafkaclient.errors import KafkaError, ReaderStateError, UnreadableBatchError
from kafkaclient.reader.batch import FetchedBatch
from kafkaclient.reader.cursor import Cursor
from kafkaclient.reader.fetch import Fetches
from kafkaclient.topic_names import partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from kafkaclient.reader.cluster import ReaderCluster
    from kafkaclient.types import TopicPartition

_MOST_DECODED = 64 * 1024 * 1024


class Reading:
    """An asynchronous iterator over :class:`FetchedBatch`; :meth:`Reader.read` makes it.

    Batches of one partition come in the order of its log; partitions take turns. It sends requests
    only while a batch is awaited, and has at most ``fetch.max.bytes`` of fetched batches. It ends
    when each partition has reached its end, with :meth:`aclose`, with its reader, or with an error.
    :attr:`positions` are the offsets at which a new read would continue.

    Partitions can be added, removed, sought, paused and resumed at any time. Batches of the old
    position never come after :meth:`seek` or :meth:`remove`. A caller for whom the error of one
    partition is not the end uses :meth:`wait`, :meth:`take` and :attr:`errors` instead of the
    iteration. Only one task at a time may iterate or wait.
    """

    def __init__(self, cluster: ReaderCluster, cursors: Sequence[Cursor], *, headers: bool) -> None:
        config = cluster.config
        self._cluster = cluster
        self._cursors = {cursor.topic_partition: cursor for cursor in cursors}
        self._headers = headers
        self._limit = min(config.max_partition_fetch_bytes, _MOST_DECODED)
        self._turns: deque[Cursor] = deque()
        """The partitions that are not done, in the order of their turns."""
        self._news = asyncio.Event()
        self._fetches = Fetches(config, cluster, self._news.set)
        self._found = False
        """Whether the partitions are known to exist."""
        self._busy = False
        self._closed = False
        for cursor in cursors:
            self._insert(cursor)

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

    @property
    def ends(self) -> dict[TopicPartition, int | None]:
        """Where each partition ended at its last fetch: with ``read_committed`` the last stable
        offset, otherwise the high watermark. None before the first fetch, and after a seek."""
        return {tp: cursor.log_end for tp, cursor in self._cursors.items()}

    def topic_id(self, where: TopicPartition) -> UUID | None:
        """The id of the topic that is read. None if it is not known yet, or the partition is not
        part of the read."""
        cursor = self._cursors.get(where)
        return None if cursor is None else cursor.topic_id

    def last_fetch(self, where: TopicPartition) -> tuple[int, int, float] | None:
        """The partition's high watermark and last stable offset at its last fetch, and the time of
        that (the clock's seconds). None before it, and if it is not part of the read."""
        cursor = self._cursors.get(where)
        return None if cursor is None else cursor.last_fetch

    @property
    def errors(self) -> dict[TopicPartition, KafkaError]:
        """The partitions that cannot be fetched any further, and why; see :meth:`__anext__`. All
        batches before the error have been taken. Such a partition waits for :meth:`seek` or
        :meth:`remove`."""
        failures = ((tp, cursor.failure) for tp, cursor in self._cursors.items())
        return {tp: failure for tp, failure in failures if failure is not None}

    # --- changing what is read --------------------------------------------------------------------

    def add(
        self,
        where: tuple[str, int],
        start: int,
        end: int | None = None,
        *,
        paused: bool = False,
        topic_id: UUID | None = None,
    ) -> None:
        """Read one more partition, from ``start`` to ``end`` (excluded; None: without an end).
        ``topic_id``: of the topic that has these offsets (None: of the one that is fetched first).

        Raises ValueError for a range that :meth:`Reader.read` would refuse, and for a partition of
        this read, and ReaderStateError if the read is closed.
        """
        self._check_open()
        cursor = Cursor(where, start, end)
        if cursor.topic_partition in self._cursors:
            raise ValueError(f"{cursor.topic_partition} is part of the read already: seek it")
        cursor.paused, cursor.topic_id = paused, topic_id
        self._found = False
        self._insert(cursor)

    def remove(self, where: tuple[str, int]) -> None:
        """Read a partition no more. Raises KeyError if it is not part of the read."""
        cursor = self._cursor(where)
        self._forget(cursor)
        del self._cursors[cursor.topic_partition]
        self._news.set()

    def seek(self, where: tuple[str, int], offset: int) -> None:
        """Continue at another offset, also after an error. If the error was that the topic had been
        created again, the read continues in the new topic. Raises KeyError if the partition is not
        part of the read, ValueError for a negative offset or one behind the end."""
        self._check_open()
        before = self._cursor(where)
        after = before.moved_to(offset, self._cluster.metadata.topic_id(where[0]))
        self._forget(before)
        self._insert(after)

    def pause(self, where: tuple[str, int]) -> None:
        """Fetch and return nothing more of a partition until :meth:`resume`. Raises KeyError if it
        is not part of the read. What was fetched is kept while there is room for it."""
        self._cursor(where).paused = True

    def resume(self, where: tuple[str, int]) -> None:
        """Undo :meth:`pause`. Raises KeyError if the partition is not part of the read."""
        cursor = self._cursor(where)
        if cursor.paused:
            cursor.paused = False
            self._news.set()

    def _cursor(self, where: tuple[str, int]) -> Cursor:
        return self._cursors[partition_of(where)]

    def _insert(self, cursor: Cursor) -> None:
        self._cursors[cursor.topic_partition] = cursor
        if not cursor.done:
            self._turns.append(cursor)
            self._fetches.add(cursor)
            self._cluster.metadata.add_topic(cursor.topic_partition.topic)
        self._news.set()

    def _forget(self, cursor: Cursor) -> None:
        self._fetches.remove(cursor)
        if cursor in self._turns:
            self._turns.remove(cursor)

    # --- taking batches ---------------------------------------------------------------------------

    def take(self) -> FetchedBatch | None:
        """A batch that was fetched, None if there is none now. Raises ReaderStateError if the read
        is closed; errors of partitions are in :attr:`errors`. Only :meth:`wait` sends requests."""
        self._check_open()
        return self._next_batch()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Send the requests that are due, and wait until there may be news: a batch to take, a
        partition's error or end, or a call of :meth:`wake`. Raises ReaderStateError if the read is
        closed, or another task is reading here."""
        self._enter()
        try:
            until = None if timeout_s is None else self._cluster.now() + timeout_s
            while True:
                check_at = self._fetches.top_up()
                await asyncio.sleep(0)
                self._check_open()
                has_parts = any(cursor.parts and not cursor.paused for cursor in self._turns)
                if has_parts or self._news.is_set():
                    break
                if until is not None and self._cluster.now() >= until:
                    break
                await self._wait(min((t for t in (check_at, until) if t is not None), default=None))
            self._news.clear()
        finally:
            self._busy = False

    def wake(self) -> None:
        """Make :meth:`wait` return, the current one or the next."""
        self._news.set()

    def _check_open(self) -> None:
        if self._closed:
            raise ReaderStateError("the read is closed")

    def _enter(self) -> None:
        if self._busy:
            raise ReaderStateError("two tasks take batches from one read")
        self._busy = True

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
        self._enter()
        try:
            while not self._closed:
                if not self._found:
                    self._found = True
                    await self._cluster.find(list(self._cursors))
                check_at = self._fetches.top_up()
                # The requests leave. Their responses may come while a batch is decoded.
                await asyncio.sleep(0)
                batch = self._next_batch(raise_errors=True)
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

    def _next_batch(self, *, raise_errors: bool = False) -> FetchedBatch | None:
        """A batch of the first partition, in the order of turns, that has records."""
        for _ in range(len(self._turns)):
            cursor = self._turns.popleft()
            batch = None if cursor.paused else self._take(cursor)
            if cursor.done:
                cursor.drop_parts()
            else:
                self._turns.append(cursor)
            if batch is not None:
                return batch
            if raise_errors and cursor.failure is not None:
                raise cursor.failure
        return None

    def _take(self, cursor: Cursor) -> FetchedBatch | None:
        while cursor.parts and not cursor.done:
            part = cursor.parts[0]
            try:
                columns, cursor.position = part.take(
                    cursor.position, cursor.end, self._limit, self._headers
                )
            except UnreadableBatchError as error:
                cursor.give_up()
                cursor.error = error
                return None
            if not part:
                cursor.parts.popleft()
            if columns is not None:
                return FetchedBatch(
                    cursor.topic_partition,
                    columns,
                    cursor.position,
                    cursor.high_watermark,
                    cursor.topic_id,
                )
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
