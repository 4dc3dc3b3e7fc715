"""The end of a router."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.errors import BrokerConnectionError, ProducerClosedError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.metadata import MetadataCall
from tests.cluster.memory_cluster import Bench, benched, now, view_of


@benched()
async def test_close_ends_everything_at_once(b: Bench) -> None:
    b.net.black_holes.add("b2:9092")
    b.router.update_brokers(view_of(0, 1, 2))
    connection = await b.produce_connection(0)
    b.router.produce_connection(2)
    b.net.silent.add("b0:9092")
    pending = [
        asyncio.create_task(connection.call(MetadataCall())),
        asyncio.create_task(b.router.call(MetadataCall(), 2)),
        asyncio.create_task(b.router.call(MetadataCall(), 0)),
    ]
    await asyncio.sleep(0.5)
    before = now()
    changes = len(b.changes)
    await b.router.close()
    assert now() == before
    results = await asyncio.gather(*pending, return_exceptions=True)
    assert all(isinstance(r, (BrokerConnectionError, ProducerClosedError)) for r in results)
    assert len(b.changes) == changes
    assert b.router.produce_connection(0) is None
    with pytest.raises(ProducerClosedError):
        await b.router.call(MetadataCall())
    await b.router.close()


@benched()
async def test_close_waits_a_moment_for_bytes_under_way(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    await b.produce_connection(0)
    b.net.pipes[0].stuck = True
    before = now()
    await b.router.close()
    assert now() - before == pytest.approx(1.0)


@benched()
async def test_a_cancelled_close_still_cuts_the_connections(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    await b.produce_connection(0)
    b.net.pipes[0].stuck = True
    closing = asyncio.create_task(b.router.close())
    await asyncio.sleep(0.1)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    await asyncio.sleep(0)
    assert not b.net.pipes


@virtual_time
async def test_close_at_any_moment_of_an_attempt() -> None:
    for step in range(12):
        async with Bench() as b:
            b.router.update_brokers(view_of(0))
            b.router.produce_connection(0)
            for _ in range(step):
                await asyncio.sleep(0.0005)
            await b.router.close()


def test_making_a_router_needs_no_event_loop() -> None:
    assert Bench().router.connection_error(0) is None
