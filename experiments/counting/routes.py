"""Connections that go through a proxy of the instance's own, so that it alone can be cut off."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from kafkaclient.testing.proxy.fault_proxy import FaultProxy

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Mapping, Sequence

__all__ = ["RoutedLoop", "Routes"]


class RoutedLoop(asyncio.SelectorEventLoop):
    """An event loop that connects to the port ``ports[p]`` where port p was asked for.

    Brokers advertise one address to all clients. The operating system's connections of one process
    are told apart here, without rights of an administrator.
    """

    def __init__(self, ports: Mapping[int, int]) -> None:
        super().__init__()
        self._ports = dict(ports)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        host, port, *rest = address
        await super().sock_connect(sock, (host, self._ports.get(port, port), *rest))


class Routes:
    """An instance's proxies, one for each broker."""

    def __init__(self, proxies: Mapping[int, FaultProxy]) -> None:
        self._proxies = proxies

    @property
    def ports(self) -> dict[int, int]:
        """A broker's port -> the port of its proxy."""
        return {port: proxy.port for port, proxy in self._proxies.items()}

    def stall(self) -> None:
        """Forward nothing until :meth:`heal`, as a network that drops every packet."""
        for proxy in self._proxies.values():
            proxy.stall()

    def heal(self) -> None:
        """Forward again, also what arrived meanwhile."""
        for proxy in self._proxies.values():
            proxy.heal()

    @staticmethod
    @asynccontextmanager
    async def opened(addresses: Sequence[tuple[str, int]]) -> AsyncIterator[Routes]:
        """Proxies in front of the brokers at ``addresses``, until the block ends."""
        async with AsyncExitStack() as stack:
            yield Routes(
                {
                    port: await stack.enter_async_context(FaultProxy(host, port))
                    for host, port in addresses
                }
            )
