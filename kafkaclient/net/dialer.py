"""Opening connections: the one place that creates sockets."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakSet

from kafkaclient.errors import SslAuthenticationError
from kafkaclient.net.fork import guard
from kafkaclient.net.tls_failures import explain_tls_error, is_plain_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkaclient.net.tls import TlsContexts

__all__ = ["Dialer", "TcpDialer"]

P = TypeVar("P", bound=asyncio.Protocol)

_HEAD_START_S = 0.25
"""How long an address is tried alone before the next one is tried beside it (RFC 8305)."""

_GOODBYE_S = 1.0
"""How long the peer has to confirm the end of a TLS connection."""

_USE_SYSTEM_DEFAULT = -1


class Dialer(Protocol):
    """How a connection is made; everything above works on the transport it returns.

    Whatever a transport needs before it carries Kafka requests (resolving, a TLS handshake)
    happens inside :meth:`dial`.
    """

    async def dial(
        self, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Connect and return the ready transport with the protocol that ``factory`` made.

        Raises :class:`OSError` when no address of the host could be reached, and
        :class:`~kafkaclient.errors.SslAuthenticationError` when TLS failed for a reason that will
        not go away by itself. Sets no time limit of its own; a cancelled dial leaves nothing open.
        """
        ...


class TcpDialer:
    """TCP, and with ``tls`` TLS on top of it.

    Names are resolved anew on every call, because brokers change their addresses (KIP-899), and
    every address is tried, a fresh one each 250 ms, so that a black-holed one delays the others
    hardly at all. A dead peer is noticed by TCP keepalive and, on Linux, ``TCP_USER_TIMEOUT``.
    A forked child has nothing of it: it can open no connection, and what it does to those open
    reaches no broker.

    ``send_buffer_bytes`` and ``receive_buffer_bytes`` size the socket's buffers
    (``send.buffer.bytes``, default 128 KB, and ``receive.buffer.bytes``, default 32 KB); -1
    leaves them to the system. ``user_timeout_ms`` is how long written data may stay
    unacknowledged by the peer's kernel, default 30 s.

    The certificate must be for ``host`` as given to :meth:`dial`: the advertised one.
    """

    def __init__(
        self,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = 32_768,
        *,
        user_timeout_ms: int = 30_000,
        tls: TlsContexts | None = None,
    ) -> None:
        self._tls = tls
        self._options = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        ]
        if send_buffer_bytes != _USE_SYSTEM_DEFAULT:
            self._options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes))
        if receive_buffer_bytes != _USE_SYSTEM_DEFAULT:
            self._options.append((socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes))
        for name, value in (
            ("TCP_KEEPIDLE", 30),
            ("TCP_KEEPINTVL", 10),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", user_timeout_ms),
        ):
            option = getattr(socket, name, None)  # not every system has them
            if option is not None:
                self._options.append((socket.IPPROTO_TCP, option, value))
        self._open: WeakSet[socket.socket] = WeakSet()
        self._forked = False
        guard(self)

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.fork.Forkable`.

        The child's descriptors are pointed elsewhere rather than closed: an event loop still knows
        their numbers, and a collector may close them once more. And the parent's connections end
        when the parent closes them, not when the last child does.
        """
        self._forked = True
        nowhere = os.open(os.devnull, os.O_RDWR)
        for sock in list(self._open):
            if sock.fileno() >= 0:
                os.dup2(nowhere, sock.fileno(), inheritable=False)
        os.close(nowhere)

    async def dial(
        self, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """See :meth:`Dialer.dial`."""
        if self._tls is None:
            return await self.dial_plain(host, port, factory)
        context = self._tls.context()
        sock = await self._connect_any(await _resolve(host, port))
        try:
            return await asyncio.get_running_loop().create_connection(
                factory,
                sock=sock,
                ssl=context,
                server_hostname=host,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                await self._explain(error, host, port)
            raise

    async def dial_plain(
        self, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """:meth:`dial`, without TLS."""
        sock = await self._connect_any(await _resolve(host, port))
        try:
            loop = asyncio.get_running_loop()
            transport, protocol = await loop.create_connection(factory, sock=sock)
        except BaseException:
            sock.close()
            raise
        return transport, protocol

    async def _explain(self, error: OSError, host: str, port: int) -> None:
        """Raise SslAuthenticationError if the cause of a failed handshake is clear."""
        why = explain_tls_error(error)
        # A Kafka broker that does not expect TLS takes its first bytes for the size of a request,
        # finds it too large and hangs up; so does one that is just being stopped.
        hung_up = isinstance(error, (ConnectionError, ssl.SSLEOFError))
        if hung_up and await is_plain_kafka(partial(self.dial_plain, host, port)):
            why = (
                "it is a listener without encryption; is security.protocol right, and the port "
                "that of an SSL or SASL_SSL listener?"
            )
        if why is not None:
            raise SslAuthenticationError(f"TLS with {host}:{port} failed: {why}") from error

    async def _connect_any(self, addresses: Sequence[_Address]) -> socket.socket:
        """The first socket to connect; the attempts start staggered and race."""
        if len(addresses) == 1:
            return await self._connect(addresses[0])
        waiting = list(reversed(addresses))
        racing: set[asyncio.Task[socket.socket]] = set()
        errors: list[str] = []
        try:
            while waiting or racing:
                if waiting:
                    racing.add(asyncio.create_task(self._connect(waiting.pop())))
                done, _ = await asyncio.wait(
                    racing,
                    timeout=_HEAD_START_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for attempt in done:
                    racing.remove(attempt)
                    try:
                        return attempt.result()
                    except OSError as error:
                        errors.append(str(error))
        finally:
            for attempt in racing:
                attempt.cancel()
                attempt.add_done_callback(_close_late_socket)
        raise OSError("; ".join(errors) or "the name has no address")

    async def _connect(self, address: _Address) -> socket.socket:
        family, kind, protocol, _, where = address
        if self._forked:
            raise OSError("a forked child cannot use its parent's producer")
        sock = socket.socket(family, kind, protocol)
        self._open.add(sock)
        try:
            sock.setblocking(False)
            for option in self._options:
                sock.setsockopt(*option)
            await asyncio.get_running_loop().sock_connect(sock, where)
        except BaseException:
            sock.close()
            raise
        return sock


_Address = tuple[
    socket.AddressFamily,
    socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]
"""One entry of getaddrinfo's answer."""


async def _resolve(host: str, port: int) -> Sequence[_Address]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # A literal address needs no resolver, and so no thread.
    return socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    )


def _close_late_socket(attempt: asyncio.Task[socket.socket]) -> None:
    """An attempt that lost the race may have connected before it could be cancelled."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
