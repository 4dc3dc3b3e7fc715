"""When calls go to the bootstrap servers."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.wire.metadata import MetadataCall
from tests.cluster.memory_cluster import Bench, benched, now, view_of


@benched(bootstrap="dead:1,b0:9092")
async def test_bootstrap_servers_serve_until_brokers_are_known(b: Bench) -> None:
    result = await b.router.call(MetadataCall())
    assert [broker.node_id for broker in result.brokers] == [0, 1, 2]
    assert [address for _, address in b.net.dials] == ["dead:1", "b0:9092"]
    b.router.update_brokers(view_of(0, 1, 2))
    await asyncio.sleep(0.1)
    assert not b.net.pipes
    await b.router.call(MetadataCall())
    assert len(b.net.pipes) == 1


@benched(bootstrap="dead:1,b0:9092")
async def test_a_black_holed_bootstrap_server_costs_half_a_second(b: Bench) -> None:
    b.net.black_holes.add("dead:1")
    await b.router.call(MetadataCall())
    assert 0.5 <= now() < 0.6


@benched(bootstrap="dead:1,gone:2")
async def test_no_reachable_broker_is_an_error_that_names_them_all(b: Bench) -> None:
    with pytest.raises(BrokerConnectionError, match=r"(?s)dead:1.*gone:2"):
        await b.router.call(MetadataCall())


@benched(bootstrap="seed:9092")
async def test_metadata_comes_from_the_bootstrap_servers_as_the_last_resort(b: Bench) -> None:
    """Other calls do not go there: the servers may be of another cluster by now."""
    b.net.brokers[9] = "seed:9092"
    b.net.refusing.update({"b0:9092", "b1:9092"})
    b.router.update_brokers(view_of(0, 1))
    with pytest.raises(BrokerConnectionError, match="tried 2"):
        await b.router.call(MetadataCall())
    await b.router.metadata(MetadataCall(), timeout_s=5, failures=1)
    assert b.net.asked()[0].address == "seed:9092"
