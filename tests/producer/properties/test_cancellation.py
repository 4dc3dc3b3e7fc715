"""Cancellation at random moments: before its append a record is never sent,
after it always; and nobody else's record is harmed."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    import pytest

    from tests.producer.support import StartProducer


TASKS = 60
BULK = 40


class Story:
    """Tasks that send, some of which are cancelled, and what each had been promised."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fake = FakeCluster(auto_create_topics=False)
        self.fake.round_trip_s = 0.002
        self.taken: set[bytes] = set()

    async def one(self, producer: Any, topic: str, name: str) -> None:
        value = f"{name} alone".encode() + bytes(self.random.choice((5, 50, 900)))
        delivery = await producer.send(topic, value, key=self.key())
        self.taken.add(value)
        if self.random.random() < 0.3:
            await producer.flush()
        await delivery

    async def many(self, producer: Any, topic: str, name: str) -> None:
        values = [f"{name} {n:03}".encode() + bytes(90) for n in range(BULK)]
        delivery = await producer.send_many(topic, values, partition=0)
        self.taken.update(values)
        await delivery

    def key(self) -> bytes | None:
        return self.random.choice((None, b"a", b"b"))

    async def run(self, producing: StartProducer) -> None:
        random, fake = self.random, self.fake
        fake.create_topic("known", 3)
        options = {"linger_ms": random.choice((0, 3)), "batch_size": 2000, "buffer_memory": 6000}
        compression = random.choice(("none", "gzip"))
        async with producing(fake, rng=random, compression_type=compression, **options) as producer:
            tasks = []
            for n in range(TASKS):
                topic = random.choice(("known", "known", "late"))
                work = random.choice((self.one, self.one, self.many))
                tasks.append(asyncio.create_task(work(producer, topic, f"{topic} {n}")))
                if random.random() < 0.5:
                    loop = asyncio.get_running_loop()
                    loop.call_later(random.choice((0, 0.3)) * random.random(), tasks[-1].cancel)
                for _ in range(random.randrange(4)):
                    await asyncio.sleep(random.choice((0, 0.001, 0.01)))
                if n == TASKS // 2:
                    fake.create_topic("late", 2)
                    fake.move_leader("known", 0, 1)
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert outcome is None or isinstance(outcome, asyncio.CancelledError)
            assert any(task.cancelled() for task in tasks)

    def written(self) -> list[bytes]:
        partitions = [("known", 0), ("known", 1), ("known", 2), ("late", 0), ("late", 1)]
        return [record.value or b"" for at in partitions for record in self.fake.log(*at)]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_tasks_cancelled_at_random_moments(
    seed: int, producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story(seed)
    run_virtual(story.run(producing))
    written = Counter(story.written())
    assert set(written.values()) <= {1}
    assert written.keys() >= story.taken
    # What is there beside it: the beginning of a bulk that was cancelled in the middle.
    beginnings: dict[bytes, list[int]] = {}
    for value in story.written():
        if value not in story.taken:
            name, _, number = value.rstrip(b"\0").rpartition(b" ")
            beginnings.setdefault(name, []).append(int(number))
    for numbers in beginnings.values():
        assert numbers == list(range(len(numbers)))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
