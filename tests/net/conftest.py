"""A transport in memory, so that a test is both the event loop's and the broker's hand."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from kafkaclient.net.connection import Connection
from kafkaclient.net.pending_request import PendingRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; loses its connection the way real transports do, one tick later."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written: list[bytes] = []
        self.write_error: Exception | None = None
        self.closing = False
        self.aborted = False

    def write(self, data: Any) -> None:
        if self.write_error is not None:
            raise self.write_error
        self.written.append(bytes(data))

    def writelines(self, buffers: Iterable[Any]) -> None:
        self.write(b"".join(buffers))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.lose(None)

    def abort(self) -> None:
        self.aborted = True
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


class CountingMeter:
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def connection_opened(self, node_id: int) -> None:
        self.events.append(("opened", node_id))

    def connection_closed(self, node_id: int) -> None:
        self.events.append(("closed", node_id))

    def request_sent(self, node_id: int, nbytes: int) -> None:
        self.events.append(("sent", node_id, nbytes))

    def request_done(
        self, node_id: int, api: str, nbytes: int, latency_s: float, error: Exception | None
    ) -> None:
        self.events.append(("failed" if error else "received", node_id, nbytes, latency_s))


class Wire:
    """A connection, its transport, and a log of what became of the requests."""

    def __init__(self, **options: Any) -> None:
        self.closed_with: list[Any] = []
        self.writable_again = 0
        self.done: list[tuple[Any, bytes | None, Exception | None]] = []
        self.meter = CountingMeter()
        self.connection = Connection(
            node="broker 1 (b:9092)",
            client_id="test",
            request_timeout_s=options.pop("request_timeout_s", 30.0),
            node_id=1,
            on_close=lambda _, error: self.closed_with.append(error),
            on_writable=lambda _: setattr(self, "writable_again", self.writable_again + 1),
            meter=self.meter,
            **options,
        )
        self.transport = MemoryTransport(self.connection)

    def open(self) -> Wire:
        self.connection.connection_made(self.transport)
        return self

    def send(self, label: Any = None, api: str = "Produce", **options: Any) -> int:
        """Send a request whose outcome lands in ``done`` under ``label`` (default: its id)."""
        correlation_id = self.connection.next_correlation_id()
        name = correlation_id if label is None else label

        def on_done(_: Any, payload: memoryview | None, error: Exception | None) -> None:
            self.done.append((name, None if payload is None else bytes(payload), error))

        request = PendingRequest(correlation_id, on_done, self.connection._clock(), api)
        self.connection.send([b"request"], request, **options)
        return correlation_id

    def receive(self, data: bytes) -> None:
        self.connection.data_received(data)

    @staticmethod
    def frame(correlation_id: int, payload: bytes = b"") -> bytes:
        return struct.pack(">ii", 4 + len(payload), correlation_id) + payload

    def answer(self, correlation_id: int, payload: bytes = b"") -> None:
        self.receive(self.frame(correlation_id, payload))


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def make_wire() -> Callable[..., Wire]:
    """Builds an open :class:`Wire`; call it inside the test's event loop."""
    return lambda **options: Wire(**options).open()


@pytest.fixture(scope="session")
def new_wire() -> Callable[..., Wire]:
    """Like ``make_wire``, but the transport is not connected yet."""
    return Wire


@pytest.fixture(scope="session")
def settle() -> Callable[[], Any]:
    """Lets everything run that is ready."""
    return _settle
