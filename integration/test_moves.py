"""Clusters whose brokers are at other addresses from one moment to the next (KIP-899, KIP-1102)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from kafkaclient import Producer
from kafkaclient.testing.broker import free_ports
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.testing.proxy import FaultProxy
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.timeout(180), pytest.mark.local_cluster]


def ports(producer: Producer) -> set[int]:
    """Where the producer takes the brokers to be."""
    assert inspect(producer) is not None
    return {broker.port for broker in inspect(producer).metadata.view.brokers.values()}


def ports_of(bootstrap: str) -> set[int]:
    return {int(address.rpartition(":")[2]) for address in bootstrap.split(",")}


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_useless_addresses_are_left_for_those_of_the_bootstrap_servers(
    kafka_cluster, topic, create_topic, read_topic, caplog, how
) -> None:
    """Whoever asks something of a known address is cut off (mostly, no broker is connected any more
    then: KIP-899); or connections stay and nothing is answered (KIP-1102). A load balancer is the
    bootstrap server; it leads to the proxied listener first, to the direct one later."""
    await create_topic(topic, 3, 3)
    first = min(ports_of(kafka_cluster.proxied_bootstrap))
    options = {"metadata_recovery_rebootstrap_trigger_ms": 2000, "metadata_max_age_ms": 1000}
    async with FaultProxy("127.0.0.1", first) as balancer:
        try:
            async with Producer(f"127.0.0.1:{balancer.port}", **options) as producer:
                sent = [await producer.send(topic, b"%d" % n, partition=n % 3) for n in range(30)]
                await asyncio.gather(*sent)
                assert ports(producer) == ports_of(kafka_cluster.proxied_bootstrap)
                balancer.target_port = min(ports_of(kafka_cluster.bootstrap))
                for node in kafka_cluster.brokers:
                    proxy = kafka_cluster.proxy(node)
                    if how == "silent":
                        await proxy.stall()
                        continue
                    for api in (ApiKey.PRODUCE, ApiKey.METADATA):
                        await proxy.cut_before(api, times=None)
                with caplog.at_level(logging.WARNING, "kafkaclient.cluster"):
                    sent = [
                        await producer.send(topic, b"%d" % n, partition=n % 3)
                        for n in range(30, 60)
                    ]
                    async with asyncio.timeout(40):
                        await asyncio.gather(*sent)
                if how == "silent":
                    assert "asking the bootstrap servers again" in caplog.text
                assert ports(producer) == ports_of(kafka_cluster.bootstrap)
        finally:
            await kafka_cluster.heal()
    assert_all_there_once(await read_topic(topic), 60)


@pytest.mark.full
async def test_brokers_that_come_back_at_other_addresses() -> None:
    """KIP-899: nobody listens any more where brokers were known to be. What was sent meanwhile is
    delivered, and so is what follows."""
    async with (
        LocalCluster(1, config={"broker.session.timeout.ms": 2000}) as cluster,
        FaultProxy(*cluster.address(0)) as balancer,
        Producer(f"127.0.0.1:{balancer.port}", linger_ms=0) as producer,
    ):
        _, old = cluster.address(0)
        places = [await producer.send_and_wait("moves", b"%d" % n, partition=0) for n in range(10)]
        assert ports(producer) == {old}
        await cluster.terminate(0)
        new = move(cluster.directory / "broker-0" / "server.properties", old)
        sent = [await producer.send("moves", b"%d" % n, partition=0) for n in range(10, 20)]
        await cluster.start_broker(0, wait=False)
        balancer.target_port = new
        async with asyncio.timeout(60):
            places += await asyncio.gather(*sent)
            places += [
                await producer.send_and_wait("moves", b"%d" % n, partition=0) for n in range(20, 30)
            ]
        assert ports(producer) == {new}
        assert [place.offset for place in places] == list(range(30))


def move(properties: Path, old: int) -> int:
    """Have a stopped broker's direct listener at another port when it starts again; which one."""
    (new,) = free_ports(1)
    text, moved = properties.read_text("utf-8"), f"DIRECT://127.0.0.1:{new}"
    assert text.count(f"DIRECT://127.0.0.1:{old}") == 2, "listeners, advertised.listeners"
    properties.write_text(text.replace(f"DIRECT://127.0.0.1:{old}", moved), "utf-8")
    return new


def assert_all_there_once(read: list, count: int) -> None:
    by_partition: dict[int, list[int]] = {}
    for record in read:
        by_partition.setdefault(record.partition, []).append(int(record.value))
    assert by_partition == {p: list(range(p, count, 3)) for p in range(3)}
