"""The lines of waiters by themselves, without a producer: the count of callers is right."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.cluster.view import PartitionView, TopicView
from kafkaclient.errors import KafkaError
from kafkaclient.producer.delivery import Receipt
from kafkaclient.producer.record import Record
from kafkaclient.producer.waiting import Turn, WaitingLines
from kafkaclient.testing.clock import run_virtual

if TYPE_CHECKING:
    from kafkaclient.producer.delivery import Delivery
    from kafkaclient.producer.topic import TopicBuffer

TOTAL = 1000


class Silent:
    """Metadata that is never told."""

    async def wait_topic(self, *_args: Any, **_options: Any) -> Any:
        await asyncio.get_running_loop().create_future()


class Story:
    """Waiters of two topics. They join, are called, append, step back and leave."""

    def __init__(self, bench: Any) -> None:
        self.accumulator = bench(buffer_memory=TOTAL).accumulator
        self.topics: list[TopicBuffer] = [self.accumulator.topic(name) for name in ("test", "late")]
        self.turns: list[Turn] = []
        self.batched = 0
        """The bytes that were appended."""
        self.lines = WaitingLines(
            self.accumulator,
            Silent(),  # type: ignore[arg-type]
            max_block=60,
            clock=asyncio.get_running_loop().time,
            place=self.place,
            new_receipt=Receipt,
            on_failed=lambda _topic: None,
        )

    def place(self, topic: TopicBuffer, record: Record, _since: float) -> Delivery:
        self.append(record.upper_bound)
        return Receipt(topic.name).handle(0)

    def append(self, nbytes: int) -> None:
        self.accumulator.budget.force(nbytes)
        self.batched += nbytes

    def deliver(self) -> None:
        nbytes, self.batched = self.batched, 0
        self.accumulator.budget.give_back(nbytes)

    def learn(self, topic: TopicBuffer) -> None:
        self.accumulator.update_topic(
            TopicView(topic.name, None, (PartitionView(0, 0, 0, (0,), (0,)),)), 0.0
        )
        self.lines.known(topic)

    def keep(self, topic: TopicBuffer, nbytes: int) -> None:
        if topic.crowded or topic.view is None:
            self.lines.keep(topic, Record(0, None, b"", (), 0, nbytes))

    def join(self, topic: TopicBuffer, nbytes: int, *, exclusive: bool) -> None:
        self.turns.append(self.lines.turn(topic, nbytes, exclusive=exclusive))

    def go_on(self, topic: TopicBuffer, nbytes: int) -> None:
        """A bulk call whose turn has come appends, and waits for more."""
        turn = topic.called[0] if topic.called else None
        if turn is None or not (turn.come and turn.exclusive):
            return
        if turn.has_room:
            with turn.spend():
                self.append(turn.room)
        if turn.waits_in_vain(nbytes):
            turn.step_back(nbytes)
        else:
            turn.ask_more(nbytes)

    def end(self, which: int) -> None:
        if self.turns:
            self.turns.pop(which % len(self.turns)).end()

    def check(self) -> None:
        waiting = [w for t in self.topics if t.view is not None for w in t.line]
        assert self.lines.callers == sum(isinstance(waiter, Turn) for waiter in waiting)

    def do(self, topic: TopicBuffer, step: str, number: int) -> None:
        match step:
            case "keep":
                self.keep(topic, number)
            case "join":
                self.join(topic, number, exclusive=False)
            case "join in bulk":
                self.join(topic, number, exclusive=True)
            case "go on":
                self.go_on(topic, 2 * number)
            case "end":
                self.end(number)
            case "learn":
                self.learn(topic)
            case "forget":
                self.accumulator.forget_topic(topic.name)
            case "deliver":
                self.deliver()
            case "fail":
                self.lines.fail_all(KafkaError("no"))
        self.check()

    async def run(self, random: Random) -> None:
        for _ in range(300):
            [step] = random.choices(list(STEPS), list(STEPS.values()))
            self.do(random.choice(self.topics), step, random.randint(1, TOTAL // 2))
            if random.random() < 0.7:
                await asyncio.sleep(0)
        self.lines.fail_all(KafkaError("no"))
        while self.turns:
            self.end(0)
            self.check()
        self.deliver()
        await self.lines.close()
        assert self.lines.callers == 0
        assert self.accumulator.budget.available == TOTAL


STEPS = {
    "keep": 6,
    "join": 3,
    "join in bulk": 2,
    "go on": 4,
    "end": 2,
    "learn": 2,
    "forget": 1,
    "deliver": 2,
    "fail": 1,
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_callers_are_counted(seed: int, bench: Any) -> None:
    async def run() -> None:
        await Story(bench).run(Random(seed))

    run_virtual(run())


class Unwalked(deque[Any]):
    """A line that is too long to be walked along."""

    def __iter__(self) -> Any:
        raise AssertionError("somebody walks along the line")

    __reversed__ = __iter__


def test_a_refused_record_costs_the_same_however_many_callers_wait(bench: Any) -> None:
    async def run() -> None:
        story = Story(bench)
        topic = story.topics[0]
        story.append(TOTAL)
        for _ in range(3):
            story.join(topic, 1, exclusive=False)
        topic.line = Unwalked(topic.line)
        assert story.lines.keep(topic, Record(0, None, b"", (), 0, 1)) is None
        assert story.lines.callers == 3

    run_virtual(run())
