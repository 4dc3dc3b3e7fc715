"""The demonstration of docs/concepts/five-messages.md on real brokers: where do they land?"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from kafkaclient import Producer

pytestmark = pytest.mark.timeout(180)

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
# Long enough for five messages; the console producer has 1000 as well.
LINGER_MS = 1000
# The pauses of the spaced messages are twice this one; those of the blog were ten seconds.
SHORT_LINGER_MS = 100


@pytest.fixture
def land(create_topic, read_topic, topic, kafka_cluster):
    """``await land(partitions, action, **options)``: what ``action(send_five)`` gives, and how many
    messages another client finds in each partition. ``send_five()`` sends five at once and waits
    for them; it gives the partitions they went to."""

    async def run(partitions, action, **options):
        # A single replica: a follower that begins late would make its leader look slow.
        await create_topic(topic, partitions)
        async with Producer(kafka_cluster.bootstrap, **options) as producer:

            async def send(count):
                deliveries = [producer.send_nowait(topic, b"%d" % n) for n in range(count)]
                await producer.flush()
                return [(await delivery).partition for delivery in deliveries]

            result = await action(send)
        return result, Counter(record.partition for record in await read_topic(topic))

    return run


async def two_bursts(send):
    return await send(5), await send(5)


async def five_apart(send):
    """Each message long after the batch of the one before has left."""
    partitions = []
    for _ in range(5):
        partitions += await send(1)
        await asyncio.sleep(2 * SHORT_LINGER_MS / 1000)
    return partitions


@pytest.mark.parametrize("linger_ms", [LINGER_MS, 0])
async def test_two_bursts_under_sticky_land_on_two_partitions(land, linger_ms):
    """D1: a batch stays together, the next batch goes elsewhere. Without linger as well: the five
    are in the batch before the event loop gets to send it."""
    (first, second), found = await land(10, two_bursts, partitioner="sticky", linger_ms=linger_ms)
    assert (len(set(first)), len(set(second))) == (1, 1)
    assert found == {first[0]: 5, second[0]: 5}


async def test_messages_far_apart_under_sticky_never_stay(land):
    """D2: neighbours differ. That all five differ, as in the blog, is luck."""
    partitions, found = await land(5, five_apart, partitioner="sticky", linger_ms=SHORT_LINGER_MS)
    assert all(before != after for before, after in pairwise(partitions))
    assert found == Counter(partitions)


async def test_all_bursts_under_kip794_land_on_one_partition(land):
    """D3: what decides is bytes; ten small messages are far from ``batch.size``."""
    (first, second), found = await land(10, two_bursts, partitioner="kip794", linger_ms=LINGER_MS)
    assert len({*first, *second}) == 1
    assert found == {first[0]: 10}


async def test_messages_far_apart_under_kip794_stay(land):
    """D3: so do pauses, however long."""
    partitions, found = await land(5, five_apart, partitioner="kip794", linger_ms=SHORT_LINGER_MS)
    assert found == {partitions[0]: 5}


async def test_a_burst_under_late_stays_together_and_the_next_goes_elsewhere(land):
    """One batch, bound when it leaves; then the partition that is furthest behind is another."""
    (first, second), found = await land(10, two_bursts, partitioner="late", linger_ms=LINGER_MS)
    assert (len(set(first)), len(set(second))) == (1, 1)
    assert found == {first[0]: 5, second[0]: 5}


async def test_messages_far_apart_under_late_take_a_partition_each(land):
    """Each goes to one that has had nothing: what the blog saw by luck."""
    partitions, found = await land(5, five_apart, partitioner="late", linger_ms=SHORT_LINGER_MS)
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert found == Counter(partitions)


async def test_five_messages_under_round_robin_take_a_partition_each(land):
    (first, second), found = await land(5, two_bursts, partitioner="round-robin")
    assert first == second == [0, 1, 2, 3, 4]
    assert found == dict.fromkeys(range(5), 2)


@pytest.mark.local_cluster
async def test_javas_console_producer(kafka_cluster, topic, create_topic, read_topic):
    """D3, and the answer to the blog's puzzle: this tool lingers for a second by default."""
    usage, _ = await asyncio.gather(
        kafka_cluster.run_tool(CONSOLE_PRODUCER, "--help"),
        create_topic(topic, 10, replication_factor=2),
    )
    told = " ".join((usage.stdout + usage.stderr).split())
    timeout = told[told.index("--timeout") :]
    assert "(default: 1000)" in timeout[: timeout.index(" --", 2)]
    result = await kafka_cluster.run_tool(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", kafka_cluster.bootstrap, "--topic", topic),
        stdin=b"".join(b"%d\n" % n for n in range(1, 6)),
    )
    assert result.returncode == 0, result.stderr
    found = Counter(record.partition for record in await read_topic(topic))
    assert list(found.values()) == [5]
