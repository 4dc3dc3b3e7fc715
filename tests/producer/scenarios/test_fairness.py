"""No record starves beside others: keyed, explicit and unkeyed load mixed on several topics.

The bound is the one that docs/concepts/partition-choice.md states.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster

SECONDS = 1.0
LINGER = 0.005
REQUEST = 1_000_000
"""What a broker takes in one service time: a request of ``max.request.size``."""


class Stream(NamedTuple):
    """Records of ``size`` bytes to a topic, ``burst`` at a time; ``kind`` keyed, unkeyed, or the
    number of a partition."""

    topic: str
    kind: str | int
    size: int
    burst: int
    every: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.size * self.burst / self.every


class Sent(NamedTuple):
    stream: Stream
    latency: float


class Load:
    """Sends streams, and keeps each record's latency."""

    def __init__(self, producer: Producer) -> None:
        self.sent: list[Sent] = []
        self._producer = producer
        self._rng = Random(1)
        self._now = asyncio.get_running_loop().time

    async def send_all(self, stream: Stream) -> None:
        begun, number = self._now(), 0
        while self._now() < begun + SECONDS:
            for _ in range(stream.burst):
                self._send(stream)
            number += 1
            await asyncio.sleep(max(0.0, begun + number * stream.every - self._now()))

    def _send(self, stream: Stream) -> None:
        at, where = self._now(), dict[str, Any]()
        if stream.kind == "keyed":
            where["key"] = b"%d" % self._rng.randrange(10**6)
        elif stream.kind != "unkeyed":
            where["partition"] = stream.kind

        def answered(delivery: Any) -> None:
            delivery.result()
            self.sent.append(Sent(stream, self._now() - at))

        delivery = self._producer.send_nowait(stream.topic, bytes(stream.size), **where)
        delivery.add_done_callback(answered)


async def run(
    service: tuple[float, ...], topics: dict[str, int], streams: list[Stream]
) -> list[Sent]:
    """Each record's latency; ``service`` is what a request takes at each broker in seconds,
    ``topics`` how many partitions each topic has."""
    fake = FakeCluster(len(service))
    fake.round_trip_s = 0.0005
    for topic, partitions in topics.items():
        fake.create_topic(topic, partitions)
    for broker, seconds in enumerate(service):
        fake.delay_produce(broker, seconds)
    async with Producer(fake.bootstrap, dialer=fake, rng=Random(2), linger_ms=LINGER * 1000) as p:
        for topic in topics:
            await p.send_and_wait(topic, b"warm")
        load = Load(p)
        await asyncio.gather(*map(load.send_all, streams))
    return load.sent


def bound(service: tuple[float, ...]) -> float:
    """How long a record may take below half of what brokers take: docs/concepts/partition-choice.md
    states it."""
    return LINGER + 6 * (max(service) + 0.002)


SERVICE = st.sampled_from([0.001, 0.002, 0.005, 0.02, 0.05])


@st.composite
def loads(draw: Any) -> tuple[tuple[float, ...], dict[str, int], list[Stream]]:
    service = tuple(draw(st.lists(SERVICE, min_size=2, max_size=4)))
    topics = {f"t{n}": draw(st.integers(1, 6)) for n in range(draw(st.integers(1, 3)))}
    streams = []
    for _ in range(draw(st.integers(2, 6))):
        topic = draw(st.sampled_from(sorted(topics)))
        partitions = st.integers(0, topics[topic] - 1)
        kind = draw(st.sampled_from(["keyed", "unkeyed"]) | partitions)
        size = draw(st.sampled_from([10, 1000, 20_000]))
        every = draw(st.sampled_from([0.001, 0.007, 0.05]))
        streams.append(Stream(topic, kind, size, draw(st.integers(1, 5)), every))
    return service, topics, streams


def tame(service: tuple[float, ...], topics: dict[str, int], streams: list[Stream]) -> list[Stream]:
    """The streams, slowed down until no broker gets more than half of what it takes, wherever the
    keys go."""
    most = REQUEST / max(service) / 2
    total = sum(stream.rate for stream in streams)
    slower = max(1.0, total / most)
    return [stream._replace(every=stream.every * slower) for stream in streams]


@settings(max_examples=8, deadline=None)
@given(load=loads())
def test_no_record_waits_longer_than_the_bound(load: Any) -> None:
    service, topics, streams = load
    sent = run_virtual(run(service, topics, tame(service, topics, streams)))
    assert sent
    worst = max(sent, key=lambda s: s.latency)
    assert worst.latency <= bound(service), worst


QUIET = Stream("quiet", "unkeyed", 200, 1, 0.05)
FULL_KEYED = Stream("hot", "keyed", 1000, 20, 0.001)
"""20 MB/s: each batch is full by the time its broker can take it."""


@pytest.mark.parametrize("other", [Stream("hot", "unkeyed", 200, 1, 0.05), QUIET])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "service", [pytest.param((0.005,) * 3, marks=pytest.mark.full), (0.005, 0.005, 0.02)]
)
def test_full_keyed_batches_do_not_take_every_slot(
    other: Stream, partitions: int, service: tuple[float, ...]
) -> None:
    """Beside 3 % of what the brokers take, unkeyed records waited 5 s for their turn."""
    sent = run_virtual(run(service, {"hot": partitions, "quiet": 3}, [FULL_KEYED, other]))
    slowest = {s.kind: max(x.latency for x in sent if x.stream is s) for s in (FULL_KEYED, other)}
    assert slowest["unkeyed"] <= bound(service)
    assert slowest["keyed"] <= bound(service)
