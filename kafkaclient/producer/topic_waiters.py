"""Who waits for a topic: callers, held records, serializers at work, and tasks for metadata."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.errors import (
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    defect,
)
from kafkaclient.producer.batches.record import Record
from kafkaclient.producer.settings import NEVER
from kafkaclient.time_limit import PatientTimer, time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.accumulator.buffer_pool import BufferPool, Claim
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.record import PendingRecord
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer


# --- A serializer that is at work for one record, as a task with a time limit ---------------------

Outcome: TypeAlias = Record | KafkaError


class SerializerTask:
    """Runs the serializer of ``record``, and calls ``on_outcome`` once with the record in bytes, or
    with the error: at the latest after ``limit``, even if the serializer ignores its cancellation.
    It is not called after :meth:`cancel`. The task is in ``running`` while the serializer works.
    """

    __slots__ = ("_limit", "_on_outcome", "_record", "_timer", "task")

    def __init__(
        self,
        record: PendingRecord,
        limit: Limit,
        running: set[asyncio.Task[Record]],
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        self._record = record
        self._limit = limit
        self._on_outcome: Callable[[Outcome], None] | None = on_outcome
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(record.finish(), name="kafkaclient-serializer")
        self.task.add_done_callback(self._ended)
        running.add(self.task)
        self.task.add_done_callback(running.discard)
        self._timer = PatientTimer(limit.seconds, self._on_timeout)

    def cancel(self) -> None:
        """The outcome is not needed any more."""
        self._on_outcome = None
        self._timer.cancel()
        self.task.cancel()

    def timeout_error(self) -> KafkaError:
        """The error for a serializer that has not finished within the limit."""
        return self._record.not_finished(f"the serializer has not finished within {self._limit}")

    def _on_timeout(self) -> None:
        self._settle(self.timeout_error())

    def _ended(self, task: asyncio.Task[Record]) -> None:
        if task.cancelled():
            self._settle(self._record.not_finished("the serializer was cancelled"))
        elif (error := task.exception()) is None:
            self._settle(task.result())
        else:
            self._settle(self._failure(error))

    def _failure(self, error: BaseException) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, Exception):
            return defect("serializing", error)
        # asyncio has raised KeyboardInterrupt and SystemExit already.
        failure = self._record.not_finished(f"the serializer raised {error!r}")
        failure.__cause__ = error
        return failure

    def _settle(self, outcome: Outcome) -> None:
        on_outcome = self._on_outcome
        self.cancel()
        if on_outcome is not None:
            on_outcome(outcome)


async def run_serializer(
    record: PendingRecord, limit: Limit, running: set[asyncio.Task[Record]]
) -> Record:
    """The record in bytes; raises InvalidRecordError and its subclasses."""
    settled: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(outcome: Outcome) -> None:
        if not settled.done():  # the caller was cancelled in the same pass of the event loop
            settled.set_result(outcome)

    task = SerializerTask(record, limit, running, settle)
    try:
        outcome = await settled
    finally:
        task.cancel()
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


# --- The waiters of one topic: callers and held records -------------------------------------------


class TopicWaiters:
    """One topic's waiters, first come first. Keeps ``topic.has_waiters`` up to date."""

    __slots__ = ("admitted", "callers", "topic", "waiting")

    def __init__(self, topic: TopicBuffer) -> None:
        self.topic = topic
        self.waiting: deque[TopicWaiter | HeldRecord] = deque()
        """Waiters that need metadata or buffer space."""
        self.admitted: deque[TopicWaiter] = deque()
        """Callers that may append, and have not ended yet."""
        self.callers = 0
        """How many of ``waiting`` are callers; kept as a number because ``waiting`` can be long."""

    def add(self, waiter: TopicWaiter | HeldRecord) -> None:
        self.waiting.append(waiter)
        self.callers += isinstance(waiter, TopicWaiter)
        self.topic.set_has_waiters(True)

    def pop_first(self) -> None:
        """Take out the first waiter; a caller moves to ``admitted``."""
        waiter = self.waiting.popleft()
        if isinstance(waiter, TopicWaiter):
            self.admitted.append(waiter)
            self.callers -= 1
        self._changed()

    def remove(self, waiter: TopicWaiter | HeldRecord) -> None:
        """Take out a waiter from either deque."""
        if isinstance(waiter, TopicWaiter) and waiter in self.admitted:
            self.admitted.remove(waiter)
        else:
            self.waiting.remove(waiter)
            self.callers -= isinstance(waiter, TopicWaiter)
        self._changed()

    def requeue(self, waiter: TopicWaiter) -> None:
        """Make an admitted caller wait again: before all other callers, but behind all held
        records, which have buffer space already."""
        self.admitted.remove(waiter)
        held = [at for at, other in enumerate(self.waiting) if isinstance(other, HeldRecord)]
        self.waiting.insert(held[-1] + 1 if held else 0, waiter)
        self.callers += 1

    def held(self) -> Iterator[HeldRecord]:
        """The held records, the oldest first."""
        return (waiter for waiter in self.waiting if isinstance(waiter, HeldRecord))

    @property
    def oldest_held(self) -> HeldRecord | None:
        return next(self.held(), None)

    @property
    def charged_bytes(self) -> int:
        """The bytes of buffer space that those in ``waiting`` have been charged."""
        return sum(waiter.charged_bytes for waiter in self.waiting)

    def charge_callers(self, buffer_pool: BufferPool) -> bool:
        """Charge the space of every caller in ``waiting``; False: there is not enough."""
        if self.admitted and self.admitted[-1].claim is not None:
            return False  # a bulk call needs more
        first = self.waiting[0] if self.waiting else None
        if isinstance(first, TopicWaiter) and first.claim is not None:
            return False  # no caller behind the first is charged, and there may be many
        uncharged: list[TopicWaiter] = []
        for waiter in reversed(self.waiting):
            if isinstance(waiter, HeldRecord) or waiter.charged:
                break  # all waiters before it are charged, too
            uncharged.append(waiter)
        for caller in reversed(uncharged):
            if caller.claim is not None or not buffer_pool.try_take(caller.room):
                return False
            caller.charged = True
        return True

    def _changed(self) -> None:
        self.topic.set_has_waiters(bool(self.waiting or self.admitted))


