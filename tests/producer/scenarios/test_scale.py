"""Ten thousand partitions, a thousand topics: what happens costs, not what exists.

Calls are counted, not seconds: in virtual time they are the same in every run.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from kafkaclient.producer.producer import Producer
    from tests.producer.support import StartProducer

MANY = 10_000


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """The calls of the client's Python functions, by file and name."""
    calls: Counter[str] = Counter()

    def seen(frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        _, ours, path = code.co_filename.rpartition("kafkaclient/")
        if event == "call" and ours and path.startswith(("producer/", "cluster/", "metrics/")):
            calls[f"{path}:{code.co_name}"] += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def cluster(topics: int, partitions: int) -> FakeCluster:
    fake = FakeCluster(brokers=3)
    for n in range(topics):
        fake.create_topic(f"t{n}", partitions)
    return fake


async def know(producer: Producer, topics: int) -> None:
    """All topics are known, and all that comes first has happened."""
    await asyncio.gather(*(producer.partitions_for(f"t{n}") for n in range(topics)))
    for _ in range(20):
        await producer.send_and_wait("t0", b"first")
    await asyncio.sleep(1.0)


async def load(producer: Producer, *, hot_key: bool) -> Counter[str]:
    """The calls that 3,000 records to one topic take."""
    with counting() as calls:
        for n in range(3000):
            producer.send_nowait("t0", bytes(200), b"hot" if hot_key and n % 2 else None)
            if n % 50 == 0:
                await asyncio.sleep(0.001)
        await producer.flush()
    return calls


async def compare(
    producing: StartProducer, *clusters: tuple[int, int], **load_options: Any
) -> None:
    """What is sent to one topic costs as many calls in one cluster as in the other."""
    few, many = [], []
    for counted, (topics, partitions) in zip((few, many), clusters, strict=True):
        async with producing(cluster(topics, partitions)) as producer:
            await know(producer, topics)
            counted.append(await load(producer, **load_options))
    more = many[0] - few[0]
    assert many[0].total() <= 1.1 * few[0].total(), more.most_common(10)


@virtual_time
async def test_a_record_costs_the_same_with_10000_partitions(producing: StartProducer) -> None:
    await compare(producing, (1, 6), (1, MANY), hot_key=False)


@virtual_time
async def test_also_while_a_key_fills_one_of_them(producing: StartProducer) -> None:
    await compare(producing, (1, 6), (1, MANY), hot_key=True)


@virtual_time
async def test_a_record_costs_the_same_with_1000_topics(producing: StartProducer) -> None:
    await compare(producing, (1, 6), (1000, 6), hot_key=True)


@virtual_time
async def test_nothing_happens_while_nothing_is_there(producing: StartProducer) -> None:
    async with producing(cluster(1, MANY), metadata_max_age_ms=3_600_000) as producer:
        await know(producer, 1)
        with counting() as calls:
            await asyncio.sleep(60)
        assert not calls


@virtual_time
async def test_a_refresh_without_news_touches_no_topic(producing: StartProducer) -> None:
    async with producing(cluster(20, 50)) as producer:
        await know(producer, 20)
        metadata = inspect(producer).metadata
        before = dict(metadata.view.topics)
        with counting() as calls:
            for _ in range(3):
                metadata.request_refresh("is anything new?")
                await asyncio.sleep(2.0)
        assert all(metadata.view.topics[name] is view for name, view in before.items())
        assert max(calls.values()) <= 3 * 20 * 3, "at most a few calls for each topic"


@virtual_time
async def test_a_leader_that_moves_touches_what_it_led(producing: StartProducer) -> None:
    fake = cluster(3, 1000)
    async with producing(fake) as producer:
        await know(producer, 3)
        for partition in range(200):
            producer.send_nowait("t0", b"v", partition=partition)
        await producer.flush()
        queues = inspect(producer).accumulator.topics["t0"].queues
        led = {number: queue.leader for number, queue in queues.items()}
        fake.move_leader("t0", 7, 0)
        fake.move_leader("t1", 8, 0)
        inspect(producer).metadata.request_refresh("leaders have moved")
        await asyncio.sleep(2.0)
        assert {n: queue.leader for n, queue in queues.items()} == led | {7: 0}


@virtual_time
async def test_metrics_tell_of_what_was_used(producing: StartProducer) -> None:
    async with producing(cluster(1, MANY)) as producer:
        await know(producer, 1)
        producer.send_nowait("t0", b"v", partition=9876)
        await producer.flush()
        with counting() as calls:
            told = producer.metrics().partitions
        assert TopicPartition("t0", 9876) in told
        assert len(told) <= 21
        assert calls.total() < 1500
        assert len(producer.load().partitions) <= 21
