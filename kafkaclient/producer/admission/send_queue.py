"""The sends that wait for one partition, in the order of the calls, the states that they pass, and
the serializers that they wait for.

A call that waits (``send``, ``send_many``, ``send_arrow``) is a :class:`WaitingCall`: its coroutine
appends once it is admitted. A record of ``send_nowait`` has a delivery already, and waits as a
:class:`~kafkaclient.producer.admission.held_records.HeldRecord`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.errors import KafkaError, ProducerStateError, defect
from kafkaclient.producer.batches.record import PendingRecord, Record
from kafkaclient.producer.batches.topic_buffer import EVERY
from kafkaclient.time_limit import PatientTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.batches.partition_queue import BufferShare
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer

Outcome: TypeAlias = Record | KafkaError


class SendState(Enum):
    """What a send waits for. The values complete the sentence "the send ...".

    Buffer space may be charged in any state: callers with a record held behind them are charged
    before that record (:meth:`PendingSends.charge_calls`).
    """

    SERIALIZING = "waits for its serializer"
    QUEUED = "waits for the topic's metadata, or for the sends before it"
    CLAIMING = "is the first that waits, and waits for buffer space"
    ADMITTED = "may append"
    ENDED = "has appended, was refused or cancelled, or has waited too long"


_S = SendState

TRANSITIONS: Mapping[SendState, frozenset[SendState]] = {
    _S.SERIALIZING: frozenset({_S.QUEUED, _S.ENDED}),
    _S.QUEUED: frozenset({_S.CLAIMING, _S.ADMITTED, _S.ENDED}),
    # Back to the state before: the space is charged.
    _S.CLAIMING: frozenset({_S.QUEUED, _S.ADMITTED, _S.ENDED}),
    # To CLAIMING or QUEUED: a bulk call needs more space, and waits for it, or lets held records go
    # first.
    _S.ADMITTED: frozenset({_S.CLAIMING, _S.QUEUED, _S.ENDED}),
    _S.ENDED: frozenset(),
}


class PendingSend:
    """A send that waits in ``queue``, for ``wants`` bytes of buffer space, in the share ``share``
    of the buffer when it claims them or has them.

    ``record``: None for a bulk call. ``exclusive``: nothing behind it starts until it has ended.
    ``alone``: it starts only when everything before it has ended.
    """

    __slots__ = (
        "alone",
        "charge",
        "exclusive",
        "queue",
        "record",
        "serializer",
        "share",
        "state",
        "wants",
    )

    def __init__(
        self,
        queue: SendQueue,
        record: Record | PendingRecord | None,
        wants: int,
        *,
        alone: bool,
        exclusive: bool = False,
    ) -> None:
        self.queue = queue
        self.share: BufferShare | None = None
        self.record = record
        self.wants = wants
        """The bytes that must be charged before the send is admitted."""
        self.charge = 0
        """The bytes that are charged, and not spent yet."""
        self.alone = alone
        self.exclusive = exclusive
        self.state = _S.SERIALIZING if isinstance(record, PendingRecord) else _S.QUEUED
        self.serializer: SerializerTask | None = None
        """What the send waits for in the state SERIALIZING."""

    def move(self, state: SendState) -> None:
        """Move to ``state``, as the table allows."""
        if state not in TRANSITIONS[self.state]:
            raise defect(
                f"a send to topic {self.queue.topic.name!r}: no transition from {self.state.name} "
                f"to {state.name}",
                kind=ProducerStateError,
            )
        self.state = state

    def wait_in(self, queue: SendQueue) -> None:
        """Wait in another queue."""
        self.queue = queue

    def claim_in(self, share: BufferShare) -> None:
        """Claim bytes of this share, or have them."""
        self.share = share

    def serialized(self, record: Record) -> None:
        """The serializer has finished: the size of the record is known, and not charged."""
        self.record, self.serializer = record, None
        self.wants, self.charge = record.upper_bound, 0
        self.move(_S.QUEUED)

    def charged(self) -> None:
        """The bytes that the send waits for are charged."""
        self.charge, self.wants = self.charge + self.wants, 0

    def admit(self) -> None:
        """The turn of the send has come, and its space is charged."""
        raise NotImplementedError

    def end(self) -> None:
        """The send waits no more, and does not append any more."""
        self.move(_S.ENDED)
        if self.serializer is not None:
            self.serializer.cancel()


class WaitingCall(PendingSend):
    """A coroutine that waits until it may append."""

    __slots__ = ("_woken",)

    def __init__(
        self,
        queue: SendQueue,
        record: Record | PendingRecord | None,
        wants: int,
        *,
        exclusive: bool = False,
    ) -> None:
        super().__init__(queue, record, wants, alone=exclusive, exclusive=exclusive)
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def admit(self) -> None:
        self.move(_S.ADMITTED)
        self.wake()

    def want_more(self, nbytes: int) -> None:
        """The charge is spent, and the call needs ``nbytes`` more."""
        self.wants, self.charge = nbytes, 0
        self._woken = asyncio.get_running_loop().create_future()

    @property
    def may_append(self) -> bool:
        """Whether the call can append now: it is admitted, and those before it have ended."""
        return self.state is _S.ADMITTED and self.queue.admitted[0] is self

    @property
    def is_overtaking(self) -> bool:
        """Whether records for other partitions would come before those that wait for all."""
        return self.queue.place != EVERY and EVERY in self.queue.topic.waiting

    async def wait(self) -> None:
        """Return when the call may append, or raise the error of :meth:`fail`."""
        await self._woken
        await self._wait_first()

    @property
    def is_woken(self) -> bool:
        """Whether the call was admitted, or has failed."""
        return self._woken.done()

    async def wait_woken(self, seconds: float) -> None:
        """Return when the call is admitted or has failed, at the latest after ``seconds``."""
        if not self._woken.done():
            await asyncio.wait([self._woken], timeout=seconds)

    async def take_turn(self) -> bool:
        """Whether the call may append although its time is over: its turn came at that moment."""
        if self.state is not _S.ADMITTED:
            return False
        await self._wait_first()
        return True

    async def _wait_first(self) -> None:
        # Calls admitted earlier are ready to run: they append and end within a few loop passes.
        while not self.may_append:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken

    def wake(self) -> None:
        """Run the coroutine."""
        if not self._woken.done():
            self._woken.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Fail the call, if it still waits."""
        if not self._woken.done():
            self._woken.set_exception(error)
            self._woken.exception()  # mark it retrieved: the caller may never await it


