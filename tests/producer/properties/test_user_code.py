"""Code of the application that raises, hangs or answers nonsense wherever the producer calls it,
with every way of sending: each record has one outcome, in order, and ``stop`` ends in time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kafkaclient import Hooks, Producer
from kafkaclient.aiokafka import AIOKafkaProducer
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from kafkaclient.errors import KafkaError

RECORDS = 120
PARTITIONS = 3


class AnyEndError(BaseException):
    """No Exception, as asyncio's CancelledError."""


class UnprintableError(Exception):
    def __repr__(self) -> str:
        raise AnyEndError


class BadIndex:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error


ERRORS: tuple[Callable[[], BaseException], ...] = (
    ValueError,
    AnyEndError,
    asyncio.CancelledError,
    GeneratorExit,
    StopIteration,
    TimeoutError,
    UnprintableError,
)


ANY_ERROR = (Exception, AnyEndError, asyncio.CancelledError, GeneratorExit)


class Application:
    """What the program gives to the producer. ``rate``: how often it fails."""

    def __init__(self, random: Random, rate: float) -> None:
        self.random, self.rate = random, rate

    def maybe_raise(self) -> None:
        if self.random.random() < self.rate:
            raise self.random.choice(ERRORS)()

    # partitioner

    def partition(self, topic: str, key: Any, value: Any, cluster: Any, load: Any) -> Any:
        self.maybe_raise()
        if self.random.random() < self.rate:
            error = self.random.choice(ERRORS)()
            nonsense = (None, "0", 1.5, True, -1, PARTITIONS, 2**70, BadIndex(error))
            return self.random.choice(nonsense)
        return self.random.randrange(PARTITIONS)

    def on_new_batch(self, topic: str, cluster: Any, previous: int) -> None:
        self.maybe_raise()

    # serializers

    def serialize_value(self, value: bytes) -> Any:
        if self.random.random() < 0.3:
            return self.later(value)
        if self.random.random() < self.rate:
            return self.random.choice((5, "text", [value]))
        if self.random.random() < self.rate:
            raise self.random.choice(ERRORS[:3])()
        return value

    async def later(self, value: bytes) -> Any:
        await asyncio.sleep(self.random.choice((0, 0.01, 0.5)))
        if self.random.random() < self.rate:
            self.maybe_raise()
            return self.random.choice((5, "text"))
        if self.random.random() < self.rate / 2:
            await self.hang()
        return value + bytes(self.random.choice((0, 0, 3000)))

    async def hang(self) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            if self.random.random() < 0.3:
                await asyncio.sleep(0.3)  # it takes its time to end
            raise

    # callbacks

    def called(self, *_: object) -> None:
        self.maybe_raise()


class FailingHooks(Hooks):
    def __init__(self, application: Application) -> None:
        self.called = application.called

    def on_start(self, producer: Any) -> None:
        self.called()

    def on_batch(self, batch: Any) -> None:
        self.called()

    def on_request(self, request: Any) -> None:
        self.called()


