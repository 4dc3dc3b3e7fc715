"""Connections over TLS to servers in this process, on both event loops."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import socket
import ssl
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import uvloop

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import BrokerConnectionError, SslAuthenticationError
from kafkaclient.net.connection import Connection
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.net.pending_request import PendingRequest
from kafkaclient.net.tls import TlsContexts
from kafkaclient.net.tls_failures import is_plain_kafka, is_tls
from kafkaclient.wire.codec import decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

HERE = "127.0.0.1"
LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
MEGABYTE = 1 << 20


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run


class Peer(asyncio.Protocol):
    """Answers ApiVersions, and every other request with its SHA-256."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.data = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server.peers.append(self)
        if self.server.deaf:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4:
            (size,) = struct.unpack_from(">i", self.data)
            if size > 100 * MEGABYTE:  # as a broker does with the beginning of a TLS handshake
                self.transport.close()
                return
            if len(self.data) < 4 + size:
                return
            frame = bytes(self.data[4 : 4 + size])
            del self.data[: 4 + size]
            if frame[:2] == b"\0\x12":
                request = decode_request(frame)
                answer = encode_response(18, request.version, request.correlation_id, api_keys=[])
            else:
                digest = hashlib.sha256(frame[4:]).digest()
                answer = struct.pack(">i", 4 + len(digest)) + frame[:4] + digest
            self.transport.write(answer)


class Server:
    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.peers: list[Peer] = []
        self.deaf = False

    async def __aenter__(self) -> Server:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Peer(self), HERE, 0, ssl=self.context)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for peer in self.peers:
            peer.transport.abort()
        await self.server.wait_closed()


def _server_context(
    authority: trustme.CA, *names: str, client: trustme.CA | None = None, **validity: Any
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or (HERE, "localhost")), **validity).configure_cert(context)
    if client is not None:
        client.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _dialer(authority: trustme.CA | None, **options: Any) -> TcpDialer:
    given = {"bootstrap.servers": "b:9092", "security.protocol": "SSL", **options}
    if authority is not None:
        given["ssl.truststore.certificates"] = authority.cert_pem.bytes().decode()
    config = ProducerConfig.build(given)
    return TcpDialer(tls=TlsContexts(config), server_name=config.ssl_endpoint_hostname)


async def _connect(dialer: TcpDialer, port: int, host: str = HERE, **more: Any) -> Connection:
    def factory() -> Connection:
        return Connection(
            node=f"broker 1 ({host}:{port})", client_id="test", request_timeout_s=30.0, **more
        )

    _, connection = await dialer.dial(host, port, factory)
    try:
        await connection.handshake()
    except BaseException:
        connection.abort()
        await connection.wait_closed()
        raise
    return connection


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_large_requests_pass_whole_and_in_order(
    run: Any, authority: trustme.CA, version: str
) -> None:
    async def main() -> None:
        answers: list[bytes] = []
        async with Server(_server_context(authority)) as server:
            dialer = _dialer(authority, **{"ssl.enabled.protocols": version})
            connection = await _connect(dialer, server.port)
            bodies = [bytes([n]) * size for n, size in enumerate((1, 16_384, MEGABYTE, 70_000))]
            for body in bodies:
                _send(connection, [memoryview(body)[:7], memoryview(body)[7:]], answers)
            await _until(lambda: len(answers) == len(bodies))
            assert answers == [hashlib.sha256(body).digest() for body in bodies]
            connection.close()
            await asyncio.wait_for(connection.wait_closed(), 20)

    run(main())


def test_a_peer_that_does_not_read_is_pushed_back_on(run: Any, authority: trustme.CA) -> None:
    async def main() -> None:
        answers: list[bytes] = []
        writable: list[bool] = []
        async with Server(_server_context(authority)) as server:
            connection = await _connect(
                _dialer(authority), server.port, on_writable=lambda c: writable.append(c.writable)
            )
            peer = server.peers[0]
            peer.transport.pause_reading()
            body = bytes(range(256)) * 4096
            sent = 0
            while connection.writable:
                _send(connection, [body], answers)
                sent += 1
                assert sent < 64  # somewhere the kernels' buffers end
                await asyncio.sleep(0)
            assert not answers
            assert not writable
            peer.transport.resume_reading()
            await _until(lambda: len(answers) == sent)
            assert answers == [hashlib.sha256(body).digest()] * sent
            assert writable == [True]
            connection.abort()
            await connection.wait_closed()

    run(main())


def test_a_connection_can_be_cut_while_it_writes(run: Any, authority: trustme.CA) -> None:
    async def main() -> None:
        errors: list[Any] = []
        async with Server(_server_context(authority)) as server:
            connection = await _connect(_dialer(authority), server.port)
            server.peers[0].transport.pause_reading()
            for _ in range(20):
                correlation_id = connection.next_correlation_id()
                request = PendingRequest(
                    correlation_id, lambda _, __, error: errors.append(error), connection._clock()
                )
                connection.send([b"x" * MEGABYTE], request)
            connection.close()
            await asyncio.wait_for(connection.wait_closed(), 20)
        assert len(errors) == 20
        assert all(isinstance(error, BrokerConnectionError) for error in errors)

    run(main())