class SendQueue:
    """The sends that wait for one place of a topic, first come first: for a partition, for
    ``UNBOUND``, or for :data:`EVERY` partition. Keeps ``topic.waiting`` up to date.

    Several calls with a single record may be admitted before the first of them has appended: their
    tasks run in the order of the admissions.
    """

    __slots__ = ("admitted", "calls", "place", "topic", "waiting")

    def __init__(self, topic: TopicBuffer, place: int) -> None:
        self.topic = topic
        self.place = place
        self.waiting: deque[PendingSend] = deque()
        """The sends that are not admitted yet."""
        self.admitted: deque[WaitingCall] = deque()
        """The calls that may append, and have not ended yet."""
        self.calls = 0
        """How many of ``waiting`` are calls; kept as a number because ``waiting`` can be long."""

    @property
    def has_held(self) -> bool:
        """Whether held records wait."""
        return len(self.waiting) > self.calls

    @property
    def charged_bytes(self) -> int:
        """The bytes of buffer space that are charged for ``waiting``."""
        return sum(send.charge for send in self.waiting)

    @property
    def waits_for_serializer(self) -> bool:
        """Whether the first send that waits holds up all others because of its serializer."""
        return bool(self.waiting) and self.waiting[0].state is _S.SERIALIZING

    def add(self, send: PendingSend) -> None:
        self.waiting.append(send)
        self.calls += isinstance(send, WaitingCall)
        self.topic.note_waiting(self.place, True)

    def admit_first(self) -> None:
        """Admit the first send that waits: a call appends later, a held record now."""
        send = self.waiting.popleft()
        if isinstance(send, WaitingCall):
            self.admitted.append(send)
            self.calls -= 1
        self._changed()
        send.admit()

    def pass_on_first(self, queue: SendQueue) -> None:
        """The first send waits behind those of ``queue`` from now on."""
        send = self.waiting.popleft()
        self.calls -= isinstance(send, WaitingCall)
        self._changed()
        send.wait_in(queue)
        queue.add(send)

    def remove(self, send: PendingSend) -> None:
        """Take out a send that has ended."""
        if isinstance(send, WaitingCall) and send in self.admitted:
            self.admitted.remove(send)
            if self.admitted and self.admitted[0].may_append:
                self.admitted[0].wake()
        else:
            self.waiting.remove(send)
            self.calls -= isinstance(send, WaitingCall)
        self._changed()

    def requeue(self, call: WaitingCall) -> None:
        """Make an admitted call wait again: before all other calls, but behind all held records,
        which have buffer space already."""
        call.move(_S.QUEUED)
        self.admitted.remove(call)
        held = [n for n, send in enumerate(self.waiting) if not isinstance(send, WaitingCall)]
        self.waiting.insert(held[-1] + 1 if held else 0, call)
        self.calls += 1

    def _changed(self) -> None:
        self.topic.note_waiting(self.place, bool(self.waiting or self.admitted))


# --- A serializer that is at work for one record, as a task with a time limit ---------------------


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
