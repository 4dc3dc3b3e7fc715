"""Records and callers that wait for a topic's metadata or for buffer space, in order of arrival.

Each topic has a line. A record that cannot be appended at once joins the end of the line. While the
line is not empty, every later record of the topic joins it, too, and the fast path is closed. So
records are appended to batches in the order of the calls.

A coroutine that waits (``send``, ``send_many``, ``send_arrow``) has a :class:`PendingSend`: it
appends by itself after :meth:`PendingSend.call`. A record of ``send_nowait`` has a delivery
already; it is a :class:`HeldRecord` here and :class:`PendingSends` appends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from kafkaclient.config.limit import Limit
from kafkaclient.errors import (
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.accumulator.buffer_pool import Claim, Spending
    from kafkaclient.producer.batches.delivery import BatchResult, Delivery
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer

__all__ = ["HeldRecord", "PendingSend", "PendingSends"]


class TopicLine:
    """One topic's waiters, first come first. Keeps ``topic.has_waiters`` true to the two deques."""

    __slots__ = ("called", "callers", "topic", "waiting")

    def __init__(self, topic: TopicBuffer) -> None:
        self.topic = topic
        self.waiting: deque[PendingSend | HeldRecord] = deque()
        """For metadata or for buffer space."""
        self.called: deque[PendingSend] = deque()
        """Called to append, and not done yet."""
        self.callers = 0
        """How many of ``waiting`` are callers: counting them would cost in proportion to them."""

    def join(self, waiter: PendingSend | HeldRecord) -> None:
        self.waiting.append(waiter)
        self.callers += isinstance(waiter, PendingSend)
        self.topic.set_has_waiters(True)

    def take_first(self) -> PendingSend | HeldRecord:
        """Take the first waiter out; a caller is called from now on."""
        waiter = self.waiting.popleft()
        if isinstance(waiter, PendingSend):
            self.called.append(waiter)
            self.callers -= 1
        self._changed()
        return waiter

    def leave(self, waiter: PendingSend | HeldRecord) -> None:
        """Take a waiter out, wherever it stands."""
        if isinstance(waiter, PendingSend) and waiter in self.called:
            self.called.remove(waiter)
        else:
            self.waiting.remove(waiter)
            self.callers -= isinstance(waiter, PendingSend)
        self._changed()

    def put_back(self, send: PendingSend) -> None:
        """A caller that was called waits again, right behind the last held record."""
        self.called.remove(send)
        held = [at for at, waiter in enumerate(self.waiting) if isinstance(waiter, HeldRecord)]
        self.waiting.insert(held[-1] + 1 if held else 0, send)
        self.callers += 1
        self._changed()

    @property
    def oldest_held(self) -> HeldRecord | None:
        return next((waiter for waiter in self.waiting if isinstance(waiter, HeldRecord)), None)

    def _changed(self) -> None:
        self.topic.set_has_waiters(bool(self.waiting or self.called))


class HeldRecord:
    """A record of ``send_nowait``, charged to the buffer already."""

    __slots__ = ("created", "delivery", "record", "result")

    def __init__(
        self, delivery: Delivery, batch_result: BatchResult, record: Record, since: float
    ) -> None:
        self.delivery = delivery
        self.result = batch_result
        self.record = record
        self.created = since


