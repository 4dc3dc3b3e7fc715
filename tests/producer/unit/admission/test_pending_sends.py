"""The lines of waiters by themselves, without a producer: the count of callers is right."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.cluster.view import PartitionView, TopicView
from kafkaclient.config.kinds import Limit
from kafkaclient.errors import KafkaError
from kafkaclient.producer.admission.held_records import HeldRecords
from kafkaclient.producer.admission.pending_sends import PendingSends
from kafkaclient.producer.admission.send_queue import TRANSITIONS, SendState, WaitingCall
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.producer.batches.record import Record
from kafkaclient.testing.clock import run_virtual, virtual_time

if TYPE_CHECKING:
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from tests.producer.support import Bench

TOTAL = 1000
PARTITIONS = 3


class Silent:
    """Metadata that is never told."""

    async def wait_topic(self, *_args: Any, **_options: Any) -> Any:
        await asyncio.get_running_loop().create_future()


class Story:
    """Waiters of two topics. They join, are called, append, step back and leave."""

    def __init__(self, bench: type[Bench]) -> None:
        self.accumulator = bench(buffer_memory=TOTAL).accumulator
        self.topics: list[TopicBuffer] = [self.accumulator.topic(name) for name in ("test", "late")]
        self.sends: list[WaitingCall] = []
        self.batched = 0
        """The bytes that were appended."""
        clock, limit = asyncio.get_running_loop().time, Limit(60, "max.block.ms")
        self.lines = PendingSends(self.accumulator, limit=limit, ignore_keys=False, clock=clock)
        self.held = HeldRecords(
            self.lines,
            Silent(),  # type: ignore[arg-type]
            metadata_limit=limit,
            delivery_limit=Limit(120, "delivery.timeout.ms"),
            clock=clock,
            append=self.place,
            new_result=BatchResult,
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
        partitions = [PartitionView(n, n, 0, (n,), (n,)) for n in range(PARTITIONS)]
        self.lines.update_topic(TopicView(topic.name, None, tuple(partitions)))

    def keep(self, topic: TopicBuffer, nbytes: int, partition: int = 0) -> None:
        record = Record(0, None, b"", (), partition, nbytes)
        if self.lines.must_wait(topic, record):
            self.held.hold(topic, record)

    def join(self, topic: TopicBuffer, nbytes: int, *, exclusive: bool, partition: int = 0) -> None:
        if exclusive:
            self.sends.append(self.lines.join_exclusive(topic))
        else:
            record = Record(0, None, b"", (), partition, nbytes)
            self.sends.append(self.lines.join(topic, record))

    def go_on(self, topic: TopicBuffer, nbytes: int) -> None:
        """A bulk call whose turn has come appends, and waits for more."""
        bulk = [send for send in self.sends if send.queue.topic is topic and send.exclusive]
        send = next((send for send in bulk if send.may_append), None)
        if send is None:
            return
        if charge := send.charge:
            with self.lines.spend(send):
                self.append(charge)
        self.lines.wait_for_more(send, nbytes)

    def end(self, which: int) -> None:
        if self.sends:
            self.lines.end(self.sends.pop(which % len(self.sends)))

    def check(self) -> None:
        lines = [line for line in self.lines._all_queues() if line.topic.view is not None]
        waiting = [waiter for line in lines for waiter in line.waiting]
        assert self.lines.callers == sum(isinstance(waiter, WaitingCall) for waiter in waiting)

    def do(self, topic: TopicBuffer, step: str, number: int, partition: int) -> None:
        match step:
            case "keep":
                self.keep(topic, number, partition)
            case "join":
                self.join(topic, number, exclusive=False, partition=partition)
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
                self.held.fail_all(KafkaError("no"))
        self.check()

    async def run(self, random: Random) -> None:
        for _ in range(300):
            [step] = random.choices(list(STEPS), list(STEPS.values()))
            number, partition = random.randint(1, TOTAL // 2), random.randrange(PARTITIONS)
            self.do(random.choice(self.topics), step, number, partition)
            if random.random() < 0.7:
                await asyncio.sleep(0)
        self.held.fail_all(KafkaError("no"))
        while self.sends:
            self.end(0)
            self.check()
        self.deliver()
        await self.held.close()
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
        [line] = story.lines._queues[topic].values()
        line.waiting = Unwalked(line.waiting)
        assert story.held.hold(topic, Record(0, None, b"", (), 0, 1)) is None
        assert story.lines.callers == 3

    run_virtual(run())


def admitted(story: Story) -> list[int]:
    """The calls that are admitted, by their numbers; each ends in its turn, and keeps its bytes."""
    done = []
    while numbers := [n for n, send in enumerate(story.sends) if send.may_append]:
        for n in numbers:
            done.append(n)
            send = story.sends[n]
            nbytes, send.charge = send.charge, 0
            story.batched += nbytes
            story.lines.end(send)
    return done


def claimed(bench: type[Bench], *sizes: int) -> Story:
    """A full buffer, and calls that wait for space: each of another topic."""
    story = Story(bench)
    story.append(TOTAL)
    for n, nbytes in enumerate(sizes):
        topic = story.accumulator.topic(f"topic{n}")
        story.join(topic, nbytes, exclusive=False)
        story.learn(topic)
    return story


@virtual_time
async def test_space_goes_to_the_first_that_came(bench: type[Bench]) -> None:
    story = claimed(bench, 600, 100, 100, 900)
    pool = story.accumulator.buffer_pool
    pool.give_back(500)
    assert admitted(story) == [], "a small one does not overtake"
    pool.give_back(300)
    assert [send.state.name for send in story.sends] == ["ADMITTED"] * 3 + ["CLAIMING"]
    assert admitted(story) == [0, 1, 2]
    pool.give_back(900)
    assert admitted(story) == [3]
    assert pool.on_free is None


@virtual_time
async def test_a_claim_that_is_given_up_lets_the_next_one_in(bench: type[Bench]) -> None:
    story = claimed(bench, 500, 200)
    story.accumulator.buffer_pool.give_back(200)
    story.lines.end(story.sends.pop(0))
    assert admitted(story) == [0]
    assert story.accumulator.buffer_pool.available == 0


@virtual_time
async def test_thousands_of_claims_cost_one_look_each(bench: type[Bench]) -> None:
    """B2: freed bytes admit as many as fit, in one pass."""
    story = claimed(bench, *[1] * 2 * TOTAL)
    for n in (1, 2):
        story.accumulator.buffer_pool.give_back(TOTAL)
        assert sum(send.may_append for send in story.sends) == n * TOTAL


@virtual_time
async def test_an_admitted_call_waits_for_those_before_it(bench: type[Bench]) -> None:
    story = Story(bench)
    for _ in range(2):
        story.join(story.topics[0], 1, exclusive=False)
    first, second = story.sends
    story.learn(story.topics[0])
    waiting = asyncio.create_task(second.wait())
    await asyncio.sleep(1)
    assert second.state is SendState.ADMITTED
    assert not waiting.done()
    story.lines.end(first)
    await waiting
    assert second.may_append


def test_every_state_can_be_left_but_the_last() -> None:
    assert set(TRANSITIONS) == set(SendState)
    assert [state for state, after in TRANSITIONS.items() if not after] == [SendState.ENDED]