class HeldRecord:
    """A record of ``send_nowait`` that waits; its buffer space is charged already.

    ``created``: when ``send_nowait`` was called, in the clock's seconds.
    """

    __slots__ = ("created", "delivery", "record", "result", "serializer_task")

    def __init__(
        self,
        delivery: Delivery,
        result: BatchResult,
        record: Record | PendingRecord,
        created: float,
    ) -> None:
        self.delivery = delivery
        self.result = result
        self.record = record
        self.created = created
        self.serializer_task: SerializerTask | None = None
        """The serializer at work; the record is not appended before it has finished."""

    def set_record(self, record: Record) -> None:
        """The serializer has finished, and the record's size is charged."""
        self.record, self.serializer_task = record, None

    @property
    def charged_bytes(self) -> int:
        return self.record.upper_bound


class TopicWaiter:
    """A caller that waits among the topic's ``waiters``, for ``room`` bytes of buffer space.

    ``exclusive``: the caller appends many records, so no other waiter of the topic is admitted
    before this one has ended.
    """

    __slots__ = (
        "_admitted",
        "charged",
        "claim",
        "exclusive",
        "record",
        "room",
        "serializer_task",
        "spent",
        "waiters",
    )

    def __init__(self, waiters: TopicWaiters, room: int, *, exclusive: bool) -> None:
        self.waiters = waiters
        self.exclusive = exclusive
        self.claim: Claim | None = None
        """The request for buffer space while the buffer pool has not granted it."""
        self.serializer_task: SerializerTask | None = None
        """The serializer at work; the caller is not admitted before it has finished."""
        self.record: Record | None = None
        """What the serializer made."""
        self.need(room)

    def set_record(self, record: Record) -> None:
        """The serializer has finished. The record's size, known now, is not charged."""
        self.record, self.serializer_task = record, None
        self.room, self.charged = record.upper_bound, False

    def need(self, room: int) -> None:
        """Wait for ``room`` bytes, which are not charged yet."""
        self.room = room
        self.charged = False
        """Whether the buffer space is charged."""
        self.spent = False
        """Whether the charge was handed over to an append."""
        self._admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Return when this caller may append: the topic is known, and the space is charged."""
        await self._admitted
        await self._wait_first()

    async def take_turn(self) -> bool:
        """Whether the caller may append although its time is over: its turn came at that moment."""
        if not (self.charged and self in self.waiters.admitted):
            return False
        await self._wait_first()
        return True

    async def _wait_first(self) -> None:
        # Callers admitted earlier are ready to run: they append and end within a few loop passes.
        while self.waiters.admitted[0] is not self:  # noqa: ASYNC110
            await asyncio.sleep(0)

    @property
    def may_append(self) -> bool:
        """Whether the caller can append now: :meth:`wait` would return at once."""
        admitted = self.waiters.admitted
        return self._admitted.done() and bool(admitted) and admitted[0] is self

    @property
    def charged_bytes(self) -> int:
        return self.room if self.charged else 0

    @property
    def has_room(self) -> bool:
        """Whether a charge is there to spend."""
        return self.charged and not self.spent and self.room > 0

    def admit(self) -> None:
        if not self._admitted.done():
            self._admitted.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Fail the caller, if it still waits."""
        if not self._admitted.done():
            self._admitted.set_exception(error)
            self._admitted.exception()  # mark it retrieved: the caller may never await it


