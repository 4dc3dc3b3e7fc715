"""Connections in memory: pairs of transports, and listeners that accept them.

The transports keep asyncio's contract. Data arrives in a later iteration of the loop, never inside
``write``. If the peer does not read, the buffer fills and the writer has to pause. A close delivers
the buffered data first, an abort drops it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.types import Buffer


# --- A pair of connected transports in memory, for protocols that expect a socket -----------------

_SOCKET_BUFFER = 128 * 1024  # bytes that a kernel buffers before the transport does
_HIGH_WATER = 64 * 1024  # bytes


class MemoryTransport(asyncio.Transport):
    """One end of a connection. ``one_way_s`` returns the latency in seconds of each write.

    A delivery has at most ``chunk_size`` bytes.
    """

    _peer: MemoryTransport

    def __init__(self, peername: tuple[str, int], one_way_s: Callable[[], float]) -> None:
        super().__init__({"peername": peername})
        self.chunk_size = 256 * 1024
        self._loop = asyncio.get_running_loop()
        self._one_way_s = one_way_s
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self._outgoing: deque[tuple[float, bytes]] = deque()  # (due, data)
        self._outgoing_bytes = 0
        self._delivery: asyncio.Handle | None = None
        self._reading = True
        self._writing_paused = False
        self._closing = False  # closed by either side
        self._lost = False  # connection_lost is called or scheduled
        self._finished = False  # no more data reaches the peer
        self.set_write_buffer_limits()

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol of this end and call its ``connection_made``."""
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data: Buffer) -> None:
        if self._closing or not data:
            return
        # Copy the data as a kernel does: the writer may reuse its buffer.
        self._outgoing.append((self._loop.time() + self._one_way_s(), bytes(data)))
        self._outgoing_bytes += len(data)
        self._schedule_delivery()
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return max(0, self._outgoing_bytes - _SOCKET_BUFFER)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else _HIGH_WATER if low is None else 4 * low
        self._low = low if low is not None else self._high // 4

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._peer._schedule_delivery()

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self.get_write_buffer_size():
            self._lose(None)  # the kernel delivers the rest
        self._schedule_delivery()
        self._peer._schedule_delivery()  # drops the peer's unread data

    def abort(self) -> None:
        self._end(None)
        self._peer._end(ConnectionResetError("connection reset by peer"))

    def _end(self, error: OSError | None) -> None:
        self._drop_outgoing()
        self._closing = self._finished = True
        self._lose(error)

    def _schedule_delivery(self) -> None:
        if self._delivery is not None or self._finished:
            return
        due = self._outgoing[0][0] if self._outgoing else 0.0
        if due > self._loop.time():
            self._delivery = self._loop.call_at(due, self._deliver)
        else:
            self._delivery = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivery = None
        peer = self._peer
        if peer._closing:
            self._drop_outgoing()
        elif not peer._reading:
            return
        elif self._outgoing:
            peer._receive(self._take_chunk())
            self._maybe_resume_writing()
        if self._outgoing:
            self._schedule_delivery()
        elif self._closing and not self._finished:
            self._finished = True
            self._lose(None)
            peer._end_of_stream()

    def _take_chunk(self) -> bytes:
        _, data = self._outgoing.popleft()
        if len(data) > self.chunk_size:
            self._outgoing.appendleft((0.0, data[self.chunk_size :]))
            data = data[: self.chunk_size]
        self._outgoing_bytes -= len(data)
        return data

    def _receive(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data and not self._closing:
                buffer = memoryview(cast("Any", protocol.get_buffer(len(data))))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                protocol.buffer_updated(size)
                data = data[size:]
        else:
            cast("asyncio.Protocol", protocol).data_received(data)

    def _end_of_stream(self) -> None:
        if self._closing:
            return
        protocol = cast("asyncio.Protocol", self._protocol)
        if not protocol.eof_received():
            self.close()

    def _maybe_resume_writing(self) -> None:
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _drop_outgoing(self) -> None:
        self._outgoing.clear()
        self._outgoing_bytes = 0
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None

    def _lose(self, error: OSError | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._protocol.connection_lost, error)


def connect(
    left_name: tuple[str, int], right_name: tuple[str, int], one_way_s: Callable[[], float]
) -> tuple[MemoryTransport, MemoryTransport]:
    """Two connected transports. The names are the peers' addresses."""
    left, right = MemoryTransport(left_name, one_way_s), MemoryTransport(right_name, one_way_s)
    left._peer, right._peer = right, left
    return left, right


# --- A fake broker's TCP port on 127.0.0.1 --------------------------------------------------------

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
