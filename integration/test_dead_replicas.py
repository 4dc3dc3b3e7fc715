"""A replica that is dead and not fenced yet (9 s): who waits for it, and who need not."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

import pytest

from kafkaclient import Producer

pytestmark = [pytest.mark.timeout(180), pytest.mark.local_cluster]

# Broker 2 leads two of them, and follows in two more. Brokers 0 and 1 both lead one that it has
# nothing to do with, and one that waits for it.
_ASSIGNMENTS = {0: [0, 1], 1: [1, 0], 2: [0, 2], 3: [1, 2], 4: [2, 0], 5: [2, 1]}
_CLEAN, _NEEDY = (0, 1), (2, 3)
_RATE, _SECONDS, _AWAY_S = 500, 9.0, 6.0
_LONG = 4.0  # seconds that only a dead replica takes, however busy the machine


async def _latencies(producer: Producer, topic: str) -> dict[int | None, list[float]]:
    """Of records without key and of records for each partition, by that partition or None."""
    found: dict[int | None, list[float]] = defaultdict(list)
    places = (None, *_CLEAN, None, *_NEEDY)
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < _SECONDS:
        while sent < elapsed * _RATE:
            place, at = places[sent % len(places)], time.monotonic()
            delivery = await producer.send(topic, b"%r %d" % (place, sent), partition=place)
            delivery.add_done_callback(
                lambda _, place=place, at=at: found[place].append(time.monotonic() - at)
            )
            sent += 1
        await asyncio.sleep(0.002)
    await producer.flush()
    await asyncio.sleep(0)
    assert sum(map(len, found.values())) == sent
    return found


def _over(latencies: list[float], seconds: float) -> float:
    return sum(latency > seconds for latency in latencies) / len(latencies)


@pytest.mark.full
@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_only_what_needs_a_dead_replica_waits_for_it(
    how, kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, assignments=_ASSIGNMENTS)
    async with Producer(kafka_cluster.bootstrap) as producer:
        await asyncio.gather(*[producer.send_and_wait(topic, b"", partition=n) for n in range(6)])
        running = asyncio.create_task(_latencies(producer, topic))
        try:
            await asyncio.sleep(1.0)
            await (kafka_cluster.kill(2) if how == "kill" else kafka_cluster.pause(2))
            await asyncio.sleep(_AWAY_S)
            await kafka_cluster.heal()
            found = await running
        finally:
            running.cancel()
            await kafka_cluster.heal()
    for partition in _NEEDY:
        assert max(found[partition]) > _AWAY_S / 2, "nothing had to wait: no fault was there"
        assert _over(found[partition], _LONG) > 0.1
    for place in (None, *_CLEAN):
        # Those that were on their way to a partition that needs it, and the moment of finding out.
        assert _over(found[place], _LONG) < 0.05, place
    last: dict[bytes, int] = {}
    read = [record for record in await read_topic(topic) if record.value]
    assert len(read) == len({record.value for record in read}) == sum(map(len, found.values()))
    for record in read:
        source, n = record.value.split()
        if source != b"None":
            assert int(n) > last.get(source, -1), f"reordered: {record}"
            last[source] = int(n)
