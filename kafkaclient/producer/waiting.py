"""Records and callers that wait for a topic's metadata or for buffer space, in order of arrival.

Each topic has a line. A record that cannot be appended at once joins the end of the line. While the
line is not empty, every later record of the topic joins it, too, and the fast path is closed. So
records are appended to batches in the order of the calls.

A coroutine that waits (``send``, ``send_many``, ``send_arrow``) has a :class:`Turn`: it appends by
itself after :meth:`Turn.call`. A record of ``send_nowait`` has a delivery already; it is
:class:`Kept` here and appended by :class:`WaitingLines`.
"""

from __future__ import annotations

import asyncio
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
    from collections.abc import Callable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.producer.accumulator import RecordAccumulator
    from kafkaclient.producer.budget import Claim, Spending
    from kafkaclient.producer.delivery import Delivery, Receipt
    from kafkaclient.producer.record import Record
    from kafkaclient.producer.topic import TopicBuffer

__all__ = ["Kept", "Turn", "WaitingLines"]


class Kept:
    """A record of ``send_nowait``, charged to the buffer already."""

    __slots__ = ("delivery", "receipt", "record", "since")

    def __init__(self, delivery: Delivery, receipt: Receipt, record: Record, since: float) -> None:
        self.delivery = delivery
        self.receipt = receipt
        self.record = record
        self.since = since


class Turn:
    """A caller's place in its topic's line.

    ``room``: the bytes of buffer space that the caller waits for. ``exclusive``: the caller appends
    many records, so no other waiter of the topic is called before this turn has ended.
    """

    __slots__ = ("_called", "_lines", "claim", "exclusive", "given", "room", "spent", "topic")

    def __init__(
        self, lines: WaitingLines, topic: TopicBuffer, room: int, *, exclusive: bool
    ) -> None:
        self.topic = topic
        self.room = room
        self.exclusive = exclusive
        self.given = False
        """Whether the buffer space is charged."""
        self.spent = False
        """Whether the caller has taken the charge over."""
        self.claim: Claim | None = None
        """The place among those who wait for buffer space."""
        self._lines = lines
        self._called: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Return when it is this caller's turn: the topic is known, and the room is charged."""
        if not self._called.done():
            await self._called
        # Turns called earlier are ready to run: they append and end within a few loop passes.
        while self.topic.called[0] is not self:  # noqa: ASYNC110
            await asyncio.sleep(0)

    @property
    def come(self) -> bool:
        """Whether the caller can append now: :meth:`wait` would return at once."""
        return self._called.done() and self.topic.called[0] is self

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
        return self._lines.budget.spend(self.room)

    def waits_in_vain(self, room: int) -> bool:
        """Whether ``room`` bytes cannot come free before this turn ends: kept records behind it
        hold too much of the buffer."""
        if not any(isinstance(waiter, Kept) for waiter in self.topic.line):
            return False
        return self._lines.held > self._lines.budget.total - room

    def ask_more(self, room: int) -> None:
        """Keep the turn, and wait for more room; what was charged has been spent."""
        self.room, self.spent = room, False
        self._called = asyncio.get_running_loop().create_future()
        self._lines.ask(self)
        if self.given:
            self.call()

    def step_back(self, room: int) -> None:
        """Let the kept records go first, and wait for ``room`` bytes right behind them."""
        self.room, self.spent, self.given = room, False, False
        self._called = asyncio.get_running_loop().create_future()
        self._lines.put_back(self)

    def end(self) -> None:
        """Leave the line, wherever the turn stands in it."""
        self._lines.leave(self)