def test_mutual_tls(run: Any, authority: trustme.CA) -> None:
    clients = trustme.CA()
    leaf = clients.issue_cert("client@example.org")
    identity = {
        "ssl.keystore.certificate.chain": leaf.cert_chain_pems[0].bytes().decode(),
        "ssl.keystore.key": leaf.private_key_pem.bytes().decode(),
    }

    async def main() -> None:
        async with Server(_server_context(authority, client=clients)) as server:
            connection = await _connect(_dialer(authority, **identity), server.port)
            certificate = server.peers[0].transport.get_extra_info("peercert")
            assert ("email", "client@example.org") in certificate["subjectAltName"]
            connection.abort()
            await connection.wait_closed()

    run(main())


def test_the_name_that_is_verified_is_the_one_that_is_dialled(
    run: Any, authority: trustme.CA
) -> None:
    async def main() -> None:
        async with Server(_server_context(authority, "localhost")) as server:
            connection = await _connect(_dialer(authority), server.port, "localhost")
            connection.abort()
            with pytest.raises(SslAuthenticationError, match="IP address mismatch"):
                await _connect(_dialer(authority), server.port, HERE)
            unchecked = _dialer(authority, **{"ssl.endpoint.identification.algorithm": ""})
            connection = await _connect(unchecked, server.port, HERE)
            connection.abort()
            await connection.wait_closed()

    run(main())


def test_another_name_than_the_address_is_verified_and_sent(
    run: Any, authority: trustme.CA
) -> None:
    asked: list[str | None] = []
    name = {"ssl.endpoint.hostname": "broker.example.org"}

    async def main() -> None:
        context = _server_context(authority, "broker.example.org")
        context.sni_callback = lambda _socket, sent, _context: asked.append(sent)
        async with Server(context) as server:
            connection = await _connect(_dialer(authority, **name), server.port, HERE)
            connection.abort()
            await connection.wait_closed()
            assert asked == ["broker.example.org"]
            with pytest.raises(SslAuthenticationError, match=r"mismatch.*ssl_endpoint_hostname"):
                await _connect(_dialer(authority), server.port, HERE)
            unchecked = _dialer(authority, **name, **{"ssl.endpoint.identification.algorithm": ""})
            connection = await _connect(unchecked, server.port, HERE)
            connection.abort()
            await connection.wait_closed()
        assert asked == ["broker.example.org", None, "broker.example.org"]

    run(main())


