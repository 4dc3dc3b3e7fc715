"""Produce connections: made in the background, and made again where a broker has moved."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.wire.metadata import MetadataCall
from tests.cluster.memory_cluster import Bench, benched, now, view_of


@benched()
async def test_a_produce_connection_comes_up_in_the_background(b: Bench) -> None:
    assert b.router.produce_connection(0) is None  # not known yet
    b.router.update_brokers(view_of(0, 1))
    assert b.router.produce_connection(0) is None
    assert b.router.produce_connection(0) is None
    await asyncio.sleep(0.1)
    connection = b.router.produce_connection(0)
    assert connection is b.router.produce_connection(0)
    assert connection.api_versions is not None
    assert b.changes == [0]
    assert len(b.net.dials) == 1
    assert b.router.connection_error(0) is None
    b.net.lose_all()
    await asyncio.sleep(0)
    assert b.changes == [0, 0]
    assert b.router.produce_connection(0) is None
    assert "was lost" in str(b.router.connection_error(0))


@benched()
async def test_a_broken_dialer_is_an_error_like_any_other(
    b: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    b.net.broken["b0:9092"] = ZeroDivisionError("a bug")
    b.router.update_brokers(view_of(0))
    b.router.produce_connection(0)
    await asyncio.sleep(0.01)
    assert "ZeroDivisionError: a bug" in str(b.router.connection_error(0))
    assert any(record.exc_info for record in caplog.records)


@benched()
async def test_a_listener_that_raises_does_not_stop_the_dialing(
    b: Bench,
    caplog: pytest.LogCaptureFixture,
) -> None:

    def broken(_: int) -> None:
        raise RuntimeError("listener broke")

    b.router.on_connection_change = broken
    b.router.update_brokers(view_of(0))
    assert b.router.produce_connection(0) is None
    await asyncio.sleep(0.1)
    assert b.router.produce_connection(0) is not None
    assert "a listener failed" in caplog.text


@benched()
async def test_the_transports_back_pressure_reaches_the_listener(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    connection = await b.produce_connection(0)
    connection.pause_writing()
    assert b.changes == [0]
    connection.resume_writing()
    assert b.changes == [0, 0]


@benched()
async def test_a_broker_that_moved_gets_new_connections(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    old = await b.produce_connection(0)
    b.net.silent.add("b0:9092")
    pending = asyncio.create_task(old.call(MetadataCall()))
    await asyncio.sleep(0)
    b.net.brokers[0] = "b0:9999"
    b.router.update_brokers(view_of(0, port=9999))
    assert old.closed
    with pytest.raises(BrokerConnectionError, match="has moved to b0:9999"):
        await pending
    new = await b.produce_connection(0)
    assert "b0:9999" in new.node


@benched()
async def test_a_broker_that_moves_while_it_is_dialed(b: Bench) -> None:
    b.net.black_holes.add("b0:9092")
    b.router.update_brokers(view_of(0))
    assert b.router.produce_connection(0) is None
    await asyncio.sleep(0.1)
    b.net.brokers[0] = "b0:9999"
    b.router.update_brokers(view_of(0, port=9999))
    before = now()
    await b.produce_connection(0)
    assert now() - before < 0.1


@pytest.mark.parametrize(("limit", "agreed"), [(4, 4), (3, 3), (2, 0)])
@benched()
async def test_a_broker_that_resets_on_api_versions_is_asked_an_older_way(
    b: Bench, limit: int, agreed: int
) -> None:
    b.net.resets_api_versions_above["b0:9092"] = limit
    b.router.update_brokers(view_of(0))
    connection = await b.produce_connection(0)
    assert connection.api_versions_version == agreed
    dials = len(b.net.dials)
    await asyncio.sleep(5)
    b.net.lose_all()
    await asyncio.sleep(0)
    await b.produce_connection(0)
    assert len(b.net.dials) == dials + 1  # it remembers


@benched()
async def test_a_broker_that_always_resets_fails_the_attempt(b: Bench) -> None:
    b.net.resets_api_versions_above["b0:9092"] = -1
    b.router.update_brokers(view_of(0))
    b.router.produce_connection(0)
    await asyncio.sleep(0.04)
    assert len(b.net.dials) == 3
    assert isinstance(b.router.connection_error(0), BrokerConnectionError)
