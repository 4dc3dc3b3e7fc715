"""What instrumentations and frameworks read of ``producer.client``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import errors as theirs

from kafkaclient.aiokafka import AIOKafkaProducer
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
        fake.move_leader("t", 1, -1)
        await producer._producer.refresh_metadata()
        assert client.cluster.partitions_for_topic("t") == {0, 1, 2}
        assert client.cluster.available_partitions_for_topic("t") == {0, 2}


@virtual_time
async def test_a_look_up_only_looks() -> None:
    """No request, which could create the topic; in a callback of the event loop as well."""
    fake = FakeCluster(auto_create_topics=True)
    async with dropin(fake) as producer:
        before = len(fake.requests)
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def look() -> None:
            found.set_result(producer.client.cluster.partitions_for_topic("typo"))

        asyncio.get_running_loop().call_soon(look)
        assert await found is None
        assert producer.client.cluster.available_partitions_for_topic("typo") is None
        await asyncio.sleep(10)
        assert len(fake.requests) == before


@virtual_time
async def test_the_client_follows_a_start_that_is_repeated() -> None:
    fake = cluster()
    for broker in range(3):
        fake.stop_broker(broker, elect=False)
    producer = AIOKafkaProducer(
        bootstrap_servers=fake.bootstrap, dialer=fake, request_timeout_ms=500
    )
    client = producer.client
    with pytest.raises(theirs.KafkaConnectionError):
        await producer.start()
    for broker in range(3):
        fake.start_broker(broker)
    await producer.start()
    assert await client._wait_on_metadata("t") == {0, 1, 2}
    assert client.cluster.partitions_for_topic("t") == {0, 1, 2}
    await producer.stop()


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
