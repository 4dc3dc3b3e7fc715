"""The consumer's public class."""

from __future__ import annotations

import asyncio
import time
from operator import index
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Self

from kafkaclient.cluster.waits import close_dropped, in_another_loop
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.consumer.observation import ObservationMixin
from kafkaclient.consumer.polls import NO_LIMIT
from kafkaclient.consumer.records import RecordStream
from kafkaclient.consumer.runtime import ConsumerRuntime
from kafkaclient.consumer.subscription import (
    RebalanceListener,
    Subscription,
    check_topics_are_named,
    in_listener,
)
from kafkaclient.errors import ConfigError, ConsumerStateError
from kafkaclient.metrics_push.points import ApplicationMetrics
from kafkaclient.topic_names import check_topic_name, partition_of, several, several_partitions
from kafkaclient.types import Key_co, Value_co

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
    from typing import Unpack

    from kafkaclient.config.keywords import ConsumerKeywords
    from kafkaclient.consumer.records import Record
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.reader.batch import FetchedBatch
    from kafkaclient.types import OffsetAndMetadata, TopicPartition


class Consumer(ObservationMixin, Generic[Key_co, Value_co]):
    """Consumes topics, as a member of a group.

    ::

        async with Consumer("localhost:9092", group_id="billing", topics=["orders"]) as consumer:
            async for record in consumer:
                await handle(record)

    A record is finished when the loop takes the next one, and only finished records are committed
    (``enable.auto.commit``): a record in hand when the program ends is consumed again. A loop that
    was left, by ``break`` or an exception, begins the next time with the record that was in hand,
    unless ``record.done()`` or :meth:`commit` has finished it. To handle records concurrently, use
    :meth:`tracked`.

    Type checkers know the types of keys and values from the deserializers. Where they do not, name
    the types: ``Consumer[bytes, Order](...)``. ``Consumer`` alone has bytes.

    Parameters: options as for :class:`~kafkaclient.Producer`; those of the fetches, the group and
    the commits are Java's (docs/reference/consumer-options.md). ``topics`` or ``pattern``: what the
    group consumes, see :meth:`subscribe`. ``listener`` is told of rebalances. A consumer belongs to
    the event loop in which it was started. Only one task at a time may take records.

    Raises:
        ConfigError: an option is unknown, unusable or in conflict with another, or there are topics
            and no ``group_id``.
        TypeError: topics were given without the name ``topics``.
    """

    _runtime: ConsumerRuntime | None = None  # also for __del__ after __init__ raised
    _finishes_at_once = False
    """Whether records of getone and getmany are finished when they are handed out."""

    def __init__(
        self,
        bootstrap_or_mapping: str | Iterable[str] | Mapping[str, object] | None = None,
        /,
        *misplaced: Never,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        **options: Unpack[ConsumerKeywords[Key_co, Value_co]],
    ) -> None:
        check_topics_are_named(self, bootstrap_or_mapping, misplaced, options)
        self.config: ConsumerConfig = ConsumerConfig.build(bootstrap_or_mapping, options)
        self._subscription: Subscription | None = None
        topics = several(topics, "topics")
        if topics or pattern is not None:
            self._subscription = self._checked(topics, pattern)
        self._listener = listener or RebalanceListener()
        self._dialer = dialer
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = rng or Random()
        self._application_metrics = ApplicationMetrics()
        self._is_closed = self._is_closing = False
        self._closing: asyncio.Task[None] | None = None
        self._stream: RecordStream | None = None
        self._loop_number = 0

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._runtime else "not started"
        return f"<Consumer {self.config.client_id!r} of group {self.config.group_id!r} {state}>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(
            "a Consumer cannot be copied or pickled: it owns its connections; make another "
            "Consumer with the same options"
        )

    def __del__(self) -> None:
        runtime = self._runtime
        if runtime is not None and not self._is_closed:
            what = f"consumer {self.config.client_id!r}"
            close_dropped(self, what, runtime.loop, runtime.close)

    async def start(self) -> None:
        """Connect to the cluster, and begin to join the group.

        Raises:
            BootstrapError: no bootstrap server answered within ``max.block.ms`` or
                ``bootstrap.connect.timeout.ms``, if that is longer; or all of them refused
                connections for the latter.
            AuthenticationError: a broker and this client could not authenticate.
            ConfigError: a certificate or key cannot be read.
            ConsumerStateError: the consumer was started before.
        """
        if self._runtime is not None or self._is_closed:
            raise ConsumerStateError("a consumer can be started once")
        self._runtime = self._new_runtime()
        try:
            await self._runtime.start()
            if self._subscription is not None:
                self._runtime.subscribe(self._subscription)
            self._runtime.reports.started(self)
        except BaseException:
            await self.stop()
            raise

    def _new_runtime(self) -> ConsumerRuntime:
        return ConsumerRuntime(
            self.config,
            self._listener,
            dialer=self._dialer,
            clock=self._clock,
            wall_clock=self._wall_clock,
            rng=self._rng,
            application_metrics=self._application_metrics,
            finish_at_once=self._finishes_at_once,
        )

    async def stop(self) -> None:
        """Commit what is finished, leave the group, and disconnect. Loops of other tasks end. Does
        not wait for a record in hand, and logs how many of :meth:`tracked` are not done. Without
        brokers it takes up to 15 s: 10 s for the commit, and 5 s for the group; a rebalance
        listener may take 30 s more. If it is canceled, stopping continues. In a method of the
        rebalance listener it returns at once. Raises ConsumerStateError in another event loop than
        that of :meth:`start`."""
        if self._runtime is None:
            self._is_closed = self._is_closing = True
        if self._is_closed:
            return
        runtime = self._running()
        self._is_closing = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(runtime), name="consumer-stop")
        if not in_listener.get():
            await asyncio.shield(self._closing)

    async def _close(self, runtime: ConsumerRuntime) -> None:
        try:
            await runtime.close()  # the listener may still use the consumer
        finally:
            self._is_closed = True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- taking records ---------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Record[Key_co, Value_co]]:
        """Records, each finished when the next one is taken. Raises, while it is iterated over:

        BrokerError: the group refuses this member, such as another one with the same
            ``group_instance_id``.
        AuthorizationError: reading a topic or the group is not permitted.
        NoOffsetError, OffsetOutOfRangeError, LogTruncatedError: with ``auto.offset.reset=none``.
        DeserializationError: a record cannot be deserialized; the position stays before it.
        RegistryUnavailableError: deserializers need the schema registry, which does not answer.
        UnreadableBatchError: a batch in the log is damaged; seek behind it to go on.
        ConsumerStateError: the consumer is not running, has neither topics nor partitions, or
            another task takes records.
        Exception: what the rebalance listener has raised.
        """
        return self._records(tracked=False)

    def tracked(self) -> AsyncIterator[Record[Key_co, Value_co]]:
        """Records that are finished when their :meth:`.Record.done` is called, in any order: for
        handlers that run concurrently. Committed is the offset up to which all are finished. Raises
        as ``async for record in consumer``."""
        return self._records(tracked=True)

    def _records(self, *, tracked: bool) -> AsyncIterator[Record[Key_co, Value_co]]:
        runtime, number = self._begin_loop()
        rows = runtime.partitions.begin_loop(tracked=tracked, whole=False)

        async def refill() -> Any:
            self._check_loop(number)
            return await runtime.feed.next_rows(tracked=tracked)

        self._stream = RecordStream(rows, refill)
        return runtime.records(self._stream)

    def _begin_loop(self) -> tuple[ConsumerRuntime, int]:
        """Take over from the loop before. Returns the loop's number with the runtime."""
        runtime = self._running()
        runtime.check_consumes()
        if self._stream is not None:
            self._stream.end()
            self._stream = None
        self._loop_number += 1
        return runtime, self._loop_number

    def _check_loop(self, number: int) -> None:
        if number != self._loop_number:
            raise ConsumerStateError(
                "another loop has begun to take records from this consumer: use one loop, and "
                "tracked() to handle records concurrently"
            )

    async def batches(self) -> AsyncIterator[FetchedBatch]:
        """Batches of records of one partition, as columns (Arrow) or rows, in bytes. A batch is
        finished when the next one is taken. Raises as ``async for record in consumer``."""
        runtime, number = self._begin_loop()
        rows = runtime.partitions.begin_loop(tracked=False, whole=True)
        while True:
            self._check_loop(number)
            if rows is None:
                rows = await runtime.feed.next_rows(tracked=False)
            if rows is None:
                return
            rows.take_all()
            yield rows.batch
            rows = None

    async def getone(self, *partitions: tuple[str, int]) -> Record[Key_co, Value_co]:
        """A record of these partitions; without arguments of all. It waits for one, and is finished
        at the next call for its partition. Several tasks may call it, each for its own partitions.
        Raises as ``async for record in consumer``, and ConsumerStateError when the consumer is
        closed. Nothing is lost if it is canceled."""
        found = await self._poll(partitions, None, 1)
        if found is None:
            raise ConsumerStateError("the consumer is closed")
        return next(iter(found.values()))[0]

    async def getmany(
        self,
        *partitions: tuple[str, int],
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record[Key_co, Value_co]]]:
        """Records of these partitions, at most ``max_records``; without arguments of all. If none
        were fetched, it waits for up to ``timeout_ms``; then, and when the consumer is closed, the
        result is empty. Otherwise as :meth:`getone`."""
        most = NO_LIMIT if max_records is None else max_records
        return await self._poll(partitions, timeout_ms / 1000, most) or {}

    async def _poll(
        self, partitions: tuple[tuple[str, int], ...], timeout_s: float | None, most: int
    ) -> dict[TopicPartition, list[Record[Key_co, Value_co]]] | None:
        runtime, _ = self._begin_loop()
        return await runtime.poll(partitions, timeout_s, most)  # type: ignore[arg-type]

    # --- what is consumed -------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        """Consume other topics, in place of the former ones.

        ``pattern``: a regular expression that matches whole names of topics. With the protocol of
        KIP-848 the coordinator matches it (RE2), otherwise this client does (Python's ``re``).

        Raises ConfigError without ``group_id``, and ConsumerStateError if partitions were assigned
        by hand.
        """
        subscription = self._checked(topics, pattern)
        if self._runtime is not None or self._is_closed:
            self._running().subscribe(subscription)
        self._subscription = subscription

    def _checked(self, topics: Iterable[str], pattern: str | None) -> Subscription:
        subscription = Subscription(topics, pattern)
        if self.config.group_id is None:
            raise ConfigError(
                "topics are consumed as a group: give group_id. To read partitions without a "
                "group, use assign()"
            )
        return subscription

    def unsubscribe(self) -> None:
        """Give up all partitions at once, also those assigned by hand. In the background the
        listener's ``on_revoked`` is called, what was finished is committed, and the group is left;
        a :meth:`subscribe` or :meth:`assign` takes effect after that."""
        self._subscription = None
        if self._runtime is not None or self._is_closed:
            self._running().unsubscribe()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Consume these partitions, in place of the former ones, without being a member of a group.
        With a ``group_id`` offsets are committed all the same, as long as the group has no members;
        also what was finished of partitions that are assigned no more.

        Raises ConsumerStateError if the consumer subscribes to topics, or is not running;
        InvalidTopicError, TypeError or ValueError for what is no partition.
        """
        given = several_partitions(partitions)
        for where in given:
            check_topic_name(where.topic)
            if where.partition < 0:
                raise ValueError(f"{where}: there is no partition {where.partition}")
        self._running().assign(given)

    @property
    def subscription(self) -> frozenset[str]:
        """The topics, with a pattern those that this client knows to match it."""
        return frozenset() if self._subscription is None else self._subscription.topics

    # --- positions --------------------------------------------------------------------------------

    def position(self, partition: tuple[str, int]) -> int | None:
        """The offset of the next record of the partition; None while it is not known where the
        partition begins. Raises ConsumerStateError if it is not assigned."""
        return self._running().partitions[partition].position

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue at this offset, which is also what is committed next.

        Raises ConsumerStateError if the partition is not assigned, ValueError for a negative
        offset, TypeError for what is no integer.
        """
        if not 0 <= index(offset) < 2**63 - 1:
            raise ValueError(f"{partition_of(partition)}: no offset {offset}")
        self._running().partitions.seek(partition, offset)

    async def seek_to(
        self,
        at: Literal["earliest", "latest"] | int,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> None:
        """Continue at the first offset, behind the last record, or at the first record that is not
        older than a time (milliseconds since the epoch; at the end if there is none). Default: all
        assigned partitions. Raises as :meth:`offsets`."""
        named = None if partitions is None else several_partitions(partitions)
        runtime = self._running()
        given = runtime.partitions.assigned if named is None else named
        found = await self.offsets(given, at)
        missing = [where for where, offset in found.items() if offset is None]
        ends = await self.offsets(missing, "latest") if missing else {}
        for where, offset in found.items():
            end = ends.get(where)
            runtime.partitions.seek(where, (end or 0) if offset is None else offset)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that :meth:`pause` has paused."""
        return self._running().partitions.paused

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out no further records of the partitions until :meth:`resume`. Raises
        ConsumerStateError if one is not assigned."""
        for each in partitions:
            self._running().partitions.pause(each)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Undo :meth:`pause`. Raises ConsumerStateError if a partition is not assigned."""
        for each in partitions:
            self._running().partitions.resume(each)

    # --- commits ----------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets, each that of the next record to consume. Without ``offsets``: all
        that was handed out, also the record or batch in hand, which is finished then; of
        :meth:`tracked` records, those that are done. Call it so only in the task of the loop. In a
        method of the rebalance listener the record in hand is left out.

        Raises:
            ConsumerStateError: a partition was revoked or lost meanwhile, or there is no
                ``group_id``. Nothing is committed.
            AuthorizationError: reading the group, or a topic, is not permitted.
            ValueError: an offset is negative.
            BrokerError: the coordinator refuses the commit.
            UnknownTopicError: a topic was deleted. The offsets of the others are committed.
            KafkaTimeoutError: no coordinator has answered within ``max.block.ms``; the offsets may
                be committed.
        """
        runtime = self._running()
        if offsets is not None:
            offsets = {partition_of(where): each for where, each in offsets.items()}
        elif not in_listener.get():
            runtime.partitions.finish_hand()
        try:
            await runtime.commits.commit(offsets)
        except ConsumerStateError:
            runtime.feed.check()  # the loss may have another reason
            raise

    async def committed(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none. Raises as :meth:`commit`."""
        wanted = several_partitions(partitions)
        offsets = self._running().group_offsets
        if offsets is None:
            raise ConsumerStateError("only a consumer with a group_id has committed offsets")
        return await offsets.committed(wanted)

    def _running(self) -> ConsumerRuntime:
        if self._runtime is None or self._is_closed:
            state = "closed" if self._is_closed else "not started: use `async with`, or start()"
            raise ConsumerStateError(f"the consumer is {state}")
        if asyncio._get_running_loop() not in (self._runtime.loop, None):
            raise ConsumerStateError(in_another_loop("consumer", self._runtime.loop))
        return self._runtime
