"""The product's own connection on the fake: the seam fits, faults included."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BrokerConnectionError, RequestTimedOutError
from kafkaclient.net.connection import Connection
from kafkaclient.net.pending_request import PendingRequest
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP
from kafkaclient.wire import produce
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import Callable


async def connect(
    fake: FakeCluster, node_id: int = 0, api_versions: int | None = None
) -> Connection:
    _, connection = await fake.dial(
        f"fake-{node_id}",
        9092,
        lambda: Connection(node=f"node {node_id}", client_id="test", request_timeout_s=30),
    )
    await connection.handshake(api_versions)
    return connection


@pytest.mark.parametrize("profile", ["kafka-4", "kafka-3", "kafka-2.1"])
@virtual_time
async def test_handshake_and_calls(profile: str) -> None:
    fake = FakeCluster(profile=profile)
    connection = await connect(fake)
    metadata = await connection.call(MetadataCall(("t",)))
    assert len(metadata.brokers) == 3
    connection.close()


@virtual_time
async def test_a_broker_that_closes_on_an_unknown_version() -> None:
    fake = FakeCluster(profile="event-hubs")
    with pytest.raises(BrokerConnectionError):
        await connect(fake)
    connection = await connect(fake, api_versions=3)
    assert connection.api_versions is not None
    connection.close()


@virtual_time
async def test_pipelined_produce(batch: Callable[..., bytes]) -> None:
    fake = FakeCluster()
    fake.create_topic("t", 1)
    connection = await connect(fake)
    fake.delay_produce(0, 0.02)
    answers: list[Any] = []
    for index in range(5):
        correlation_id = connection.next_correlation_id()
        batches = [("t", [(0, batch(producer_id=1, epoch=0, sequence=index))])]
        connection.send(
            produce.encode_request(12, correlation_id, "test", -1, 30_000, batches),
            PendingRequest(
                correlation_id,
                lambda _, payload, error: answers.append((payload, error)),
                asyncio.get_running_loop().time(),
            ),
        )
    assert connection.in_flight == 5
    await asyncio.sleep(0.1 + 1e-9)
    offsets = [produce.decode_response(12, p).partitions[0].base_offset for p, _ in answers]
    assert offsets == [0, 1, 2, 3, 4]
    connection.close()


@virtual_time
async def test_faults_reach_the_caller() -> None:
    fake = FakeCluster()
    silent, cut = await connect(fake, 0), await connect(fake, 1)
    fake.control(ApiKey.METADATA, DROP, broker=0)
    loop = asyncio.get_running_loop()
    with pytest.raises(RequestTimedOutError):
        await silent.call(MetadataCall())
    assert loop.time() == pytest.approx(30, abs=0.5)
    fake.stall_broker(1)
    call = asyncio.ensure_future(cut.call(MetadataCall()))
    await asyncio.sleep(1)
    fake.stop_broker(1)
    with pytest.raises(BrokerConnectionError):
        await call
