"""The waiters of one topic: callers and held records that need metadata or buffer space."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.accumulator.buffer_pool import BufferPool, Claim
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.record import PendingRecord, Record
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.serialization import SerializerTask


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
