"""Requests and responses on one connection: frames, order, back-pressure and time limits.

A broker answers the requests of a connection in the order in which they were sent. So the requests
in flight are a queue, and a response always belongs to the first of them. If anything else arrives,
the two sides disagree, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import sys
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from kafkaclient.errors import (
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
)
from kafkaclient.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkaclient.net.pending_request import PendingRequest
    from kafkaclient.types import Buffer


# --- The statistics that a connection reports -----------------------------------------------------


class Meter(Protocol):
    """Receives a connection's events. ``node_id`` is negative for bootstrap servers."""

    def connection_opened(self, node_id: int) -> None:
        return

    def connection_closed(self, node_id: int) -> None:
        return

    def request_sent(self, node_id: int, nbytes: int) -> None:
        return

    def request_done(
        self, node_id: int, api: str, nbytes: int, latency_s: float, error: KafkaError | None
    ) -> None:
        """The response of ``nbytes`` was read, or there will be none because of ``error``."""
        return


class NoMeter(Meter):
    """A meter that ignores all events."""


# --- Requests and responses on one connection: frames, order, back-pressure -----------------------

_log = logging.getLogger(__name__)

MAX_FRAME_SIZE = 100 * 1024 * 1024
"""The largest response in bytes; brokers have the same limit for requests
(``socket.request.max.bytes``). A peer that announces a larger response is not a Kafka broker."""

_MIN_FRAME_SIZE = 4
_MAX_CORRELATION_ID = 2**31 - 1

_GATHER_FROM = 4096  # bytes; copying fewer bytes costs less than a system call with many pieces
# In these releases of CPython writelines() on a plain socket never pauses the protocol
# (CVE-2024-12254). Setting the buffer's limits makes the transport check them.
_WRITELINES_NEVER_PAUSES = (3, 12) <= sys.version_info < (3, 12, 9) or (
    (3, 13) <= sys.version_info < (3, 13, 2)
)
# After the event loop was blocked, a response that seems late may be in the socket, not read yet.
# The loop gets this time to read it.
_SECOND_CHECK_S = 0.02
_MAX_SECOND_CHECK_S = 1.0
_LOOP_GRAIN_S = 0.001  # uvloop's timers count whole milliseconds; a shorter timer fires at once

_int32 = struct.Struct(">i").unpack_from


