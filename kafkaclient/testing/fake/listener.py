"""A fake broker's TCP port on 127.0.0.1."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "127.0.0.1"
_BACKLOG = 128  # connections that the kernel accepts before the broker does


class Listener:
    """A port that accepts connections between :meth:`open` and :meth:`close`.

    Make it in the event loop that serves the connections. A closed port refuses connections, and
    stays reserved: its socket is bound, but does not listen. ``new_connection`` makes the protocol
    of each connection.
    """

    def __init__(self, new_connection: Callable[[], asyncio.Protocol]) -> None:
        self._new_connection = new_connection
        self._loop = asyncio.get_running_loop()
        self._accepting: set[asyncio.Task[object]] = set()
        self._socket = _bound(0)
        self._is_open = False
        self.port: int = self._socket.getsockname()[1]

    def open(self) -> None:
        """Accept connections."""
        if not self._is_open:
            self._is_open = True
            self._socket.listen(_BACKLOG)
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Refuse connections. Accepted connections stay open."""
        if self._is_open:
            self._stop_listening()
            self._socket = _bound(self.port)

    async def end(self) -> None:
        """Give the port back. Accepted connections stay open."""
        self._stop_listening()
        if self._accepting:
            await asyncio.wait(self._accepting)

    def _stop_listening(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            return  # the client has given up
        accepted.setblocking(False)
        connecting = self._loop.connect_accepted_socket(self._new_connection, accepted)
        task: asyncio.Task[object] = self._loop.create_task(connecting)
        self._accepting.add(task)
        task.add_done_callback(partial(self._connected, accepted))

    def _connected(self, accepted: socket.socket, task: asyncio.Task[object]) -> None:
        self._accepting.discard(task)
        if task.cancelled() or task.exception() is not None:
            accepted.close()


def _bound(port: int) -> socket.socket:
    """A socket that is bound to the port, or to a free one for 0, and does not listen yet."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
    except BaseException:
        made.close()
        raise
    return made