class WaitingLines:
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
        new_receipt: Callable[[str], Receipt],
        on_failed: Callable[[str], None],
    ) -> None:
        self.budget = accumulator.budget
        self._accumulator = accumulator
        self._metadata = metadata
        # Kept records already have a delivery, so delivery.timeout.ms bounds their wait as well.
        delivery_timeout = accumulator.settings.delivery_timeout
        self._limit = Limit(max_block, "max.block.ms")
        if delivery_timeout < max_block:
            self._limit = Limit(delivery_timeout, "delivery.timeout.ms")
        self._clock = clock
        self._place = place
        self._new_receipt = new_receipt
        self._on_failed = on_failed
        self.on_failed: Callable[[KafkaError], None] = lambda _: None
        """Called with the error of every kept record that fails."""
        self._topics: dict[TopicBuffer, int] = {}
        """The topics with a waiter, in line or called: how many turns are in line."""
        self._watches: dict[TopicBuffer, asyncio.Task[None]] = {}
        """One task for each topic with kept records."""
        self._some_left = asyncio.Event()

    # --- joining and leaving --------------------------------------------------------------------

    def keep(self, topic: TopicBuffer, record: Record) -> Delivery | None:
        """Keep the record of a ``send_nowait`` until its turn; None: no buffer space."""
        if not (self._charge_all(topic) and self.budget.try_take(record.upper_bound)):
            return None
        receipt = self._new_receipt(topic.name)
        receipt.count = 1
        delivery = receipt.handle(record.timestamp)
        self._join(topic, Kept(delivery, receipt, record, self._clock()))
        if topic not in self._watches:
            self._start_watch(topic)
        return delivery

    def turn(self, topic: TopicBuffer, room: int, *, exclusive: bool = False) -> Turn:
        """Join the topic's line; the caller sees to it that the topic's metadata is fetched, and
        calls :meth:`Turn.end` in the end, whatever happens."""
        turn = Turn(self, topic, room, exclusive=exclusive)
        self._join(topic, turn)
        self._call(topic)
        return turn

    def ask(self, turn: Turn) -> None:
        """Request the turn's buffer space; charged at once, or granted later."""
        turn.claim = self.budget.ask(turn.room, partial(self._granted, turn))
        turn.given = turn.claim is None
        if self.budget.waiting == 1 and not turn.given:
            # Nothing lingers while somebody waits for buffer space.
            self._accumulator.incomplete.reschedule(self._clock())

    def leave(self, turn: Turn) -> None:
        topic = turn.topic
        if turn in topic.called:
            topic.called.remove(turn)
        else:
            topic.line.remove(turn)
            self._topics[topic] -= 1
        if turn.claim is not None:
            self.budget.withdraw(turn.claim)
        elif turn.given and not turn.spent:
            self.budget.give_back(turn.room)
        self._call(topic)

    def put_back(self, turn: Turn) -> None:
        """A turn that was called stands behind the last kept record again."""
        topic = turn.topic
        topic.called.remove(turn)
        kept = [at for at, waiter in enumerate(topic.line) if isinstance(waiter, Kept)]
        topic.line.insert(kept[-1] + 1 if kept else 0, turn)
        self._topics[topic] += 1
        self._call(topic)

    def known(self, topic: TopicBuffer) -> None:
        """The topic has metadata, perhaps for the first time: let its line go on."""
        self._call(topic)

    def _charge_all(self, topic: TopicBuffer) -> bool:
        """Charge the room of every turn in line, before a record behind them is charged: else the
        record could hold the very bytes that a turn before it waits for. False: no buffer space."""
        if topic.called and topic.called[-1].claim is not None:
            return False  # a bulk call needs more
        first = topic.line[0] if topic.line else None
        if isinstance(first, Turn) and first.claim is not None:
            return False  # no turn behind the first is charged; the line may be long: no walk
        waiting: list[Turn] = []
        for waiter in reversed(topic.line):
            if isinstance(waiter, Kept) or waiter.given:
                break  # so are all before it
            waiting.append(waiter)
        for turn in reversed(waiting):
            if turn.claim is not None or not self.budget.try_take(turn.room):
                return False
            turn.given = True
        return True

    def _join(self, topic: TopicBuffer, waiter: Turn | Kept) -> None:
        topic.line.append(waiter)
        self._topics[topic] = self._topics.get(topic, 0) + isinstance(waiter, Turn)
        self._accumulator.close_taps(topic)

    def _granted(self, turn: Turn) -> None:
        turn.claim, turn.given = None, True
        if turn in turn.topic.called:
            turn.call()  # it had asked for more
        else:
            self._call(turn.topic)

    def _call(self, topic: TopicBuffer) -> None:
        """Call the waiters at the front of the line that can go on.

        Several turns for a single record may be called before the first of them has appended:
        their tasks run in the order of the calls. An exclusive turn, or a kept record, waits until
        all turns called before have ended. Only the first waiter in line asks for buffer space, so
        that no charge lies idle.
        """
        line, called = topic.line, topic.called
        while line and topic.view is not None and not (called and called[-1].exclusive):
            first = line[0]
            if called and (isinstance(first, Kept) or first.exclusive):
                break
            if isinstance(first, Kept):
                line.popleft()
                self._settle(topic, first)
                continue
            if first.claim is None and not first.given:
                self.ask(first)
            if not first.given:
                break
            line.popleft()
            self._topics[topic] -= 1
            called.append(first)
            first.call()
        if not line and not called:
            self._topics.pop(topic, None)
            self._accumulator.open_taps(topic)

    @property
    def held(self) -> int:
        """The bytes of buffer space that waiters in line have been charged."""
        held = 0
        for waiter in chain.from_iterable(topic.line for topic in self._topics):
            if isinstance(waiter, Kept):
                held += waiter.record.upper_bound
            elif waiter.given:
                held += waiter.room
        return held

    @property
    def callers(self) -> int:
        """How many callers wait for buffer space (Java metric ``waiting-threads``)."""
        return sum(turns for topic, turns in self._topics.items() if topic.view is not None)

    # --- kept records ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many records are kept."""
        return sum(isinstance(w, Kept) for topic in self._topics for w in topic.line)

    def fail_all(self, error: KafkaError) -> int:
        """Fail every kept record; how many there were."""
        failed = [(topic, w) for topic in self._topics for w in topic.line if isinstance(w, Kept)]
        for topic, kept in failed:
            self._fail_kept(topic, kept, error)
        return len(failed)

    def holds_from(self, until: float) -> bool:
        """Whether a record is still here that was kept at the time ``until`` or before."""
        waiters = chain.from_iterable(topic.line for topic in self._topics)
        return any(isinstance(w, Kept) and w.since <= until for w in waiters)

    async def wait_gone(self, until: float) -> None:
        """Wait until :meth:`holds_from` is false."""
        while self.holds_from(until):
            self._some_left.clear()
            await self._some_left.wait()

    async def close(self) -> None:
        """Refuse all who wait; the kept records have failed by now."""
        for topic in list(self._topics):
            for turn in [w for w in (*topic.called, *topic.line) if isinstance(w, Turn)]:
                turn.refuse(
                    ProducerClosedError(
                        f"the producer was stopped while records for topic {topic.name!r} waited "
                        "for metadata or buffer space; they were not sent"
                    )
                )
        for watch in self._watches.values():
            watch.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def _settle(self, topic: TopicBuffer, kept: Kept) -> None:
        """It is the record's turn: it gets its place in a batch."""
        with self.budget.spend(kept.record.upper_bound):
            try:
                delivery = self._place(topic, kept.record, kept.since)
            except KafkaError as error:
                self._fail(topic, kept, error)
            else:
                assert delivery is not None
                kept.delivery.move_to(delivery)
        self._some_left.set()

    def _fail_kept(self, topic: TopicBuffer, kept: Kept, error: KafkaError) -> None:
        topic.line.remove(kept)
        self.budget.give_back(kept.record.upper_bound)
        self._fail(topic, kept, error)
        self._some_left.set()
        self._call(topic)

    def _fail(self, topic: TopicBuffer, kept: Kept, error: KafkaError) -> None:
        self._on_failed(topic.name)
        kept.receipt.fail(error)
        self.on_failed(error)

    def _start_watch(self, topic: TopicBuffer) -> None:
        watch = asyncio.get_running_loop().create_task(
            self._watch(topic), name=f"kafkaclient-metadata-{topic.name}"
        )
        self._watches[topic] = watch
        watch.add_done_callback(partial(self._unwatched, topic))

    async def _watch(self, topic: TopicBuffer) -> None:
        """See to it that the topic's kept records get their turn, or fail in time."""
        while (oldest := _oldest(topic)) is not None:
            if (
                topic.view is not None
            ):  # who is before them has been charged, and appends in a moment
                self._some_left.clear()
                await self._some_left.wait()
                continue
            remaining = oldest.since + self._limit.seconds - self._clock()
            try:
                view = await self._metadata.wait_topic(topic.name, remaining, limit=self._limit)
                if self._accumulator.update_topic(view, self._clock()) is topic:
                    self.known(topic)
            except MetadataTimeoutError as error:
                while (kept := _oldest(topic)) is not None and kept.since <= oldest.since:
                    self._fail_kept(topic, kept, error)
            except KafkaError as error:
                while (kept := _oldest(topic)) is not None:
                    self._fail_kept(topic, kept, error)

    def _unwatched(self, topic: TopicBuffer, watch: asyncio.Task[None]) -> None:
        """A watch has ended; no record stays here without one."""
        del self._watches[topic]
        if not watch.cancelled() and watch.exception() is None:
            if _oldest(topic) is not None:  # it came after the watch had looked
                self._start_watch(topic)
            return
        cause = "was cancelled" if watch.cancelled() else f"failed: {watch.exception()!r}"
        error = ProducerClosedError(
            f"the record was not sent: the task that waits for the metadata of topic "
            f"{topic.name!r} {cause}"
        )
        while (kept := _oldest(topic)) is not None:
            self._fail_kept(topic, kept, error)


def _oldest(topic: TopicBuffer) -> Kept | None:
    """The topic's first kept record in line."""
    return next((waiter for waiter in topic.line if isinstance(waiter, Kept)), None)