class Story:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.application = Application(self.random, self.random.choice((0.02, 0.1, 0.4)))
        self.fake = FakeCluster(auto_create_topics=False)
        self.fake.round_trip_s = 0.003
        self.count = 0
        self.pending: list[tuple[list[bytes], Any]] = []
        self.refused = 0
        self.in_order: set[bytes] = set()
        """The values of records that name their partition."""

    def options(self) -> dict[str, Any]:
        random, application = self.random, self.application
        partitioner = random.choice((application, application, "late", "sticky", "kip794"))
        return {
            "partitioner": partitioner,
            "value_serializer": random.choice((None, application.serialize_value)),
            "on_delivery": random.choice((None, application.called)),
            "on_error": application.called,
            "hooks": (FailingHooks(application),),
            "linger_ms": random.choice((0, 5)),
            "batch_size": random.choice((300, 16384)),
            "buffer_memory": random.choice((12_000, 1_000_000)),
            "max_block_ms": 20_000,
            "request_timeout_ms": 5_000,
            "delivery_timeout_ms": 30_000,
        }

    def values(self, count: int = 1) -> list[bytes]:
        self.count += count
        size = self.random.choice((10, 10, 700))
        first = self.count - count
        return [f"{n:06}".encode() + bytes(size) for n in range(first, self.count)]

    def topic(self) -> str:
        return self.random.choice(("known", "known", "late"))

    def where(self) -> int | None:
        return self.random.choice((None, None, self.random.randrange(PARTITIONS)))

    def given(self, values: list[bytes], delivery: Any) -> None:
        if self.random.random() < 0.5:
            delivery.add_done_callback(self.application.called)
        self.pending.append((values, delivery))

    async def attempt(self, values: list[bytes], sending: Awaitable[Any]) -> None:
        try:
            self.given(values, await sending)
        except ANY_ERROR as error:
            part = getattr(error, "delivery", None)
            self.refused += len(values)
            if part is not None and part.records:
                self.refused -= part.records
                self.pending.append((values[: part.records], part))

    def send_nowait(self, producer: Producer) -> None:
        values, partition = self.values(), self.where()
        self.note(values, partition)
        try:
            given = producer.send_nowait(self.topic(), values[0], partition=partition)
        except ANY_ERROR:
            self.refused += 1
        else:
            self.given(values, given)

    async def send(self, producer: Producer) -> None:
        kind, topic, partition = self.random.randrange(4), self.topic(), self.where()
        if kind == 0:
            values = self.values(20)
            await self.attempt(values, producer.send_many(topic, values, partition=partition))
        elif kind == 1:
            await self.batch(producer, topic)
        else:
            values = self.values()
            self.note(values, partition)
            await self.attempt(values, producer.send(topic, values[0], partition=partition))

    def note(self, values: list[bytes], partition: int | None) -> None:
        if partition is not None:
            self.in_order.add(values[0][:6])

    async def batch(self, producer: Producer, topic: str) -> None:
        batch, values = producer.create_batch(), self.values()
        try:
            batch.append(values[0])
        except ANY_ERROR:
            self.refused += 1
            return
        await self.attempt(values, producer.send_batch(batch, topic, partition=self.where()))

    async def run(self) -> None:
        loop, random = asyncio.get_running_loop(), self.random
        loop.set_exception_handler(lambda *_: None)  # callbacks' exceptions end here
        self.fake.create_topic("known", PARTITIONS)
        producer = Producer(self.fake.bootstrap, dialer=self.fake, rng=random, **self.options())
        await producer.start()
        tasks: list[asyncio.Task[None]] = []
        for n in range(RECORDS):
            if random.random() < 0.3:
                self.send_nowait(producer)
            else:
                tasks.append(asyncio.create_task(self.send(producer)))
            if random.random() < 0.3:
                await asyncio.sleep(random.choice((0, 0, 0.004, 0.1)))
            if n == RECORDS // 2:
                self.fake.create_topic("late", PARTITIONS)
        if random.random() < 0.5:
            await asyncio.wait(tasks)
        limit, began = random.choice((None, 0.5, 3.0)), loop.time()
        await asyncio.wait_for(producer.stop(limit), 100)
        assert loop.time() - began <= (60 if limit is None else limit + 0.3)
        done, left = await asyncio.wait(tasks, timeout=1)
        assert not left, "a call goes on after the stop"
        assert not [task for task in done if task.exception()]
        core = inspect(producer)
        assert core.accumulator.buffer_pool.available == core.accumulator.buffer_pool.total
        assert not len(core.admission.held_records)

    def check(self) -> None:
        written = Counter(
            (record.value or b"")[:6]
            for topic in ("known", "late")
            for partition in range(PARTITIONS)
            for record in self.fake.log(topic, partition)
        )
        assert set(written.values()) <= {1}
        assert self.refused + sum(len(values) for values, _ in self.pending) == self.count
        for values, delivery in self.pending:
            assert delivery.done(), "a record without an outcome"
            error = delivery.exception()
            if error is None:
                assert all(written[value[:6]] == 1 for value in values)
            elif len(values) == 1 and not error.maybe_written:
                assert not written[values[0][:6]]
        for topic in ("known", "late"):
            self.check_order(topic)

    def check_order(self, topic: str) -> None:
        """The records of a partition are in the order of their calls."""
        for partition in range(PARTITIONS):
            values = [(record.value or b"")[:6] for record in self.fake.log(topic, partition)]
            values = [value for value in values if value in self.in_order]
            assert values == sorted(values)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
@example(seed=0)
def test_the_applications_code_may_do_anything(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    story = Story(seed)
    with caplog.at_level(logging.CRITICAL, "kafkaclient"):
        run_virtual(story.run())
    story.check()


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_it_may_do_anything_to_the_drop_in(seed: int) -> None:
    story = Story(seed)

    def serialize(value: bytes) -> bytes:
        story.application.maybe_raise()
        return value

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        story.fake.create_topic("t", PARTITIONS)
        producer = AIOKafkaProducer(
            bootstrap_servers=story.fake.bootstrap,
            value_serializer=serialize,
            partitioner=story.application,
            dialer=story.fake,
        )
        await producer.start()
        futures = []
        for n in range(40):
            try:
                futures.append(await producer.send("t", b"%06d" % n))
            except ANY_ERROR:
                continue
            futures[-1].add_done_callback(story.application.called)
        await asyncio.wait_for(producer.stop(), 60)
        assert all(future.done() for future in futures)
        written = sum(len(story.fake.log("t", p)) for p in range(PARTITIONS))
        assert written == sum(future.exception() is None for future in futures)

    run_virtual(main())


def test_a_program_that_is_to_end_ends_behind_the_record() -> None:
    """KeyboardInterrupt in a partitioner: the held record fails, and the event loop raises it."""

    class Interrupted:
        def partition(self, *_: object) -> int:
            raise KeyboardInterrupt

    failed: list[KafkaError | None] = []

    async def main() -> None:
        fake = FakeCluster()
        producer = Producer(fake.bootstrap, dialer=fake, partitioner=Interrupted())
        await producer.start()
        delivery = producer.send_nowait("t", b"1")
        try:
            await asyncio.sleep(60)
        finally:
            failed.append(delivery.exception())
            assert await producer.stop(5) == 0

    try:
        run_virtual(main())
    except KeyboardInterrupt:
        assert "Interrupted raised KeyboardInterrupt()" in str(failed[0])
    else:
        raise AssertionError("the interrupt was lost")
