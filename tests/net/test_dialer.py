"""Real sockets on the loopback address, and scripted ones where a broken network is needed."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import struct
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kafkaclient.net.dialer import TcpDialer
from kafkaclient.testing.clock import virtual_time

A, B, C = "192.0.2.1", "192.0.2.2", "192.0.2.3"


class Quiet(asyncio.Protocol):
    pass


async def _serve() -> tuple[asyncio.Server, int]:
    server = await asyncio.get_running_loop().create_server(Quiet, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_the_socket_is_set_up_for_requests() -> None:
    server, port = await _serve()
    threads = set(threading.enumerate())
    transport, protocol = await TcpDialer(131_072, user_timeout_ms=12_000).dial(
        "127.0.0.1", port, Quiet
    )
    try:
        assert isinstance(protocol, Quiet)
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 131_072
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12_000
        assert set(threading.enumerate()) <= threads  # a literal address needs no resolver thread
    finally:
        transport.close()
        server.close()
        await server.wait_closed()


async def test_a_name_is_resolved_and_every_address_tried() -> None:
    server, port = await _serve()
    transport, _ = await TcpDialer(-1, -1).dial("localhost", port, Quiet)
    transport.close()
    server.close()
    await server.wait_closed()


async def test_a_refused_connection_is_an_os_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await TcpDialer().dial("127.0.0.1", unused.getsockname()[1], Quiet)


async def test_an_application_that_fills_the_default_executor_delays_no_look_up(
    monkeypatch: Any,
) -> None:
    """And a name server that hangs takes one thread for a name, however often it is dialed."""
    gate, looked_up = threading.Event(), list[str]()
    look_up = socket.getaddrinfo

    def slow(host: str, *more: Any, **options: Any) -> Any:
        if host == "hangs.invalid":
            looked_up.append(host)
            gate.wait(10)
        return look_up("127.0.0.1", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    loop = asyncio.get_running_loop()
    taken = [loop.run_in_executor(None, gate.wait, 10) for _ in range(64)]
    server, port = await _serve()
    dialer = TcpDialer()
    try:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await dialer.dial("hangs.invalid", port, Quiet)
        transport, _ = await dialer.dial("answers.invalid", port, Quiet)
        transport.close()
        assert looked_up == ["hangs.invalid"]
    finally:
        gate.set()
        await asyncio.gather(*taken)
        server.close()
        await server.wait_closed()


async def test_where_all_addresses_refuse_the_connection_is_refused() -> None:
    server, port = await _serve()
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await TcpDialer().dial("localhost", port, Quiet)
    with pytest.MonkeyPatch.context() as patch:
        Network(patch, {A: ConnectionRefusedError("refused"), B: OSError("no route")})
        with pytest.raises(OSError, match=r"refused; no route") as caught:
            await TcpDialer().dial("kafka", 9092, Quiet)
        assert not isinstance(caught.value, ConnectionRefusedError)


async def test_a_name_that_does_not_resolve_is_an_os_error(monkeypatch: Any) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(OSError, match="not known"):
        await TcpDialer().dial("no.such.host.invalid", 9092, Quiet)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_peer_that_resets_at_once_costs_no_other_file(loop_factory: Any) -> None:
    """The error, and with it the socket, lives longer than the attempt."""
    server = socket.create_server(("127.0.0.1", 0))
    no_linger = struct.pack("ii", 1, 0)

    def reset_all() -> None:
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
                peer.close()

    async def dial() -> None:
        context = ssl.create_default_context()
        tls = SimpleNamespace(context=lambda: context)
        dialer = TcpDialer(tls=tls)  # type: ignore[arg-type]
        for _ in range(50):
            with pytest.raises(OSError) as failed:  # noqa: PT011 - its kind depends on the moment
                await dialer.dial("127.0.0.1", server.getsockname()[1], Quiet)
            others = os.pipe()
            del failed
            gc.collect()
            for other in others:
                os.close(other)  # raises if it has been closed

    threading.Thread(target=reset_all, daemon=True).start()
    with server, asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(dial())


async def test_a_factory_that_fails_leaves_no_socket_open() -> None:
    server, port = await _serve()

    def broken() -> Quiet:
        raise RuntimeError("no protocol")

    with pytest.raises(RuntimeError, match="no protocol"):
        await TcpDialer().dial("127.0.0.1", port, broken)
    gc.collect()  # an open socket would warn, and warnings are errors
    server.close()
    await server.wait_closed()


class Network:
    """Scripted addresses: how long each takes to connect, or None for never; or an error."""

    def __init__(self, monkeypatch: Any, script: dict[str, float | OSError | None]) -> None:
        self.started: list[tuple[str, float]] = []
        self.sockets: dict[str, socket.socket] = {}
        self._script = script
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)
        monkeypatch.setattr(loop, "sock_connect", self._connect)
        monkeypatch.setattr(loop, "create_connection", self._wrap)

    def _resolve(self, host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in self._script]

    async def _connect(self, sock: socket.socket, where: tuple[str, int]) -> None:
        address = where[0]
        self.started.append((address, asyncio.get_running_loop().time()))
        self.sockets[address] = sock
        outcome = self._script[address]
        if outcome is None:
            await asyncio.get_running_loop().create_future()
        elif isinstance(outcome, OSError):
            raise outcome
        else:
            await asyncio.sleep(outcome)

    async def _wrap(self, factory: Any, *, sock: socket.socket) -> tuple[Any, Any]:
        return sock, factory()

    def open_addresses(self) -> list[str]:
        return [address for address, sock in self.sockets.items() if sock.fileno() >= 0]


@virtual_time
async def test_a_dead_first_address_costs_a_quarter_of_a_second() -> None:
    with pytest.MonkeyPatch.context() as patch:
        network = Network(patch, {A: None, B: 0.01, C: 0.0})
        sock: Any
        sock, _ = await TcpDialer().dial("kafka", 9092, Quiet)
        assert asyncio.get_running_loop().time() == pytest.approx(0.26)
        await asyncio.sleep(0)
        assert network.open_addresses() == [B]
        assert [address for address, _ in network.started] == [A, B]
        sock.close()


@virtual_time
async def test_a_refused_address_costs_nothing() -> None:
    with pytest.MonkeyPatch.context() as patch:
        network = Network(patch, {A: ConnectionRefusedError("no"), B: 0.0})
        sock: Any
        sock, _ = await TcpDialer().dial("kafka", 9092, Quiet)
        assert asyncio.get_running_loop().time() == 0.0
        assert network.open_addresses() == [B]
        sock.close()


@virtual_time
async def test_all_addresses_are_in_the_error() -> None:
    with pytest.MonkeyPatch.context() as patch:
        network = Network(patch, {A: ConnectionRefusedError("refused"), B: OSError("unreachable")})
        with pytest.raises(OSError, match="refused; unreachable"):
            await TcpDialer().dial("kafka", 9092, Quiet)
        assert network.open_addresses() == []


@pytest.mark.parametrize("after", [0.0, 0.1, 0.3, 0.5, 0.7])
@virtual_time
async def test_a_cancelled_dial_leaves_nothing_open(after: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        network = Network(patch, {A: None, B: None, C: 0.0001})
        dial = asyncio.create_task(TcpDialer().dial("kafka", 9092, Quiet))
        await asyncio.sleep(after)
        dial.cancel()
        await asyncio.wait({dial})
        await asyncio.sleep(0.01)
        if dial.cancelled():
            assert network.open_addresses() == []
        else:
            sock: Any = dial.result()[0]
            assert network.open_addresses() == [C]
            sock.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
