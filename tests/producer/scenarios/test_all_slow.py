"""All brokers take long for each request, but serve the requests of a connection side by side, as
brokers do that write to an object store."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from kafkaclient import Producer
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.api import ApiKey


async def _latencies(
    fake: FakeCluster, rate: int, seconds: float, size: int, **options: object
) -> list[float]:
    """Of records sent at a steady rate, from the moment when each was due; oldest first."""
    loop, found = asyncio.get_running_loop(), dict[int, float]()
    async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
        await producer.partitions_for("t")
        began, sent = loop.time(), 0
        while sent < rate * seconds:
            while sent < (loop.time() - began) * rate:
                future = await producer.send("t", bytes(size))
                future.add_done_callback(
                    lambda _, n=sent: found.setdefault(n, loop.time() - began - n / rate)
                )
                sent += 1
            await asyncio.sleep(0.002)
        await producer.flush()
        await asyncio.sleep(0)
    return [found[n] for n in range(sent)]


def _cluster(delay: float, *, overlapping: bool) -> FakeCluster:
    fake = FakeCluster(brokers=3)
    fake.create_topic("t", 6)
    for node in range(3):
        fake.delay_produce(node, delay, overlapping=overlapping)
    return fake


@pytest.mark.parametrize(("rate", "size"), [(50, 100), (500, 100), (2000, 10_000)])
@virtual_time
async def test_requests_follow_each_other_once_a_broker_has_shown_it(rate, size) -> None:
    latencies = await _latencies(_cluster(0.4, overlapping=True), rate, 6, size)
    settled = sorted(latencies[len(latencies) // 2 :])
    assert settled[int(0.99 * len(settled))] < 0.5


@virtual_time
async def test_brokers_that_become_slower_go_on_serving_side_by_side() -> None:
    fake, loop = _cluster(0.4, overlapping=True), asyncio.get_running_loop()
    for node in range(3):
        loop.call_later(4, partial(fake.delay_produce, node, 1.0, overlapping=True))
    latencies = await _latencies(fake, 300, 16, 1000)
    settled = sorted(latencies[3 * len(latencies) // 4 :])
    assert settled[int(0.99 * len(settled))] < 1.3


@virtual_time
async def test_a_bound_that_the_user_set_is_kept() -> None:
    fake = _cluster(0.4, overlapping=True)
    answered: dict[int, list[float]] = {}
    await _latencies(fake, 100, 4, 1000, max_in_flight_requests_per_connection=2)
    for request in fake.requests_of(ApiKey.PRODUCE):
        answered.setdefault(request.broker, []).append(request.at)
    assert len(answered) == 3
    for times in answered.values():
        assert all(later - earlier > 0.39 for earlier, later in zip(times, times[2:], strict=False))


@virtual_time
async def test_brokers_that_serve_one_by_one_get_a_second_request_rarely() -> None:
    fake = _cluster(0.05, overlapping=False)
    latencies = await _latencies(fake, 500, 10, 100)
    settled = sorted(latencies[len(latencies) // 4 :])
    assert settled[int(0.98 * len(settled))] < 0.12
