"""Connections and links that are no longer used."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.metadata import MetadataCall
from tests.cluster.memory_cluster import Bench, benched, now, view_of


@benched(connections_max_idle_ms=10_000)
async def test_idle_connections_are_closed_and_remade_when_needed(b: Bench) -> None:
    b.router.update_brokers(view_of(0, 1))
    await b.produce_connection(0)
    busy = await b.produce_connection(1)
    for _ in range(25):
        await asyncio.sleep(1)
        busy.last_used = now()
    assert [pipe.address for pipe in b.net.pipes] == ["b1:9092"]
    assert b.router.connection_error(0) is None
    before = now()
    await b.produce_connection(0)
    assert now() - before < 0.01


@benched(connections_max_idle_ms=1000)
async def test_a_connection_with_requests_in_flight_is_not_idle(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    connection = await b.produce_connection(0)
    b.net.delay_s = 20.0
    call = asyncio.create_task(connection.call(MetadataCall()))
    await asyncio.sleep(19)
    assert not connection.closed
    assert (await call).cluster_id == "mem"
    await asyncio.sleep(3)
    assert connection.closed


@benched(connections_max_idle_ms=-1)
async def test_connections_may_be_kept_for_ever(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    connection = await b.produce_connection(0)
    await asyncio.sleep(100_000)
    assert not connection.closed


@benched(connections_max_idle_ms=1000)
async def test_links_to_brokers_that_are_gone_are_forgotten(b: Bench) -> None:
    b.router.update_brokers(view_of(0, 1))
    await b.produce_connection(0)
    await b.produce_connection(1)
    b.router.update_brokers(view_of(0))
    assert b.router.produce_connection(1) is None
    await asyncio.sleep(1.5)
    await b.produce_connection(0)
    await asyncio.sleep(3)
    assert set(b.router._links) == {(0, "produce")}


@pytest.mark.parametrize("idle_ms", [-1, 540_000])
@virtual_time
async def test_nothing_is_kept_of_connections_that_were_given_up(idle_ms: int) -> None:
    """Brokers that move, purposes that end, brokers that leave: while dialing or connected."""
    async with Bench(connections_max_idle_ms=idle_ms) as b:
        await b.metadata.start()
        for n in range(20):
            if n % 2:
                await b.produce_connection(1)
            else:
                b.router.produce_connection(1)
            await b.router.call(MetadataCall(()), 2, purpose=f"fetch-{n}")
            b.router.release(f"fetch-{n}")
            del b.net.brokers[1]
            b.net.brokers[1] = f"b1:{10_000 + n}"
            b.metadata.request_refresh("b1 has moved")
            await asyncio.sleep(2)
            assert not b.router._retired
            assert len(b.router._links) <= 5
        for n in range(20):
            b.net.brokers[10 + n] = f"new:{n}"
            b.metadata.request_refresh("a broker has come")
            await asyncio.sleep(2)
            await b.produce_connection(10 + n)
            address = b.net.brokers.pop(10 + n)
            b.metadata.request_refresh("and is gone")
            await asyncio.sleep(2)
            b.net.lose_all(address)
            await asyncio.sleep(2)
            assert len(b.router._links) <= 5