class Pipeline(asyncio.Protocol):
    """The requests in flight on one connection.

    ``node`` names the broker in messages. The broker must answer each request within
    ``request_timeout_s`` (Kafka: ``request.timeout.ms``); otherwise it counts as dead and the
    connection is closed. ``on_close`` is called once, after the requests in flight have got their
    error; its error is None if the connection was closed without a failure. ``on_writable`` is
    called when :attr:`writable` becomes True again.
    """

    def __init__(
        self,
        *,
        node: str,
        client_id: str,
        request_timeout_s: float,
        node_id: int = -1,
        clock: Callable[[], float] | None = None,
        on_close: Callable[[Self, KafkaError | None], None] | None = None,
        on_writable: Callable[[Self], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self.node = node
        self.node_id = node_id
        self.client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._on_close: Callable[[Any, KafkaError | None], None] | None = on_close
        self._on_writable: Callable[[Any], None] | None = on_writable
        self._meter: Meter = meter or NoMeter()

        self._transport: asyncio.Transport | None = None
        self.closed: bool = False
        """True as soon as no more requests can be sent."""
        self.writable: bool = True
        """False while the transport's buffer is full, while the connection is :meth:`held`, and
        when it is closed."""
        self._paused = False
        self._released: asyncio.Event | None = None
        self._lost = asyncio.Event()
        self._error: KafkaError | None = None

        self._correlation_id = 0
        self._pending: deque[PendingRequest] = deque()
        self._partial: bytearray | None = None
        self._partial_needs = 0

        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._suspect: PendingRequest | None = None

        self.throttled_until: float = 0.0
        """The end of the broker's throttle time, in the clock's seconds (KIP-219). Code that reads
        responses sets it; code that sends requests obeys it."""
        self.last_used: float = self._clock()
        """The time of the last request or response, in the clock's seconds."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self._transport else "new"
        return f"<{type(self).__name__} to {self.node}: {state}, {len(self._pending)} in flight>"

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._pending)

    @property
    def oldest_sent_at(self) -> float | None:
        """The time at which the oldest request in flight was sent; None without one."""
        return self._pending[0].sent_at if self._pending else None

    # --- sending ----------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        """The id of the next request. Requests must be sent in the order of their ids."""
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        return self._correlation_id

    def send(
        self,
        buffers: Sequence[Buffer],
        request: PendingRequest | None,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """Write one framed request; returns its size in bytes.

        ``request.on_done`` is called exactly once, never inside this call, and in the order of the
        requests: with the response, or with the error if the connection is lost, or if the
        request timed out or could not be written completely. ``request`` is None if the broker
        sends no response (Produce with acks=0).

        Raises :class:`~kafkaclient.errors.BrokerConnectionError` if the connection is closed; then
        nothing is written and ``on_done`` is not called. Also raises it if a request without
        response could not be written.
        """
        transport = self._transport
        if self.closed or transport is None:
            api = "PRODUCE" if request is None else request.api
            raise BrokerConnectionError(
                f"{api} was not sent: the connection to {self.node} is closed"
            ) from self._error
        now = self.last_used = self._clock() if request is None else request.sent_at
        if request is not None:
            timeout_s = self._request_timeout_s if timeout_s is None else timeout_s
            deadline = request.deadline = now + timeout_s
            self._pending.append(request)
            if self._timer is None or deadline < self._timer_at:
                self._arm_timer(deadline, now)
        size = sum(map(len, buffers))
        try:
            if size < _GATHER_FROM:
                transport.write(b"".join(buffers))
            else:
                transport.writelines(buffers)
                if _WRITELINES_NEVER_PAUSES and not self._paused:
                    transport.set_write_buffer_limits()
        except Exception as reason:
            # It is unknown how much was written, so the connection cannot be used any more. The
            # request fails together with the others in flight.
            api = "PRODUCE" if request is None else request.api
            error = BrokerConnectionError(f"could not write {api} to {self.node}: {reason!r}")
            error.__cause__ = reason
            self.close(error)
            if request is None:
                raise error from reason
            return size
        self._meter.request_sent(self.node_id, size)
        return size

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within this context only urgent calls are sent; :attr:`writable` is False.

        Responses are still received.
        """
        self._released = released = asyncio.Event()
        self.writable = False
        try:
            yield
        finally:
            self._released = None
            released.set()
            if not self._paused:
                self.resume_writing()

    # --- closing ----------------------------------------------------------------------------

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection; calling it again does nothing.

        Without ``error`` and without requests in flight, bytes that were already accepted (acks=0)
        are still written. Otherwise the connection is cut, and the requests in flight fail in the
        next pass of the event loop, with ``error`` if it is given.
        """
        if self.closed:
            return
        self.closed = True
        self.writable = False
        self._error = error
        self._stop_timer()
        if self._transport is None:
            return
        if error is None and not self._pending:
            self._transport.close()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Cut the connection at once, also if :meth:`close` has left bytes to write."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport is closed and every request in flight has got its error."""
        if self._transport is not None:
            await self._lost.wait()

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._meter.connection_opened(self.node_id)
        if self.closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        failed = not self.closed or self._error is not None or bool(self._pending)
        if failed and self._error is None:
            self._error = self._loss(exc)
            self._error.__cause__ = exc
        self.closed = True
        self.writable = False
        self._stop_timer()
        self._partial = None
        now = self._clock()
        while self._pending:
            request = self._pending.popleft()
            error, latency_s = self._error_of(request, now), now - request.sent_at
            self._meter.request_done(self.node_id, request.api, 0, latency_s, error)
            try:
                request.on_done(request, None, error)
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - as for a response
                self._log_receiver(request)
        self._lost.set()
        self._meter.connection_closed(self.node_id)
        if self._on_close is not None:
            self._on_close(self, self._error)

    def _loss(self, exc: Exception | None) -> KafkaError:
        return BrokerConnectionError(
            f"the connection to {self.node} was lost with {len(self._pending)} requests in "
            f"flight: {exc or ('closed here' if self.closed else 'closed by the broker')}"
        )

    def pause_writing(self) -> None:
        self._paused = True
        self.writable = False

    def resume_writing(self) -> None:
        self._paused = False
        self.writable = not self.closed and self._released is None
        if self._on_writable is not None and self.writable:
            self._on_writable(self)

    def data_received(self, data: bytes) -> None:
        chunk: bytes | bytearray = data
        if self._partial is not None:
            self._partial += data
            if len(self._partial) < self._partial_needs:
                return
            chunk, self._partial = self._partial, None
        view = memoryview(chunk)
        position, end = 0, len(chunk)
        needs = _MIN_FRAME_SIZE
        now = self.last_used = self._clock()
        # A receiver or a bad frame may close the connection: then the remaining bytes are ignored.
        while not self.closed and end - position >= 4:
            (size,) = _int32(view, position)
            if not _MIN_FRAME_SIZE <= size <= MAX_FRAME_SIZE:
                self._reject(
                    f"a response of {size} bytes was announced, allowed are {_MIN_FRAME_SIZE} "
                    f"to {MAX_FRAME_SIZE}"
                )
                return
            needs = 4 + size
            if end - position < needs:
                break
            (correlation_id,) = _int32(view, position + 4)
            if not self._pending or self._pending[0].correlation_id != correlation_id:
                expected = self._pending[0].correlation_id if self._pending else "none"
                self._reject(f"a response to request {correlation_id} came, expected: {expected}")
                return
            request = self._pending.popleft()
            latency_s = now - request.sent_at
            self._meter.request_done(self.node_id, request.api, needs, latency_s, None)
            try:
                request.on_done(request, view[position + 8 : position + needs], None)
            except (Exception, asyncio.CancelledError):  # noqa: BLE001
                self._log_receiver(request)
            position += needs
            needs = _MIN_FRAME_SIZE
        if position < end:
            self._partial = bytearray(view[position:])
            self._partial_needs = needs

    def _reject(self, why: str) -> None:
        error = ProtocolError(f"{self.node} does not speak the Kafka protocol: {why}")
        _log.warning(
            "%s; closing the connection",
            error,
            extra=log_fields(error, broker=self.node_id, client_id=self.client_id),
        )
        self.close(error)

    def _log_receiver(self, request: PendingRequest) -> None:
        """Log the exception of one receiver: the connection and its other requests go on."""
        _log.exception(
            "handling the response to %s from %s failed",
            request.api,
            self.node,
            extra=log_fields(broker=self.node_id, client_id=self.client_id),
        )

    # --- time limits ------------------------------------------------------------------------

    def _arm_timer(self, when: float, now: float) -> None:
        self._stop_timer()
        self._timer_at = when
        self._timer = self._loop.call_later(max(_LOOP_GRAIN_S, when - now), self._check_deadlines)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_deadlines(self) -> None:
        """Close the connection if a request has timed out; otherwise sleep until the next deadline.

        A response does not move the timer: there is one timer per timeout period, not one per
        request.
        """
        self._timer = None
        suspect, self._suspect = self._suspect, None
        if not self._pending:
            return
        now = self._clock()
        first = min(self._pending, key=attrgetter("deadline"))
        if first.deadline > now:
            self._arm_timer(first.deadline, now)
        elif suspect is not first:
            # The event loop may have been blocked while the response was in the socket: uvloop runs
            # timers before it reads. Let the loop read, for as long as it was blocked.
            self._suspect = first
            lag = now - self._timer_at
            self._arm_timer(now + min(max(_SECOND_CHECK_S, lag), _MAX_SECOND_CHECK_S), now)
        else:
            self.close(self._timed_out(first, now))

    def _error_of(self, request: PendingRequest, now: float) -> KafkaError | None:
        if not isinstance(self._error, RequestTimedOutError):
            return self._error
        if request.deadline <= now:
            return self._timed_out(request, now)
        return BrokerConnectionError(
            f"the connection to {self.node} was closed before {request.api} was answered, "
            f"because another request timed out: {self._error}"
        )

    def _timed_out(self, request: PendingRequest, now: float) -> RequestTimedOutError:
        return RequestTimedOutError(
            f"{self.node} did not answer {request.api} within {now - request.sent_at:.3g} s; "
            "the broker may be overloaded, paused or cut off, or request.timeout.ms is too short"
        )
