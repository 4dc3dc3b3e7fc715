"""The pause before the next attempt to connect, and the time for an attempt."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kafkaclient.errors import BrokerConnectionError
from tests.cluster.memory_cluster import Bench, benched, now, view_of


@benched()
async def test_a_black_holed_broker_delays_only_itself(b: Bench) -> None:
    b.net.black_holes.add("b0:9092")
    b.router.update_brokers(view_of(0, 1, 2))
    for node in (0, 1, 2):
        b.router.produce_connection(node)
    await asyncio.sleep(0.1)
    assert sorted(b.changes) == [1, 2]
    await asyncio.sleep(7.8)
    assert b.router.connection_error(0) is None
    await asyncio.sleep(4.2)  # 10 s, varied by 20 %
    assert "within" in str(b.router.connection_error(0))
    assert isinstance(b.router.connection_error(0), BrokerConnectionError)
    assert b.changes[-1] == 0


@benched()
async def test_the_setup_timeout_grows_to_its_ceiling(b: Bench) -> None:
    b.net.black_holes.add("b0:9092")
    b.router.update_brokers(view_of(0))
    with pytest.raises(TimeoutError):
        await b.produce_connection(0, timeout_s=150)
    starts = [at for at, _ in b.net.dials]
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert 8 <= gaps[0] <= 12.1
    assert 16 <= gaps[1] <= 24.2
    assert all(24 <= gap <= 31 for gap in gaps[2:])


@benched()
async def test_reconnects_back_off_exponentially_with_jitter(b: Bench) -> None:
    b.net.refusing.add("b0:9092")
    b.router.update_brokers(view_of(0))
    with pytest.raises(TimeoutError):
        await b.produce_connection(0, timeout_s=20)
    starts = [at for at, _ in b.net.dials]
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    for gap, expected in zip(gaps, (0.05, 0.1, 0.2, 0.4, 0.8), strict=False):
        assert 0.8 * expected <= gap <= 1.2 * expected + 0.01
    assert all(0.8 <= gap <= 1.01 for gap in gaps[5:])
    assert len(set(gaps)) == len(gaps)
    assert "refused by b0:9092" in str(b.router.connection_error(0))
    b.net.refusing.clear()
    await b.produce_connection(0, timeout_s=2)
    assert b.router.connection_error(0) is None


@benched()
async def test_nothing_is_dialed_without_a_request(b: Bench) -> None:
    b.net.refusing.add("b0:9092")
    b.router.update_brokers(view_of(0))
    b.router.produce_connection(0)
    await asyncio.sleep(100)
    assert len(b.net.dials) == 1


@benched()
async def test_a_connection_that_served_is_remade_without_a_pause(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    await b.produce_connection(0)
    await asyncio.sleep(5)
    b.net.lose_all()
    await asyncio.sleep(0)
    before = now()
    await b.produce_connection(0)
    assert now() - before < 0.01


@benched()
async def test_a_broker_that_drops_each_connection_at_once_is_backed_off(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    async with asyncio.timeout(30):
        for _ in range(20):
            await b.produce_connection(0)
            b.net.lose_all()
            await asyncio.sleep(0)
    assert now() > 8


@benched()
async def test_a_handshake_without_an_answer_ends_by_the_setup_timeout(b: Bench) -> None:
    b.net.silent.add("b0:9092")
    b.router.update_brokers(view_of(0))
    b.router.produce_connection(0)
    await asyncio.sleep(12.1)
    assert "within" in str(b.router.connection_error(0))
    assert not b.net.pipes
