"""A server that accepts connections and never answers: the errors say so, and what it may be."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING

import pytest

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import BootstrapError
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import delay
from kafkaclient.wire.metadata import MetadataCall
from tests.producer.support import now

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETUP_S = 10  # the default of socket.connection.setup.timeout.ms


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listening socket that nobody serves."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "{}:{}".format(*server.getsockname())


async def _connect(sock: socket.socket, address: tuple[str, int]) -> None:
    """Virtual time does not wait until a busy kernel has connected the two."""
    sock.setblocking(True)
    sock.connect(address)
    sock.setblocking(False)


@pytest.mark.parametrize("limit_s", [2, _SETUP_S - 5, _SETUP_S + 5])
@pytest.mark.parametrize(
    ("protocol", "listener"), [("PLAINTEXT", "expects TLS"), ("SSL", "has no TLS")]
)
@virtual_time
async def test_a_server_that_accepts_the_connection_only(
    silent: str, protocol: str, listener: str, limit_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", _connect)
    options = {"bootstrap_servers": silent, "security_protocol": protocol}
    producer = Producer(**options, max_block_ms=limit_s * 1000)  # type: ignore[arg-type]
    admin = Admin(**options, default_api_timeout_ms=limit_s * 1000)  # type: ignore[arg-type]
    reason = (
        f"bootstrap server {silent} accepted the connection and did not answer.*; perhaps it is "
        rf"not a Kafka broker, its listener {listener} \(see security.protocol\), or it is paused"
    )
    for client in (producer, admin):
        with pytest.raises(BootstrapError, match=reason):
            await client.start()


@virtual_time
async def test_a_broker_that_does_not_answer_a_request() -> None:
    fake = FakeCluster(1)
    fake.control(MetadataCall.api_key, delay(60))
    producer = Producer(fake.bootstrap, dialer=fake, clock=now, max_block_ms=2000)
    reason = "bootstrap server fake-0:9092 is connected and did not answer a request"
    with pytest.raises(BootstrapError, match=reason):
        await producer.start()


@virtual_time
async def test_a_server_that_is_not_there() -> None:
    fake = FakeCluster(1)
    fake.stall_broker(0, swallow_dials=True)
    producer = Producer(fake.bootstrap, dialer=fake, clock=now, max_block_ms=5000)
    reason = re.escape(f"bootstrap server {fake.bootstrap} could not be connected; check that it")
    with pytest.raises(BootstrapError, match=reason):
        await producer.start()
