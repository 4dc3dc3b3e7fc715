"""Opens connections; the only module that creates sockets."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from kafkaclient.errors import SslAuthenticationError
from kafkaclient.net.off_loop import OffLoop, guard
from kafkaclient.net.tls_failures import explain_tls_error, is_plain_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkaclient.net.tls import TlsContexts

P = TypeVar("P", bound=asyncio.Protocol)

_HEAD_START_S = 0.25
"""The delay after which the next address is tried in parallel (RFC 8305)."""

_GOODBYE_S = 1.0
"""The time limit for the peer to confirm the end of a TLS connection."""

_USE_SYSTEM_DEFAULT = -1


class Dialer(Protocol):
    """Opens connections. Name resolution and TLS handshake are part of :meth:`dial`."""

    async def dial(
        self, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Connect; returns the ready transport, and the protocol that ``factory`` made.

        Raises :class:`OSError` if no address of the host can be reached, and
        :class:`~kafkaclient.errors.SslAuthenticationError` if TLS failed for a permanent reason.
        There is no time limit. A cancelled dial leaves nothing open.
        """
        ...


class TcpDialer:
    """Opens TCP connections, with TLS if ``tls`` is given.

    Each call resolves the name again, because brokers change their addresses (KIP-899). It tries
    all addresses, a further one every 250 ms, so that an unreachable address delays the others
    little. TCP keepalive and, on Linux, ``TCP_USER_TIMEOUT`` detect a dead peer. A forked child
    cannot open connections, and cannot reach a broker through the parent's.

    ``send_buffer_bytes`` and ``receive_buffer_bytes`` are the sizes of the socket's buffers
    (``send.buffer.bytes`` and ``receive.buffer.bytes``); -1 means the system's default.
    ``user_timeout_ms``: how long sent data may stay unacknowledged by the peer's kernel.

    The broker's certificate must be valid for ``server_name``, or for the ``host`` given to
    :meth:`dial` if ``server_name`` is None.
    """

    def __init__(
        self,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = 32_768,
        *,
        user_timeout_ms: int = 30_000,
        tls: TlsContexts | None = None,
        server_name: str | None = None,
    ) -> None:
        self._tls = tls
        self._server_name = server_name
        self._look_ups: defaultdict[tuple[str, int], OffLoop[Sequence[_Address]]]
        self._look_ups = defaultdict(OffLoop)
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
        """See :class:`~kafkaclient.net.off_loop.Forkable`.

        The child's descriptors are redirected to the null device rather than closed: an event loop
        still uses their numbers, and the garbage collector may close them again. The parent's
        connections then end when the parent closes them, not when the last child does.
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
        sock = await self._connect_any(await self._resolve(host, port))
        try:
            return await _connected(
                factory,
                sock,
                ssl=context,
                # No certificate names the dot at the end of an absolute DNS name.
                server_hostname=(self._server_name or host).removesuffix("."),
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except OSError as error:
            await self._explain(error, host, port)
            raise

    async def dial_plain(
        self, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """:meth:`dial`, without TLS."""
        return await _connected(factory, await self._connect_any(await self._resolve(host, port)))

    async def _explain(self, error: OSError, host: str, port: int) -> None:
        """Raise SslAuthenticationError if the cause of a failed handshake is known."""
        why = explain_tls_error(error, self._server_name)
        # A broker that does not expect TLS reads its first bytes as the size of a request, which is
        # too large, and closes the connection. A broker that is stopping closes it as well.
        hung_up = isinstance(error, (ConnectionError, ssl.SSLEOFError))
        if hung_up and await is_plain_kafka(partial(self.dial_plain, host, port)):
            why = (
                "it is a listener without encryption; is security.protocol right, and the port "
                "that of an SSL or SASL_SSL listener?"
            )
        if why is not None:
            raise SslAuthenticationError(f"TLS with {host}:{port} failed: {why}") from error

    async def _resolve(self, host: str, port: int) -> Sequence[_Address]:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            try:
                return await self._look_ups[host, port].run(look_up)
            except socket.gaierror as error:
                why = f"the name {host} cannot be resolved ({error.strerror})"
                raise socket.gaierror(error.errno, why) from error
        # A literal address needs no resolver, and therefore no thread.
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)

    async def _connect_any(self, addresses: Sequence[_Address]) -> socket.socket:
        """The first socket that connects; the attempts start one after the other and race."""
        if len(addresses) == 1:
            return await self._connect(addresses[0])
        waiting = list(reversed(addresses))
        racing: set[asyncio.Task[socket.socket]] = set()
        errors: list[OSError] = []
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
                        errors.append(error)
        finally:
            for attempt in racing:
                attempt.cancel()
                attempt.add_done_callback(_close_late_socket)
        refused = errors and all(isinstance(error, ConnectionRefusedError) for error in errors)
        kind = ConnectionRefusedError if refused else OSError
        whys = (error.strerror or str(error) for error in errors)
        raise kind("; ".join(whys) or "the name has no address")

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
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError) and error.errno:  # event loops' texts differ
                why = os.strerror(error.errno).lower()
                raise OSError(error.errno, f"{why} ({where[0]!s})") from error
            raise
        return sock


_Address = tuple[
    socket.AddressFamily,
    socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]
"""One entry of getaddrinfo's result."""


async def _connected(
    factory: Callable[[], P], sock: socket.socket, **tls: Any
) -> tuple[asyncio.Transport, P]:
    inode = _inode(sock)
    try:
        return await asyncio.get_running_loop().create_connection(factory, sock=sock, **tls)
    except BaseException:
        # If a peer resets the connection at once, uvloop closes the descriptor and leaves its
        # number in ``sock``, which would close the next file with this number.
        if _inode(sock) == inode:
            sock.close()
        else:
            sock.detach()
        raise


def _inode(sock: socket.socket) -> int | None:
    """What tells the socket from a later one with the same descriptor; None if it is closed."""
    try:
        return os.fstat(sock.fileno()).st_ino
    except OSError:
        return None


def _close_late_socket(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that connected before it could be cancelled."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
