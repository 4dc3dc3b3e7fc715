"""One proxied connection: two sockets, and the Kafka frames between them.

Bytes are forwarded as they arrive. The proxy parses only the first bytes of each frame, and splits
a chunk only if a fault applies to a frame that begins in the chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, cast

from kafkaclient.errors import ProtocolError
from kafkaclient.testing.proxy.faults import (
    DelayLine,
    Faults,
    Frame,
    FrameFault,
    ProxyCounters,
    SpoiledFrame,
)
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Callable

_REQUEST_HEADER = struct.Struct(">ihhi")  # size, API key, version, correlation id
_RESPONSE_HEADER = struct.Struct(">ii")  # size, correlation id
_FIRST_FLEXIBLE_PRODUCE = 9
_LONGEST_HEADER = 70_000  # bytes: two strings of at most 32 KiB, and a few fields

_WRITE_HIGH_WATER = 1 << 20  # bytes
_LINE_HIGH_WATER = 32 << 20  # bytes

# The reasons for which an end does not read.
_CONNECTING, _PEER_FULL, _LINE_FULL, _STALLED = 1, 2, 4, 8
_FREEZING = _CONNECTING | _STALLED  # the end does not forward bytes that it has read either


class _End(asyncio.Protocol):
    """One socket of a link, which forwards the bytes that it reads to the peer's socket."""

    peer: _End
    transport: asyncio.Transport | None = None

    def __init__(self, link: ProxiedConnection, frame_faults: list[FrameFault]) -> None:
        self._link = link
        self._frame_faults = frame_faults
        self._line = DelayLine(link.clock, self._write_to_peer, self._line_ended)
        self._holds = 0
        # Missing bytes of the current frame. Encrypted bytes are one frame without an end.
        self._rest = sys.maxsize if link.encrypted else 0
        self._partial = b""  # the start of a frame, too short to parse
        self._spoiled: SpoiledFrame | None = None
        self._finished = False

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._obey_holds()
        # uvloop starts to read after this method, even if the method paused reading.
        asyncio.get_running_loop().call_soon(self._obey_holds)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._finish()
        self._link.end_lost()

    def pause_writing(self) -> None:
        self.peer.hold(_PEER_FULL)

    def resume_writing(self) -> None:
        self.peer.release(_PEER_FULL)

    def data_received(self, data: bytes) -> None:
        if self._finished:
            return
        self._count_bytes(len(data))
        if self._partial:
            data, self._partial = self._partial + data, b""
        end = len(data)
        start = 0  # the first byte that is not forwarded yet
        position = self._rest  # the start of the next frame
        if self._spoiled is not None:
            start = min(position, end)
            self._pass(data[:start], whole_frame=position <= end)
        while position < end and not self._finished:
            header = self._read_header(data, position)
            if header is None:
                self._partial = data[position:]
                end = position
                break
            size, spacing, fault = header
            if spacing or fault is not None:
                if start < position:
                    self._pass(data[start:position])
                start = min(position + size, end)
                self._spoiled = None if fault is None else SpoiledFrame(fault, size)
                self._pass(
                    data[position:start], spacing=spacing, whole_frame=position + size <= end
                )
            position += size
        if start < end and not self._finished:
            self._pass(data if start == 0 and end == len(data) else data[start:end])
        self._rest = max(0, position - end)

    # --- pausing and resuming reading ---

    def hold(self, reason: int) -> None:
        self._holds |= reason
        if reason & _FREEZING:
            self._line.freeze()
        self._obey_holds()

    def release(self, reason: int) -> None:
        if not self._holds & reason:
            return
        self._holds &= ~reason
        if not self._holds & _FREEZING:
            self._line.thaw()
        self._obey_holds()

    def _obey_holds(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not self._holds:
            transport.resume_reading()
        elif transport.is_reading():
            transport.pause_reading()

    # --- forwarding ---

    @abstractmethod
    def _count_bytes(self, size: int) -> None: ...

    @abstractmethod
    def _read_header(self, data: bytes, start: int) -> tuple[int, float, FrameFault | None] | None:
        """(frame size, delay, fault) of the frame at ``start``; None if bytes are missing."""

    def _pass(self, data: bytes, *, spacing: float = 0.0, whole_frame: bool = False) -> None:
        """Forward bytes of one frame. ``whole_frame``: they reach the end of the frame."""
        spoiled = self._spoiled
        if spoiled is not None:
            data = spoiled.apply(data)
        if data:
            faults = self._link.faults
            if faults.overlapping:
                self._line.push(data, faults.one_way_s + spacing, 0.0)
            else:
                self._line.push(data, faults.one_way_s, spacing)
            if self._line.size > _LINE_HIGH_WATER:
                self.hold(_LINE_FULL)
        if spoiled is not None:
            if spoiled.cuts_here:
                self._link.reset |= spoiled.reset
                self._finish()
            elif whole_frame:
                self._spoiled = None

    def _claim(self, frame: Frame) -> FrameFault | None:
        return Faults.claim(self._frame_faults, frame)

    def _write_to_peer(self, data: bytes) -> None:
        if self._holds & _LINE_FULL and self._line.size < _LINE_HIGH_WATER // 2:
            self.release(_LINE_FULL)
        target = self.peer.transport
        if target is not None and not target.is_closing():
            target.write(data)

    def _finish(self) -> None:
        """Forward the bytes that were read, then close the link."""
        if not self._finished:
            self._finished = True
            self._line.finish()

    def _line_ended(self) -> None:
        if self._link.reset:
            self._link.cut(reset=True)
        else:
            self._link.close()

    def close(self) -> None:
        """Close after the written bytes are sent."""
        self._finished = True
        self._line.clear()
        if self.transport is not None:
            self.transport.close()

    def abort(self, *, reset: bool) -> None:
        """Close at once, by RST or (if no unread bytes are left) by FIN."""
        self._finished = True
        self._line.clear()
        if self.transport is None:
            return
        if reset:
            # With a linger time of 0 the kernel sends RST instead of FIN.
            with contextlib.suppress(OSError, ValueError):
                self.transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
        self.transport.abort()


class _ClientEnd(_End):
    """The client's socket: reads requests."""

    def __init__(self, link: ProxiedConnection, frame_faults: list[FrameFault]) -> None:
        super().__init__(link, frame_faults)
        self.hold(_CONNECTING)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._link.client_connected()

    def _count_bytes(self, size: int) -> None:
        self._link.counters.request_bytes += size

    def _read_header(self, data: bytes, start: int) -> tuple[int, float, FrameFault | None] | None:
        if len(data) - start < _REQUEST_HEADER.size:
            return None
        body, api_key, version, correlation_id = _REQUEST_HEADER.unpack_from(data, start)
        size = max(body + 4, _REQUEST_HEADER.size)
        answered = True
        if api_key == ApiKey.PRODUCE:
            acks = _produce_acks(data, start, size, version)
            if acks is None and len(data) - start < min(size, _LONGEST_HEADER):
                return None
            answered = acks != 0
        link = self._link
        link.counters.requests[api_key] += 1
        if api_key == ApiKey.PRODUCE:
            link.counters.produce_bytes += size
        if answered:
            link.unanswered.append((correlation_id, api_key, version))
        if not self._frame_faults:
            return size, 0.0, None
        return size, 0.0, self._claim(Frame(api_key, version, correlation_id, size, link.number))


class _BrokerEnd(_End):
    """The broker's socket: reads responses."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer.release(_CONNECTING)

    def _count_bytes(self, size: int) -> None:
        self._link.counters.response_bytes += size

    def _read_header(self, data: bytes, start: int) -> tuple[int, float, FrameFault | None] | None:
        if len(data) - start < _RESPONSE_HEADER.size:
            return None
        body, correlation_id = _RESPONSE_HEADER.unpack_from(data, start)
        size = max(body + 4, _RESPONSE_HEADER.size)
        link = self._link
        api_key, version = link.answered_request(correlation_id)
        link.counters.responses[api_key] += 1
        spacing = link.faults.service_time(api_key)
        if not self._frame_faults:
            return size, spacing, None
        frame = Frame(api_key, version, correlation_id, size, link.number)
        return size, spacing, self._claim(frame)


class ProxiedConnection:
    """A client's connection through the proxy to its broker."""

    def __init__(
        self,
        number: int,
        faults: Faults,
        counters: ProxyCounters,
        connect: Callable[[asyncio.Protocol], asyncio.Task[None]],
        clock: Callable[[], float],
        *,
        encrypted: bool = False,
    ) -> None:
        self.number = number
        self.encrypted = encrypted
        self.faults = faults
        self.counters = counters
        self.clock = clock
        self.unanswered: deque[tuple[int, int, int]] = deque()
        """(correlation id, API key, version) of the requests without a response."""
        self.reset = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when both sockets are closed."""
        self._connect = connect
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self.client: _ClientEnd = _ClientEnd(self, faults.requests)
        self.broker: _BrokerEnd = _BrokerEnd(self, faults.responses)
        self.client.peer, self.broker.peer = self.broker, self.client
        if faults.stalled:
            self.stall()

    def client_connected(self) -> None:
        """Connect to the broker. If the proxy is stalled, :meth:`resume` connects."""
        if self._closed:
            self.cut()
        elif not self.faults.stalled:
            self._dial()

    def _dial(self) -> None:
        self._connecting = self._connect(self.broker)
        self._connecting.add_done_callback(self._dialled)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            self.cut(reset=True)
        elif self._closed:
            self.broker.close()
        self.end_lost()

    def answered_request(self, correlation_id: int) -> tuple[int, int]:
        """(API key, version) of the request of a response; (-1, -1) if unknown."""
        # A broker answers in order, so earlier requests in the queue have no response.
        while self.unanswered:
            known, api_key, version = self.unanswered.popleft()
            if known == correlation_id:
                return api_key, version
        return -1, -1

    def stall(self) -> None:
        self.client.hold(_STALLED)
        self.broker.hold(_STALLED)

    def resume(self) -> None:
        self.client.release(_STALLED)
        self.broker.release(_STALLED)
        if self._connecting is None and self.client.transport is not None and not self._closed:
            self._dial()

    def close(self) -> None:
        """Close both sockets after the written bytes are sent."""
        self._close(_End.close)

    def cut(self, *, reset: bool = False) -> None:
        """Close both sockets at once. Bytes that the proxy still delays are lost."""
        self._close(lambda end: end.abort(reset=reset))

    def _close(self, how: Callable[[_End], None]) -> None:
        self._closed = True
        how(self.client)
        how(self.broker)
        # Do not cancel the task of a connected socket: uvloop would then drop the socket without
        # calling connection_lost.
        if self._connecting is not None and self.broker.transport is None:
            self._connecting.cancel()

    def end_lost(self) -> None:
        """Each end calls this when its socket is closed."""
        dialling = self._connecting is not None and not self._connecting.done()
        gone = self.client.transport is None and self.broker.transport is None
        if gone and not dialling and not self.done.done():
            self.done.set_result(None)


def _produce_acks(data: bytes, start: int, size: int, version: int) -> int | None:
    """The ``acks`` of the Produce request at ``start``; None if it has not arrived yet."""
    head = memoryview(data)[start + _REQUEST_HEADER.size : start + min(size, _LONGEST_HEADER)]
    reader = FieldReader(head, flexible=False)
    try:
        reader.nullable_string()  # client id
        reader.flexible = version >= _FIRST_FLEXIBLE_PRODUCE
        reader.tagged_fields()
        reader.nullable_string()  # transactional id
        return reader.int16()
    except ProtocolError:
        return None