class PendingSend:
    """A caller's place in its topic's line.

    ``room``: the bytes of buffer space that the caller waits for. ``exclusive``: the caller appends
    many records, so no other waiter of the topic is called before this turn has ended.
    """

    __slots__ = ("_called", "_sends", "claim", "exclusive", "given", "line", "room", "spent")

    def __init__(self, sends: PendingSends, line: TopicLine, room: int, *, exclusive: bool) -> None:
        self.line = line
        self.room = room
        self.exclusive = exclusive
        self.given = False
        """Whether the buffer space is charged."""
        self.spent = False
        """Whether the caller has taken the charge over."""
        self.claim: Claim | None = None
        """The place among those who wait for buffer space."""
        self._sends = sends
        self._called: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Return when it is this caller's turn: the topic is known, and the room is charged."""
        if not self._called.done():
            await self._called
        # Turns called earlier are ready to run: they append and end within a few loop passes.
        while self.line.called[0] is not self:  # noqa: ASYNC110
            await asyncio.sleep(0)

    @property
    def come(self) -> bool:
        """Whether the caller can append now: :meth:`wait` would return at once."""
        return self._called.done() and self.line.called[0] is self

    def call(self) -> None:
        if not self._called.done():
            self._called.set_result(None)

    def refuse(self, error: KafkaError) -> None:
        """Fail the caller, if it is still waiting."""
        if not self._called.done():
            self._called.set_exception(error)
            self._called.exception()  # mark it retrieved: the caller may never await it

    @property
    def has_room(self) -> bool:
        """Whether the caller may :meth:`spend`."""
        return self.given and not self.spent and self.room > 0

    def spend(self) -> Spending:
        """Use the charge: append within ``with turn.spend():``, which lends it to the append."""
        self.spent = True
        return self._sends.buffer_pool.spend(self.room)

    def waits_in_vain(self, room: int) -> bool:
        """Whether ``room`` bytes cannot come free before this turn ends: kept records behind it
        hold too much of the buffer."""
        if self.line.oldest_held is None:
            return False
        return self._sends.held > self._sends.buffer_pool.total - room

    def ask_more(self, room: int) -> None:
        """Keep the turn, and wait for more room; what was charged has been spent."""
        self.room, self.spent = room, False
        self._called = asyncio.get_running_loop().create_future()
        self._sends.ask(self)
        if self.given:
            self.call()

    def step_back(self, room: int) -> None:
        """Let the kept records go first, and wait for ``room`` bytes right behind them."""
        self.room, self.spent, self.given = room, False, False
        self._called = asyncio.get_running_loop().create_future()
        self._sends.put_back(self)

    def end(self) -> None:
        """Leave the line, wherever the turn stands in it."""
        self._sends.leave(self)


