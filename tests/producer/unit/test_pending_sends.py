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
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.producer.batches.record import Record
from kafkaclient.producer.pending_sends import PendingSends
from kafkaclient.producer.topic_waiters import TopicWaiter
from kafkaclient.testing.clock import run_virtual

if TYPE_CHECKING:
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from tests.producer.support import Bench

TOTAL = 1000


class Silent:
    """Metadata that is never told."""

    async def wait_topic(self, *_args: Any, **_options: Any) -> Any:
        await asyncio.get_running_loop().create_future()


class Story:
    """Waiters of two topics. They join, are called, append, step back and leave."""

    def __init__(self, bench: type[Bench]) -> None:
        self.accumulator = bench(buffer_memory=TOTAL).accumulator
        self.topics: list[TopicBuffer] = [self.accumulator.topic(name) for name in ("test", "late")]
        self.sends: list[TopicWaiter] = []
        self.batched = 0
        """The bytes that were appended."""
        self.lines = PendingSends(
            self.accumulator,
            Silent(),  # type: ignore[arg-type]
            max_block=60,
            clock=asyncio.get_running_loop().time,
            append=self.place,
            new_result=BatchResult,
            serializers=set(),
            on_failed=lambda _topic, _error: None,
        )

    def place(self, topic: TopicBuffer, record: Record, _since: float) -> Delivery:
        self.append(record.upper_bound)
        return delivery_for_last(BatchResult(topic.name), 0)

    def append(self, nbytes: int) -> None:
        self.accumulator.buffer_pool.force(nbytes)
        self.batched += nbytes

    def deliver(self) -> None:
        nbytes, self.batched = self.batched, 0
        self.accumulator.buffer_pool.give_back(nbytes)

    def learn(self, topic: TopicBuffer) -> None:
        self.accumulator.update_topic(
            TopicView(topic.name, None, (PartitionView(0, 0, 0, (0,), (0,)),)), 0.0
        )
        self.lines.admit_waiting(topic)

    def keep(self, topic: TopicBuffer, nbytes: int) -> None:
        if topic.has_waiters or topic.view is None:
            self.lines.hold(topic, Record(0, None, b"", (), 0, nbytes))

    def join(self, topic: TopicBuffer, nbytes: int, *, exclusive: bool) -> None:
        self.sends.append(self.lines.join(topic, nbytes, exclusive=exclusive))

    def go_on(self, topic: TopicBuffer, nbytes: int) -> None:
        """A bulk call whose turn has come appends, and waits for more."""
        waiters = self.lines._topics.get(topic)
        send = waiters.admitted[0] if waiters is not None and waiters.admitted else None
        if send is None or not (send.may_append and send.exclusive):
            return
        if send.has_room:
            with self.lines.spend(send):
                self.append(send.room)
        self.lines.wait_for_more(send, nbytes)

    def end(self, which: int) -> None:
        if self.sends:
            self.lines.end(self.sends.pop(which % len(self.sends)))

    def check(self) -> None:
        lines = [line for line in self.lines._topics.values() if line.topic.view is not None]
        waiting = [waiter for line in lines for waiter in line.waiting]
        assert self.lines.callers == sum(isinstance(waiter, TopicWaiter) for waiter in waiting)

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
        while self.sends:
            self.end(0)
            self.check()
        self.deliver()
        await self.lines.close(0.1)
        assert self.lines.callers == 0
        assert self.accumulator.buffer_pool.available == TOTAL


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
def test_callers_are_counted(seed: int, bench: type[Bench]) -> None:
    async def run() -> None:
        await Story(bench).run(Random(seed))

    run_virtual(run())


class Unwalked(deque[Any]):
    """A line that is too long to be walked along."""

    def __iter__(self) -> Any:
        raise AssertionError("somebody walks along the line")

    __reversed__ = __iter__


def test_a_refused_record_costs_the_same_however_many_callers_wait(bench: type[Bench]) -> None:
    async def run() -> None:
        story = Story(bench)
        topic = story.topics[0]
        story.append(TOTAL)
        for _ in range(3):
            story.join(topic, 1, exclusive=False)
        line = story.lines._topics[topic]
        line.waiting = Unwalked(line.waiting)
        assert story.lines.hold(topic, Record(0, None, b"", (), 0, 1)) is None
        assert story.lines.callers == 3

    run_virtual(run())