# --- Waits for the metadata of topics whose records are held --------------------------------------


class HeldWatches:
    """The tasks. Each fetches its topic's metadata until every held record of the topic is appended
    or has failed, and fails the records that have waited too long.

    ``oldest_held(topic)`` gives the oldest record that is held. ``take_up(topic, view)`` is called
    with new metadata. ``fail(topic, held, error)`` ends a held record. ``metadata_limit`` is for
    the wait for metadata, ``delivery_limit`` for all of a record's wait. Times in seconds.
    """

    def __init__(
        self,
        metadata: Metadata,
        *,
        metadata_limit: Limit,
        delivery_limit: Limit,
        clock: Callable[[], float],
        oldest_held: Callable[[TopicBuffer], HeldRecord | None],
        take_up: Callable[[TopicBuffer, TopicView], None],
        fail: Callable[[TopicBuffer, HeldRecord, KafkaError], None],
    ) -> None:
        self.held_changed = asyncio.Event()
        """Set when a held record was appended or has failed."""
        self._metadata = metadata
        self._metadata_limit = metadata_limit
        self._delivery_limit = delivery_limit
        self._clock = clock
        self._oldest_held = oldest_held
        self._take_up = take_up
        self._fail = fail
        self._tasks: dict[TopicBuffer, asyncio.Task[None]] = {}

    def start(self, topic: TopicBuffer) -> None:
        """Watch the topic, unless it is being watched."""
        if topic in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(
            self._watch(topic), name=f"kafkaclient-metadata-{topic.name}"
        )
        self._tasks[topic] = task
        task.add_done_callback(partial(self._ended, topic))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _watch(self, topic: TopicBuffer) -> None:
        while (oldest := self._oldest_held(topic)) is not None:
            if topic.view is not None:
                await self._wait_turn(topic, oldest)
                continue
            limit = self._metadata_limit
            remaining = oldest.created + limit.seconds - self._clock()
            try:
                view = await self._metadata.wait_topic(topic.name, remaining, limit=limit)
                self._take_up(topic, view)
            except MetadataTimeoutError as error:
                self._fail_until(topic, oldest.created, error)
            except KafkaError as error:
                self._fail_until(topic, NEVER, error)

    async def _wait_turn(self, topic: TopicBuffer, oldest: HeldRecord) -> None:
        """Wait until a held record is appended or has failed. ``oldest``, which waits for its
        serializer or behind other waiters, fails after delivery.timeout.ms."""
        self.held_changed.clear()
        try:
            async with time_limit(oldest.created + self._delivery_limit.seconds - self._clock()):
                await self.held_changed.wait()
        except TimeoutError:
            if self._oldest_held(topic) is not oldest:
                return  # appended, or failed, at the same time
            error: KafkaError = DeliveryTimeoutError(
                f"the record for topic {topic.name!r} waited behind earlier records of the topic "
                f"for {self._delivery_limit}; it was not sent"
            )
            if oldest.serializer_task is not None:
                error = oldest.serializer_task.timeout_error()
            self._fail(topic, oldest, error)

    def _fail_until(self, topic: TopicBuffer, until: float, error: KafkaError) -> None:
        """Fail the topic's held records that were sent at the time ``until`` or before."""
        while (held := self._oldest_held(topic)) is not None and held.created <= until:
            self._fail(topic, held, error)

    def _ended(self, topic: TopicBuffer, task: asyncio.Task[None]) -> None:
        """No record stays held without a task."""
        del self._tasks[topic]
        if not task.cancelled() and task.exception() is None:
            if self._oldest_held(topic) is not None:  # it came after the last check of the task
                self.start(topic)
            return
        cause = "was cancelled" if task.cancelled() else f"failed: {task.exception()!r}"
        error = ProducerClosedError(
            f"the record was not sent: the task that waits for the metadata of topic "
            f"{topic.name!r} {cause}"
        )
        self._fail_until(topic, NEVER, error)
