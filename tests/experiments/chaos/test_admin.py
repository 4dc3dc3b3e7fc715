"""The requests written by hand, read by a codec made from Kafka's schemas."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from experiments.chaos import admin
from kafkaclient.errors import BrokerError, KafkaError
from kafkaclient.wire.codec import decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Broker:
    """Answers every request with the fields it was given; hangs up without any."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fields: dict[str, Any] | None = {}
        self.address = ("127.0.0.1", 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4))
        request = decode_request(await reader.readexactly(size))
        self.asked.append(request.message)
        if self.fields is not None:
            writer.write(
                encode_response(
                    request.api_key, request.version, request.correlation_id, **self.fields
                )
            )
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    made = Broker()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.address = server.sockets[0].getsockname()
        yield made


async def test_replicas_are_put_into_another_order() -> None:
    async with broker() as b:
        await admin.reassign(b.address, {"t": {0: [1, 2, 0], 5: [2, 0, 1]}, "u": {0: [0]}})
        topics = {
            topic.name: {p.partition_index: list(p.replicas) for p in topic.partitions}
            for topic in b.asked[0].topics
        }
        assert topics == {"t": {0: [1, 2, 0], 5: [2, 0, 1]}, "u": {0: [0]}}
        b.fields = {"error_code": 41, "error_message": "not me"}
        with pytest.raises(BrokerError, match="not me"):
            await admin.reassign(b.address, {"t": {0: [1]}})


async def test_preferred_leaders_are_elected() -> None:
    async with broker() as b:
        await admin.elect_preferred(b.address, {"t": [0, 3]})
        (asked,) = b.asked
        assert asked.election_type == 0  # preferred; 1 may lose records
        assert [(t.topic, list(t.partitions)) for t in asked.topic_partitions] == [("t", [0, 3])]
        b.fields = {"error_code": 29}
        with pytest.raises(BrokerError, match="electing preferred leaders"):
            await admin.elect_preferred(b.address, {"t": [0]})


async def test_topics_grow_and_a_refusal_is_told() -> None:
    async with broker() as b:
        b.fields = {"results": [{"name": "t", "error_code": 0, "error_message": None}]}
        await admin.add_partitions(b.address, {"t": 8})
        (asked,) = b.asked
        assert [(t.name, t.count, t.assignments) for t in asked.topics] == [("t", 8, None)]
        assert asked.validate_only is False
        b.fields = {"results": [{"name": "t", "error_code": 37, "error_message": "fewer"}]}
        with pytest.raises(BrokerError, match="fewer"):
            await admin.add_partitions(b.address, {"t": 2})


async def test_leaders_are_told_by_partition() -> None:
    async with broker() as b:
        nobody: dict[str, Any] = {"replica_nodes": [], "isr_nodes": [], "offline_replicas": []}
        partitions = [
            {"error_code": 0, "partition_index": 0, "leader_id": 2, **nobody},
            {"error_code": 5, "partition_index": 1, "leader_id": -1, **nobody},
        ]
        topic = {"error_code": 0, "name": "t", "partitions": partitions}
        b.fields = {"brokers": [], "cluster_id": "c", "topics": [topic]}
        assert await admin.leaders(b.address, ["t"]) == {("t", 0): 2, ("t", 1): -1}
        assert b.asked[0].allow_auto_topic_creation is False


async def test_a_broker_that_hangs_up_is_an_error_of_ours() -> None:
    async with broker() as b:
        b.fields = None
        with pytest.raises(KafkaError, match="closed the connection"):
            await admin.leaders(b.address, ["t"])
