"""The question that tells whether a broker is ready."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.errors import ProtocolError
from kafkaclient.testing.broker import membership, parse_membership
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import decode_request, encode_response

BROKERS = [
    {"node_id": node, "host": "127.0.0.1", "port": 9092 + node, "rack": rack}
    for node, rack in ((0, None), (2, "a"))
]


def answer(correlation_id: int = 0) -> bytes:
    return encode_response(
        ApiKey.METADATA,
        4,
        correlation_id,
        throttle_time_ms=0,
        brokers=BROKERS,
        cluster_id="the-cluster",
        controller_id=0,
        topics=[],
    )


def test_reads_who_is_there() -> None:
    found = parse_membership(answer()[4:])
    assert found.cluster_id == "the-cluster"
    assert found.brokers == {0, 2}


def test_refuses_what_ends_early() -> None:
    with pytest.raises(ProtocolError):
        parse_membership(answer()[4:20])


async def test_asks_without_creating_anything() -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4))
        asked.append(decode_request(await reader.readexactly(size)))
        writer.write(answer(asked[0].correlation_id))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        found = await membership(server.sockets[0].getsockname()[1])
    assert found is not None
    assert found.brokers == {0, 2}
    (request,) = asked
    assert (request.api_key, request.version) == (ApiKey.METADATA, 4)
    assert request.message.topics == []
    assert request.message.allow_auto_topic_creation is False


async def test_nobody_there() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await membership(port) is None
    server.close()
    await server.wait_closed()
    assert await membership(port) is None