def test_the_dot_at_the_end_of_an_absolute_name_is_not_part_of_what_is_verified(
    run: Any, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server refuses the whole handshake if the name that it is sent ends with a dot."""
    asked: list[str | None] = []
    look_up = socket.getaddrinfo
    monkeypatch.setattr(
        *(socket, "getaddrinfo"),
        lambda host, *more, **options: look_up(host.removesuffix("."), *more, **options),
    )

    async def main() -> None:
        context = _server_context(authority, "localhost")
        context.sni_callback = lambda _socket, sent, _context: asked.append(sent)
        async with Server(context) as server:
            named = _dialer(authority, **{"ssl.endpoint.hostname": "localhost."})
            for dialer, host in ((_dialer(authority), "localhost."), (named, HERE)):
                connection = await _connect(dialer, server.port, host)
                connection.abort()
                await connection.wait_closed()
        assert asked == ["localhost", "localhost"]

    run(main())


def test_a_certificate_for_the_address_does_not_do_for_another_name(
    run: Any, authority: trustme.CA
) -> None:
    async def main() -> None:
        async with Server(_server_context(authority)) as server:
            dialer = _dialer(authority, **{"ssl.endpoint.hostname": "broker.example.org"})
            words = r"mismatch.*it must name ssl_endpoint_hostname=broker\.example\.org"
            with pytest.raises(SslAuthenticationError, match=words):
                await _connect(dialer, server.port, HERE)

    run(main())


# --- failures -----------------------------------------------------------------------------------


def _scenario(case: str, authority: trustme.CA) -> tuple[ssl.SSLContext | None, dict[str, Any]]:
    """How the server is set up, and what options the client has."""
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    strict = _server_context(authority, client=trustme.CA())
    old = _server_context(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    contexts: dict[str, ssl.SSLContext | None] = {
        "expired": _server_context(
            authority, not_before=LONG_AGO, not_after=LONG_AGO + datetime.timedelta(days=1)
        ),
        "future": _server_context(authority, not_before=tomorrow),
        "elsewhere": _server_context(authority, "elsewhere.example.org"),
        "no certificate": strict,
        "no certificate 1.2": strict,
        "old": old,
        "plain": None,
        "http": None,
    }
    versions = {"no certificate 1.2": "TLSv1.2", "old": "TLSv1.3"}
    options = {"ssl.enabled.protocols": versions[case]} if case in versions else {}
    return contexts.get(case, _server_context(authority)), options


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("expired", "certificate has expired; it must be renewed on the broker"),
        ("future", "not yet valid.*; check the clocks"),
        ("unknown", "name the certificate of the authority that issued it"),
        ("elsewhere", "IP address mismatch.*advertised.listeners"),
        ("no certificate", "ssl_keystore_location"),
        ("no certificate 1.2", "ssl_keystore_location"),
        ("old", "no TLS version in common; see ssl_enabled_protocols"),
        ("plain", "it is a listener without encryption; is security.protocol right"),
        ("http", "does not speak TLS; is security.protocol right"),
    ],
)
def test_failures_name_their_cause(run: Any, authority: trustme.CA, case: str, words: str) -> None:
    context, options = _scenario(case, authority)
    trusted = trustme.CA() if case == "unknown" else authority

    async def main() -> None:
        async with Server(context) as server:
            if case in ("http", "old") or case.startswith("no certificate"):
                server.server.close()
                answer = _http if case == "http" else partial(_shake_hands, context)
                server.server = await asyncio.start_server(answer, HERE, server.port)
            with pytest.raises(SslAuthenticationError, match=words):
                async with asyncio.timeout(30):
                    await _connect(_dialer(trusted, **options), server.port)

    run(main())


async def _shake_hands(
    context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """As brokers do it: with a word of why it failed, which asyncio's own servers do not send."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    try:
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            finally:
                writer.write(outgoing.read())
            data = await reader.read(65_536)
            if not data:
                break
            incoming.write(data)
    except ssl.SSLError:
        await writer.drain()
    writer.close()


async def _http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    writer.close()


def test_a_peer_that_hangs_up_may_be_back(run: Any, authority: trustme.CA) -> None:
    """A broker that is being stopped does the same; only what is certain is final."""

    async def main() -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(hang_up, HERE, 0)
        with pytest.raises(OSError, match=r"reset|closed|EOF|lost|abort") as caught:
            await _connect(_dialer(authority), server.sockets[0].getsockname()[1])
        assert not isinstance(caught.value, SslAuthenticationError)
        server.close()
        await server.wait_closed()

    run(main())


def test_a_cancelled_handshake_leaves_nothing_open(run: Any, authority: trustme.CA) -> None:
    async def main() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1000):
                began.set()
            ended.set()
            writer.close()

        server = await asyncio.start_server(stay_silent, HERE, 0)
        port = server.sockets[0].getsockname()[1]
        connecting = asyncio.create_task(_connect(_dialer(authority), port))
        await asyncio.wait_for(began.wait(), 20)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await asyncio.wait_for(ended.wait(), 20)
        server.close()
        await server.wait_closed()

    run(main())


def test_what_speaks_there_can_be_found_out(run: Any, authority: trustme.CA) -> None:
    async def main() -> None:
        dialer = TcpDialer()
        async with Server(_server_context(authority)) as tls, Server(None) as plain:
            for server, encrypted in ((tls, True), (plain, False)):

                async def connect(factory: Any, port: int = server.port) -> Any:
                    return await dialer.dial_plain(HERE, port, factory)

                assert await is_tls(connect) is encrypted
                assert await is_plain_kafka(connect) is not encrypted

        async def refused(_: Any) -> Any:
            raise ConnectionRefusedError

        assert not await is_tls(refused)
        assert not await is_plain_kafka(refused)

    run(main())


def test_certificates_are_read_again_on_reconnect(
    run: Any, authority: trustme.CA, tmp_path: Path
) -> None:
    other = trustme.CA()
    store = tmp_path / "ca.pem"
    other.cert_pem.write_to_path(store)

    async def main() -> None:
        dialer = _dialer(None, **{"ssl.truststore.location": store})
        async with Server(_server_context(authority)) as server:
            with pytest.raises(SslAuthenticationError, match="authority"):
                await _connect(dialer, server.port)
            authority.cert_pem.write_to_path(store)
            connection = await _connect(dialer, server.port)
            connection.abort()
            await connection.wait_closed()

    run(main())


def _send(connection: Connection, buffers: list[Any], answers: list[bytes]) -> None:
    correlation_id = connection.next_correlation_id()
    size = 4 + sum(map(len, buffers))
    header = struct.pack(">ii", size, correlation_id)

    def done(_: Any, payload: memoryview | None, error: Exception | None) -> None:
        assert error is None
        assert payload is not None
        answers.append(bytes(payload))

    request = PendingRequest(correlation_id, done, connection._clock())
    connection.send([header, *buffers], request)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
