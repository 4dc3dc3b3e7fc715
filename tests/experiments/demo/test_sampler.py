from __future__ import annotations

import asyncio

import pytest

from experiments.demo.sampler import sampling
from kafkaclient.perf.traffic import BrokerTraffic, Traffic
from kafkaclient.testing.clock import virtual_time

TRAFFIC = Traffic((BrokerTraffic(0, 100, 2), BrokerTraffic(1, 50, 1)), ())


@virtual_time
async def test_the_source_is_asked_at_regular_times_until_the_end() -> None:
    async with sampling(lambda: TRAFFIC, 0.05) as samples:
        await asyncio.sleep(1.01)
    assert len(samples.traffic) == len(samples.seconds) == 21
    assert set(samples.traffic) == {TRAFFIC}
    await asyncio.sleep(1)
    assert len(samples.traffic) == 21


@virtual_time
async def test_moments_without_an_answer_leave_no_sample() -> None:
    async with sampling(lambda: None, 0.05) as samples:
        await asyncio.sleep(1)
    assert samples.traffic == []


@virtual_time
async def test_an_error_of_the_source_is_raised() -> None:
    def source() -> Traffic | None:
        raise RuntimeError("no counters")

    with pytest.raises(RuntimeError, match="no counters"):
        async with sampling(source):
            await asyncio.sleep(1)


def test_requests_are_unknown_as_soon_as_one_brokers_are() -> None:
    assert TRAFFIC.bytes_per_broker == (100, 50)
    assert TRAFFIC.requests_per_broker == (2, 1)
    assert Traffic((BrokerTraffic(0, 1, 1), BrokerTraffic(1, 1)), ()).requests_per_broker is None
