"""What instrumentations and frameworks read of ``producer.client``."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import errors as theirs

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.aiokafka_dropin.support import dropin


def cluster() -> FakeCluster:
    fake = FakeCluster(auto_create_topics=False)
    fake.create_topic("t", 3)
    return fake


@virtual_time
async def test_names() -> None:
    fake = cluster()
    servers = fake.bootstrap.split(",")
    async with dropin(fake, bootstrap_servers=servers, client_id="mine") as producer:
        assert producer.client._bootstrap_servers is servers
        assert producer.client._client_id == "mine"


@virtual_time
async def test_partitions() -> None:
    fake = cluster()
    async with dropin(fake) as producer:
        client = producer.client
        assert client.cluster.partitions_for_topic("t") is None
        assert await producer.partitions_for("t") == {0, 1, 2}
        assert await client._wait_on_metadata("t") == {0, 1, 2}
        assert client.cluster.topics() == {"t"}
        fake.move_leader("t", 1, -1)
        assert await client.force_metadata_update()
        assert client.cluster.partitions_for_topic("t") == {0, 1, 2}
        assert client.cluster.available_partitions_for_topic("t") == {0, 2}


@virtual_time
async def test_partitions_are_known_after_the_first_record() -> None:
    """faust asks for a key's partition without awaiting anything."""
    async with dropin(cluster()) as producer:
        with pytest.raises(theirs.UnknownTopicOrPartitionError):
            producer._partition(
                "t",
                partition=None,
                key=None,
                value=None,
                serialized_key=b"k",
                serialized_value=None,
            )
        metadata = await producer.send_and_wait("t", b"v", b"k")
        found = producer._partition(
            "t", partition=None, key=None, value=None, serialized_key=b"k", serialized_value=None
        )
        assert found == metadata.partition


@virtual_time
async def test_a_new_topic_is_waited_for() -> None:
    """The way of aiokafka's own tests."""
    fake = cluster()
    async with dropin(fake, request_timeout_ms=5000) as producer:
        client = producer.client
        added = client.add_topic("new")
        assert await client.force_metadata_update()
        assert "new" not in client.cluster.topics()
        fake.create_topic("new", 1)
        assert await added
        assert "new" in client.cluster.topics()


@virtual_time
async def test_a_topic_that_never_comes() -> None:
    async with dropin(cluster(), request_timeout_ms=300) as producer:
        assert not await producer.client.add_topic("no")


@virtual_time
async def test_an_update_without_brokers() -> None:
    fake = cluster()
    async with dropin(fake, request_timeout_ms=300) as producer:
        for broker in range(3):
            fake.stall_broker(broker)
        assert not await producer.client.force_metadata_update()


@virtual_time
async def test_cancelling_a_wait_leaves_the_update() -> None:
    fake = cluster()
    fake.round_trip_s = 0.1
    async with dropin(fake) as producer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.client.add_topic("t"), 0.01)
        await asyncio.sleep(1)
        assert producer.client.cluster.topics() == {"t"}
