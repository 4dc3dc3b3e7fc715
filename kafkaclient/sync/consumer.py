"""``SyncConsumer``: the consumer for threads that run no event loop."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Self, TypeVar

from kafkaclient.cluster.health import Health
from kafkaclient.consumer.consumer import Consumer
from kafkaclient.consumer.records import RecordStream
from kafkaclient.consumer.subscription import (
    RebalanceListener,
    check_topics_are_named,
    in_listener,
)
from kafkaclient.errors import ConsumerStateError
from kafkaclient.metrics_push.points import PushesMetricsMixin
from kafkaclient.sync.loop_thread import LoopThread
from kafkaclient.types import Key_co, Value_co

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
    )
    from typing import Unpack
    from uuid import UUID

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.config.consumer import ConsumerConfig
    from kafkaclient.config.keywords import ConsumerKeywords
    from kafkaclient.consumer.records import Record
    from kafkaclient.metrics.consumer import ConsumerMetricsSnapshot
    from kafkaclient.reader.batch import FetchedBatch
    from kafkaclient.types import (
        ConsumerGroupMetadata,
        LastFetch,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicListing,
        TopicPartition,
    )

T = TypeVar("T")


class SyncConsumer(PushesMetricsMixin, Generic[Key_co, Value_co]):
    """Consumes topics in a program without an event loop: Django commands, workers, scripts.

    ::

        with SyncConsumer("localhost:9092", group_id="billing", topics=["orders"]) as consumer:
            for record in consumer:
                handle(record)

    A :class:`~kafkaclient.Consumer` runs in an event loop on a thread of its own, so the member
    stays in its group while ``handle`` computes or waits, for up to ``max.poll.interval.ms``.
    Parameters, methods, errors, and what is finished and committed are those of
    :class:`~kafkaclient.Consumer`, with :meth:`poll` in place of its ``getone``. The listener's
    methods run in threads of their own, and may call this consumer.

    One thread at a time takes records; ``record.done()`` and all other methods may be called by
    many. With deserializers each record costs a switch of threads, because these may be async. In a
    forked child the consumer cannot be used. The end of the interpreter closes it.
    """

    _thread: LoopThread | None = None  # also for __del__ after __init__ raised

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *misplaced: Never,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
        **options: Unpack[ConsumerKeywords[Key_co, Value_co]],
    ) -> None:
        check_topics_are_named(self, bootstrap_or_mapping, misplaced, options)
        self._consumer: Consumer[Key_co, Value_co] = Consumer(
            bootstrap_or_mapping,
            topics=topics,
            pattern=pattern,
            listener=None if listener is None else _InThread(listener),
            **options,
        )
        self._application_metrics = self._consumer._application_metrics
        self.config: ConsumerConfig = self._consumer.config
        self._polled: AsyncIterator[Record[Key_co, Value_co]] | None = None

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<Consumer", "<SyncConsumer", 1)

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a SyncConsumer cannot be copied or pickled: make another one")

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._thread is not None and self._consumer.is_running:
            _warn(f"unclosed {self!r}", ResourceWarning, source=self)
            self._thread.end(wait=False)

    # --- life cycle -----------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the cluster, and begin to join the group. Raises as
        :meth:`kafkaclient.Consumer.start`."""
        if self._thread is not None:
            raise ConsumerStateError("a consumer can be started once")
        consumer = self._consumer
        self._thread = LoopThread(f"kafkaclient-{self.config.client_id}", consumer.stop)
        try:
            self._thread.call(consumer.start())
        except BaseException:
            self._thread.end()
            raise

    def stop(self) -> None:
        """Commit what is finished, leave the group, and disconnect. Loops of other threads end. If
        Ctrl-C ends the wait, closing goes on in the background. In a method of the listener it
        returns at once."""
        if self._thread is not None:
            self._thread.end(wait=not in_listener.get())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- taking records -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record[Key_co, Value_co]]:
        """Records, each finished when the next one is taken. Raises as ``async for`` over a
        :class:`~kafkaclient.Consumer`."""
        return self._records(self._consumer.__aiter__)

    def tracked(self) -> Iterator[Record[Key_co, Value_co]]:
        """Records that are finished when their ``done()`` is called, in any order and thread: for
        a pool of workers."""
        return self._records(self._consumer.tracked)

    def _records(
        self, begin: Callable[[], AsyncIterator[Record[Key_co, Value_co]] | RecordStream]
    ) -> Iterator[Record[Key_co, Value_co]]:
        stream, self._polled = self._do(begin), None
        fast = stream if isinstance(stream, RecordStream) else None
        rows = None if fast is None else fast.rows
        while True:
            # A row is taken without a switch of threads. Another loop may have taken over.
            fetched = rows is not None and fast is not None and fast.rows is rows
            record: Any = rows.next() if fetched and rows is not None else None
            if record is None:
                record = self._take(stream)
                if record is None:
                    return
                rows = None if fast is None else fast.rows
            yield record

    def poll(self, timeout_s: float | None = None) -> Record[Key_co, Value_co] | None:
        """The next record, which finishes the one before; None after ``timeout_s`` seconds (None:
        no limit), or when the consumer is closed meanwhile. Raises as iteration does."""
        stream, self._polled = self._polled, None  # Ctrl-C: the record in hand comes again
        if stream is None or not self._consumer.is_running:
            stream = self._do(self._consumer.__aiter__)
        record = self._take(stream, timeout_s)
        self._polled = stream
        return record

    def batches(self) -> Iterator[FetchedBatch]:
        """Batches of records of one partition, as columns (Arrow) or rows. A batch is finished when
        the next one is taken. Raises as iteration does."""
        batches, self._polled = self._consumer.batches(), None
        while (batch := self._take(batches)) is not None:
            yield batch

    def getmany(
        self,
        *partitions: tuple[str, int],
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record[Key_co, Value_co]]]:
        """See :meth:`kafkaclient.Consumer.getmany`."""
        self._polled = None
        found = self._consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return self._running().call(found)

    def _take(self, iterator: AsyncIterator[T], timeout_s: float | None = None) -> T | None:
        """The next item; None at the end, after ``timeout_s`` seconds, and when the consumer is
        closed meanwhile."""
        thread = self._running()
        try:
            return thread.call(_next(iterator, timeout_s))
        except ConsumerStateError:
            if self._consumer.is_running:
                raise
            return None

    # --- what is consumed -----------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        """See :meth:`kafkaclient.Consumer.subscribe`."""
        if self._thread is None:
            self._consumer.subscribe(topics, pattern=pattern)
        else:
            self._do(lambda: self._consumer.subscribe(topics, pattern=pattern))

    def unsubscribe(self) -> None:
        """See :meth:`kafkaclient.Consumer.unsubscribe`."""
        self._do(self._consumer.unsubscribe)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """See :meth:`kafkaclient.Consumer.assign`."""
        self._do(lambda: self._consumer.assign(partitions))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer has now."""
        return self._do(lambda: self._consumer.assignment)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics, with a pattern those that this client knows to match it."""
        return self._consumer.subscription

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member, as a transaction needs it."""
        return self._do(lambda: self._consumer.group_metadata)

    def wait_assigned(self) -> frozenset[TopicPartition]:
        """See :meth:`kafkaclient.Consumer.wait_assigned`."""
        return self._running().call(self._consumer.wait_assigned())

    def wait_position(self, partition: tuple[str, int]) -> int:
        """See :meth:`kafkaclient.Consumer.wait_position`."""
        return self._running().call(self._consumer.wait_position(partition))

    def position(self, partition: tuple[str, int]) -> int | None:
        """See :meth:`kafkaclient.Consumer.position`."""
        return self._do(lambda: self._consumer.position(partition))

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """See :meth:`kafkaclient.Consumer.seek`."""
        self._do(lambda: self._consumer.seek(partition, offset))

    def seek_to(
        self,
        at: Literal["earliest", "latest"] | int,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> None:
        """See :meth:`kafkaclient.Consumer.seek_to`."""
        self._running().call(self._consumer.seek_to(at, partitions))

    def offsets(
        self, partitions: Iterable[tuple[str, int]], at: Literal["earliest", "latest"] | int
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`kafkaclient.Consumer.offsets`."""
        return self._running().call(self._consumer.offsets(partitions, at))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See :meth:`kafkaclient.Consumer.offsets_for_times`."""
        return self._running().call(self._consumer.offsets_for_times(timestamps))

    def list_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicListing]:
        """See :meth:`kafkaclient.Consumer.list_topics`."""
        return self._running().call(self._consumer.list_topics(names))

    def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """See :meth:`kafkaclient.Consumer.partitions_for`."""
        return self._running().call(self._consumer.partitions_for(topic))

    def healthy(self, timeout: float = 2.0) -> Health:
        """Whether records can be consumed now, for a readiness probe. See
        :meth:`kafkaclient.Consumer.healthy`. Raises ConsumerStateError in a thread that runs an
        event loop."""
        if self._thread is None or not self._consumer.is_running:
            state = "not started" if self._thread is None else "closed"
            return Health((f"the consumer is {state}",))
        return self._thread.call(self._consumer.healthy(timeout))

    def last_fetch(self, partition: tuple[str, int]) -> LastFetch | None:
        """See :meth:`kafkaclient.Consumer.last_fetch`."""
        return self._do(lambda: self._consumer.last_fetch(partition))

    def lag(self) -> dict[TopicPartition, int | None]:
        """See :meth:`kafkaclient.Consumer.lag`."""
        return self._do(self._consumer.lag)

    def metrics(self) -> ConsumerMetricsSnapshot:
        """See :meth:`kafkaclient.Consumer.metrics`."""
        return self._do(self._consumer.metrics)

    def client_instance_id(self, timeout: float = 10.0) -> UUID | None:
        """See :meth:`kafkaclient.Consumer.client_instance_id`."""
        return self._running().call(self._consumer.client_instance_id(timeout))

    @property
    def is_running(self) -> bool:
        """Whether the consumer is started, and not stopped."""
        return self._consumer.is_running

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that :meth:`pause` has paused."""
        return self._do(lambda: self._consumer.paused)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """See :meth:`kafkaclient.Consumer.pause`."""
        self._do(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """See :meth:`kafkaclient.Consumer.resume`."""
        self._do(lambda: self._consumer.resume(*partitions))

    def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """See :meth:`kafkaclient.Consumer.commit`: without ``offsets``, call it in the thread of
        the loop."""
        self._running().call(self._consumer.commit(offsets))

    def committed(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`kafkaclient.Consumer.committed`."""
        return self._running().call(self._consumer.committed(partitions))

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise ConsumerStateError("the consumer is not started: use `with`, or start()")
        return self._thread

    def _do(self, function: Callable[[], T]) -> T:
        """Call in the consumer's thread."""

        async def call() -> T:
            return function()

        return self._running().call(call())


async def _next(iterator: AsyncIterator[T], timeout_s: float | None = None) -> T | None:
    """The next item; None at the end, or after ``timeout_s`` seconds: then none was taken."""
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await anext(iterator)
    except StopAsyncIteration:
        return None
    except TimeoutError:
        if not limit.expired():
            raise
        return None


class _InThread(RebalanceListener):
    """Calls a listener in threads, where it may call the SyncConsumer."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_assigned, partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_revoked, partitions)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_lost, partitions)