class PendingSends:
    """The lines of all topics.

    ``place(topic, record, since)`` appends a record that was kept at the time ``since`` and whose
    topic is known now, or raises; ``on_failed(topic)``
    is called for each kept record that fails. Times in seconds.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        *,
        max_block: float,
        clock: Callable[[], float],
        place: Callable[[TopicBuffer, Record, float], Delivery | None],
        new_result: Callable[[str], BatchResult],
        on_failed: Callable[[str], None],
    ) -> None:
        self.buffer_pool = accumulator.buffer_pool
        self._accumulator = accumulator
        self._metadata = metadata
        # Kept records already have a delivery, so delivery.timeout.ms bounds their wait as well.
        delivery_timeout = accumulator.settings.delivery_timeout
        self._limit = Limit(max_block, "max.block.ms")
        if delivery_timeout < max_block:
            self._limit = Limit(delivery_timeout, "delivery.timeout.ms")
        self._clock = clock
        self._place = place
        self._new_result = new_result
        self._on_failed = on_failed
        self.on_failed: Callable[[KafkaError], None] = lambda _: None
        """Called with the error of every kept record that fails."""
        self._lines: dict[TopicBuffer, TopicLine] = {}
        """Of the topics with a waiter."""
        self._watches: dict[TopicBuffer, asyncio.Task[None]] = {}
        """One task for each topic with kept records."""
        self._some_left = asyncio.Event()

    # --- joining and leaving --------------------------------------------------------------------

    def hold(self, topic: TopicBuffer, record: Record) -> Delivery | None:
        """Keep the record of a ``send_nowait`` until its turn; None: no buffer space."""
        if not (self._charge_all(topic) and self.buffer_pool.try_take(record.upper_bound)):
            return None
        batch_result = self._new_result(topic.name)
        batch_result.count = 1
        delivery = batch_result.delivery_for_last(record.timestamp)
        self._join(topic, HeldRecord(delivery, batch_result, record, self._clock()))
        if topic not in self._watches:
            self._start_watch(topic)
        return delivery

    def turn(self, topic: TopicBuffer, room: int, *, exclusive: bool = False) -> PendingSend:
        """Join the topic's line; the caller sees to it that the topic's metadata is fetched, and
        calls :meth:`PendingSend.end` in the end, whatever happens."""
        turn = PendingSend(self, self._line_of(topic), room, exclusive=exclusive)
        self._join(topic, turn)
        self._call(topic)
        return turn

    def ask(self, turn: PendingSend) -> None:
        """Request the turn's buffer space; charged at once, or granted later."""
        turn.claim = self.buffer_pool.ask(turn.room, partial(self._granted, turn))
        turn.given = turn.claim is None
        if self.buffer_pool.waiting == 1 and not turn.given:
            # Nothing lingers while somebody waits for buffer space.
            self._accumulator.incomplete.reschedule(self._clock())

    def leave(self, turn: PendingSend) -> None:
        turn.line.leave(turn)
        if turn.claim is not None:
            self.buffer_pool.withdraw(turn.claim)
        elif turn.given and not turn.spent:
            self.buffer_pool.give_back(turn.room)
        self._call(turn.line.topic)

    def put_back(self, turn: PendingSend) -> None:
        """A turn that was called stands behind the last kept record again."""
        turn.line.put_back(turn)
        self._call(turn.line.topic)

    def on_topic_known(self, topic: TopicBuffer) -> None:
        """The topic has metadata, perhaps for the first time: let its line go on."""
        self._call(topic)

    def _charge_all(self, topic: TopicBuffer) -> bool:
        """Charge the room of every turn in line, before a record behind them is charged: else the
        record could hold the very bytes that a turn before it waits for. False: no buffer space."""
        line = self._lines.get(topic)
        if line is None:
            return True
        if line.called and line.called[-1].claim is not None:
            return False  # a bulk call needs more
        first = line.waiting[0] if line.waiting else None
        if isinstance(first, PendingSend) and first.claim is not None:
            return False  # no caller behind the first is charged, and the line may be long
        waiting: list[PendingSend] = []
        for waiter in reversed(line.waiting):
            if isinstance(waiter, HeldRecord) or waiter.given:
                break  # so are all before it
            waiting.append(waiter)
        for turn in reversed(waiting):
            if turn.claim is not None or not self.buffer_pool.try_take(turn.room):
                return False
            turn.given = True
        return True

    def _join(self, topic: TopicBuffer, waiter: PendingSend | HeldRecord) -> None:
        self._line_of(topic).join(waiter)
        self._accumulator.close_append_slots(topic)

    def _line_of(self, topic: TopicBuffer) -> TopicLine:
        line = self._lines.get(topic)
        if line is None:
            line = self._lines[topic] = TopicLine(topic)
        return line

    def _granted(self, turn: PendingSend) -> None:
        turn.claim, turn.given = None, True
        if turn in turn.line.called:
            turn.call()  # it had asked for more
        else:
            self._call(turn.line.topic)

    def _call(self, topic: TopicBuffer) -> None:
        """Call the waiters at the front of the line that can go on.

        Several turns for a single record may be called before the first of them has appended:
        their tasks run in the order of the calls. An exclusive turn, or a kept record, waits until
        all turns called before have ended. Only the first waiter in line asks for buffer space, so
        that no charge lies idle.
        """
        line = self._lines.get(topic)
        if line is None:
            return
        waiting, called = line.waiting, line.called
        while waiting and topic.view is not None and not (called and called[-1].exclusive):
            first = waiting[0]
            if called and (isinstance(first, HeldRecord) or first.exclusive):
                break
            if isinstance(first, HeldRecord):
                line.take_first()
                self._settle(topic, first)
                continue
            if first.claim is None and not first.given:
                self.ask(first)
            if not first.given:
                break
            line.take_first()
            first.call()
        if not waiting and not called:
            self._lines.pop(topic, None)
            self._accumulator.open_append_slots(topic)

    @property
    def held(self) -> int:
        """The bytes of buffer space that waiters in line have been charged."""
        held = 0
        for waiter in self._waiters():
            if isinstance(waiter, HeldRecord):
                held += waiter.record.upper_bound
            elif waiter.given:
                held += waiter.room
        return held

    @property
    def callers(self) -> int:
        """How many callers wait for buffer space (Java metric ``waiting-threads``)."""
        return sum(line.callers for line in self._lines.values() if line.topic.view is not None)

    # --- kept records ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many records are kept."""
        return sum(isinstance(waiter, HeldRecord) for waiter in self._waiters())

    def _waiters(self) -> Iterator[PendingSend | HeldRecord]:
        return chain.from_iterable(line.waiting for line in self._lines.values())

    def fail_all(self, error: KafkaError) -> int:
        """Fail every kept record; how many there were."""
        failed = [
            (topic, waiter)
            for topic, line in self._lines.items()
            for waiter in line.waiting
            if isinstance(waiter, HeldRecord)
        ]
        for topic, kept in failed:
            self._fail_kept(topic, kept, error)
        return len(failed)

    def holds_from(self, until: float) -> bool:
        """Whether a record is still here that was kept at the time ``until`` or before."""
        return any(isinstance(w, HeldRecord) and w.created <= until for w in self._waiters())

    async def wait_gone(self, until: float) -> None:
        """Wait until :meth:`holds_from` is false."""
        while self.holds_from(until):
            self._some_left.clear()
            await self._some_left.wait()

    async def close(self) -> None:
        """Refuse all who wait; the kept records have failed by now."""
        for topic, line in list(self._lines.items()):
            for turn in [w for w in (*line.called, *line.waiting) if isinstance(w, PendingSend)]:
                turn.refuse(
                    ProducerClosedError(
                        f"the producer was stopped while records for topic {topic.name!r} waited "
                        "for metadata or buffer space; they were not sent"
                    )
                )
        for watch in self._watches.values():
            watch.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def _settle(self, topic: TopicBuffer, kept: HeldRecord) -> None:
        """It is the record's turn: it gets its place in a batch."""
        with self.buffer_pool.spend(kept.record.upper_bound):
            try:
                delivery = self._place(topic, kept.record, kept.created)
            except KafkaError as error:
                self._fail(topic, kept, error)
            else:
                assert delivery is not None
                kept.delivery.move_to(delivery)
        self._some_left.set()

    def _fail_kept(self, topic: TopicBuffer, kept: HeldRecord, error: KafkaError) -> None:
        self._line_of(topic).leave(kept)
        self.buffer_pool.give_back(kept.record.upper_bound)
        self._fail(topic, kept, error)
        self._some_left.set()
        self._call(topic)

    def _fail(self, topic: TopicBuffer, kept: HeldRecord, error: KafkaError) -> None:
        self._on_failed(topic.name)
        kept.result.fail(error)
        self.on_failed(error)

    def _oldest(self, topic: TopicBuffer) -> HeldRecord | None:
        """The topic's first held record."""
        line = self._lines.get(topic)
        return None if line is None else line.oldest_held

    def _start_watch(self, topic: TopicBuffer) -> None:
        watch = asyncio.get_running_loop().create_task(
            self._watch(topic), name=f"kafkaclient-metadata-{topic.name}"
        )
        self._watches[topic] = watch
        watch.add_done_callback(partial(self._unwatched, topic))

    async def _watch(self, topic: TopicBuffer) -> None:
        """See to it that the topic's kept records get their turn, or fail in time."""
        while (oldest := self._oldest(topic)) is not None:
            if (
                topic.view is not None
            ):  # who is before them has been charged, and appends in a moment
                self._some_left.clear()
                await self._some_left.wait()
                continue
            remaining = oldest.created + self._limit.seconds - self._clock()
            try:
                view = await self._metadata.wait_topic(topic.name, remaining, limit=self._limit)
                if self._accumulator.update_topic(view, self._clock()) is topic:
                    self.on_topic_known(topic)
            except MetadataTimeoutError as error:
                while (kept := self._oldest(topic)) is not None and kept.created <= oldest.created:
                    self._fail_kept(topic, kept, error)
            except KafkaError as error:
                while (kept := self._oldest(topic)) is not None:
                    self._fail_kept(topic, kept, error)

    def _unwatched(self, topic: TopicBuffer, watch: asyncio.Task[None]) -> None:
        """A watch has ended; no record stays here without one."""
        del self._watches[topic]
        if not watch.cancelled() and watch.exception() is None:
            if self._oldest(topic) is not None:  # it came after the watch had looked
                self._start_watch(topic)
            return
        cause = "was cancelled" if watch.cancelled() else f"failed: {watch.exception()!r}"
        error = ProducerClosedError(
            f"the record was not sent: the task that waits for the metadata of topic "
            f"{topic.name!r} {cause}"
        )
        while (kept := self._oldest(topic)) is not None:
            self._fail_kept(topic, kept, error)
