"""One connection to a broker: frames, correlation, pipelining, back-pressure and time limits.

A broker answers the requests of one connection in the order in which they were sent, so the
requests in flight are a queue and an answer always belongs to its head. Anything else on the wire
means that the two sides no longer agree, and the connection is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    BrokerConnectionError,
    EncodingError,
    KafkaError,
    ProducerStateError,
    ProtocolError,
    RequestTimedOutError,
    SslAuthenticationError,
)
from kafkaclient.net.meter import NoMeter
from kafkaclient.net.tls_failures import explain_tls_error
from kafkaclient.wire.api_versions import ApiVersionsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkaclient.net.meter import Meter
    from kafkaclient.types import Buffer
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.api_versions import ApiVersions

__all__ = ["MAX_FRAME_SIZE", "Connection", "OnDone"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

MAX_FRAME_SIZE = 100 * 1024 * 1024
"""The largest response accepted, in bytes; the same bound as a broker's
``socket.request.max.bytes``. A larger announced size means a peer that is not a Kafka broker."""

_UNSUPPORTED_VERSION = 35
_MIN_FRAME_SIZE = 4
_MAX_CORRELATION_ID = 2**31 - 1

# The system call that gathers pieces costs more than to copy as little as this (bytes).
_WORTH_GATHERING = 4096
# What these releases of CPython put into a plain socket's transport by writelines() does not pause
# the protocol, however much it is (CVE-2024-12254). Setting its limits has it look at them.
_WRITELINES_NEVER_PAUSES = (3, 12) <= sys.version_info < (3, 12, 9) or (
    (3, 13) <= sys.version_info < (3, 13, 2)
)
# How long an overdue answer may still lie unread in the socket after the loop was blocked.
_SECOND_LOOK_S = 0.02
_MAX_SECOND_LOOK_S = 1.0
# uvloop's timers count whole milliseconds; less would be a call in the next turn, over and over.
_LOOP_GRAIN_S = 0.001

_int32 = struct.Struct(">i").unpack_from

OnDone: TypeAlias = "Callable[[memoryview | None, KafkaError | None], None]"
"""Called once per request: with the payload that follows the correlation id, or with the error.
The payload is a view of the read buffer: decode it at once rather than keeping it."""


class _Pending(NamedTuple):
    correlation_id: int
    on_done: OnDone
    api: str
    sent_at: float
    deadline: float


class Connection(asyncio.Protocol):
    """A pipelined connection to one broker.

    ``node`` names the peer in messages. ``request_timeout_s`` (Kafka: ``request.timeout.ms``) is
    the time a broker has for each answer; a broker that exceeds it is taken for dead, and the
    connection is closed. ``on_close`` is called once, after the requests in flight have been
    given their error; with None when the connection was closed in good order. ``on_writable``
    is called when the transport takes data again after :attr:`writable` was False.
    """

    def __init__(
        self,
        *,
        node: str,
        client_id: str,
        request_timeout_s: float,
        node_id: int = -1,
        clock: Callable[[], float] | None = None,
        on_close: Callable[[Connection, KafkaError | None], None] | None = None,
        on_writable: Callable[[Connection], None] | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._node = node
        self._node_id = node_id
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._on_close = on_close
        self._on_writable = on_writable
        self._meter: Meter = meter or NoMeter()

        self._transport: asyncio.Transport | None = None
        self.closed = False
        """True from the moment nothing more can be sent."""
        self._lost = asyncio.Event()
        self._error: KafkaError | None = None
        self._writable = True
        self._released: asyncio.Event | None = None

        self._correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._partial: bytearray | None = None
        self._partial_needs = 0

        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._suspect: _Pending | None = None

        self.api_versions: ApiVersions | None = None
        """What the broker speaks; None before :meth:`handshake`."""
        self.api_versions_version: int | None = None
        """The version of ApiVersions that the broker answered."""
        self.throttled_until = 0.0
        """Until when (in the clock's seconds) the broker asked for silence (KIP-219). Whoever
        reads a response sets it, whoever sends observes it."""
        self.last_used = self._clock()
        """When a request was last sent or answered, in the clock's seconds."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self._transport else "new"
        return f"<Connection to {self._node}: {state}, {len(self._pending)} in flight>"

    # --- state ------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        return self._node

    @property
    def writable(self) -> bool:
        """False while the transport holds more unsent bytes than it likes, and while the
        connection is :meth:`held`."""
        return self._writable and not self.closed and self._released is None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answer."""
        return len(self._pending)

    @property
    def oldest_sent_at(self) -> float | None:
        """When the oldest unanswered request was sent; None when there is none."""
        return self._pending[0].sent_at if self._pending else None

    # --- sending ----------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        """The id to encode into the next request. Send in the order in which ids were drawn."""
        self._correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        return self._correlation_id

    def send(
        self,
        buffers: Sequence[Buffer],
        correlation_id: int,
        on_done: OnDone | None,
        *,
        timeout_s: float | None = None,
        api: str = "Produce",
    ) -> int:
        """Write one framed request; its size in bytes. ``api`` names it in messages.

        ``on_done`` is called exactly once, never from inside this call, and in the order of the
        requests: with the response from the loop iteration that read it, or with the error
        when the connection is lost, the broker is too late, or writing failed half-way. None
        means that the broker does not answer (acks=0).

        Raises :class:`~kafkaclient.errors.BrokerConnectionError` when the connection is closed
        (nothing was written then and ``on_done`` is not called), and when writing a request
        without ``on_done`` failed.
        """
        transport = self._transport
        if self.closed or transport is None:
            raise BrokerConnectionError(
                f"{api} was not sent: the connection to {self._node} is closed"
            ) from self._error
        now = self.last_used = self._clock()
        if on_done is not None:
            deadline = now + (self._request_timeout_s if timeout_s is None else timeout_s)
            self._pending.append(_Pending(correlation_id, on_done, api, now, deadline))
            if self._timer is None or deadline < self._timer_at:
                self._arm_timer(deadline, now)
        size = sum(map(len, buffers))
        try:
            if size < _WORTH_GATHERING:
                transport.write(b"".join(buffers))
            else:
                transport.writelines(buffers)
                if _WRITELINES_NEVER_PAUSES and self._writable:
                    transport.set_write_buffer_limits()
        except Exception as reason:
            # Nobody knows how much was written: the stream cannot be used any more, and the
            # request shares the fate of those in flight.
            error = BrokerConnectionError(f"could not write {api} to {self._node}: {reason!r}")
            error.__cause__ = reason
            self.close(error)
            if on_done is None:
                raise error from reason
            return size
        self._meter.request_sent(self._node_id, size)
        return size

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Send nothing but urgent calls meanwhile: others wait, and :attr:`writable` is False.

        Answers to what is in flight are taken as ever.
        """
        self._released = released = asyncio.Event()
        try:
            yield
        finally:
            self._released = None
            released.set()
            if self._writable:
                self.resume_writing()

    async def call(
        self, call: Call[T], *, timeout_s: float | None = None, urgent: bool = False
    ) -> T:
        """Send a control call in the newest version that both sides speak; await its answer.

        ``timeout_s`` replaces the request timeout; ``urgent`` calls go out also while the
        connection is :meth:`held`. A caller that is cancelled leaves the connection and all other
        requests as they are; the answer is dropped when it comes.

        Raises :class:`~kafkaclient.errors.UnsupportedVersionError`,
        :class:`~kafkaclient.errors.BrokerConnectionError`,
        :class:`~kafkaclient.errors.RequestTimedOutError`,
        :class:`~kafkaclient.errors.ProtocolError`, or
        :class:`~kafkaclient.errors.EncodingError` for a call with values that cannot be sent.
        """
        if self.api_versions is None:
            raise ProducerStateError(f"the connection to {self._node} has had no handshake yet")
        version = self.api_versions.pick(call.api_key, call.min_version, call.max_version)
        while self._released is not None and not urgent:
            await self._released.wait()
        return await self._call(call, version, timeout_s)

    async def handshake(self, max_version: int | None = None) -> None:
        """Learn what the broker speaks (KIP-35); the first call on every connection.

        A broker that does not know the version asked for says so, and is asked again in
        version 0. One that drops the connection instead must be dialled again and asked with a
        lower ``max_version``. Raises what :meth:`call` raises, and
        :class:`~kafkaclient.errors.BrokerError` for an error code in the answer.
        """
        call = ApiVersionsCall()
        version = call.max_version if max_version is None else max_version
        answer = await self._call(call, version, None)
        if answer.error_code == _UNSUPPORTED_VERSION and version > 0:
            version = 0
            answer = await self._call(call, version, None)
        if answer.error_code:
            raise broker_error(answer.error_code, f"ApiVersions v{version} to {self._node}")
        self.api_versions = answer
        self.api_versions_version = version

    async def _call(self, call: Call[T], version: int, timeout_s: float | None) -> T:
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        correlation_id = self.next_correlation_id()
        try:
            request = call.encode(version, correlation_id, self._client_id)
        except Exception as error:
            raise EncodingError(
                f"{call.api_key.name} was not sent to {self._node}: the request cannot be encoded: "
                f"{error!r}"
            ) from error
        self.send(
            [request],
            correlation_id,
            partial(_settle, answer),
            timeout_s=timeout_s,
            api=call.api_key.name,
        )
        payload = await answer
        try:
            return call.decode(version, payload)
        except ProtocolError as error:
            self.close(error)
            raise

    # --- closing ----------------------------------------------------------------------------

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection; calling it again does nothing.

        Without ``error`` and with nothing in flight, bytes already handed over (acks=0) are
        still written. Otherwise the connection is cut and the requests in flight fail, with
        ``error`` when it is given, in the next loop iteration.
        """
        if self.closed:
            return
        self.closed = True
        self._error = error
        self._stop_timer()
        if self._transport is None:
            return
        if error is None and not self._pending:
            self._transport.close()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Cut the connection at once, also one that :meth:`close` has left writing."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport is gone and every request in flight has had its error."""
        if self._transport is not None:
            await self._lost.wait()

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._meter.connection_opened(self._node_id)
        if self.closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        in_good_order = self.closed and self._error is None and not self._pending
        if not in_good_order and self._error is None:
            self._error = self._loss(exc)
            self._error.__cause__ = exc
        self.closed = True
        self._stop_timer()
        self._partial = None
        now = self._clock()
        while self._pending:
            request = self._pending.popleft()
            self._deliver(request, None, self._error_of(request, now))
        self._lost.set()
        self._meter.connection_closed(self._node_id)
        if self._on_close is not None:
            self._on_close(self, self._error)

    def _loss(self, exc: Exception | None) -> KafkaError:
        refusal = explain_tls_error(exc) if self.api_versions is None else None
        if refusal is not None:  # TLS 1.3 tells a client only now that its certificate is missing
            return SslAuthenticationError(f"TLS with {self._node} failed: {refusal}")
        return BrokerConnectionError(
            f"the connection to {self._node} was lost with {len(self._pending)} requests in "
            f"flight: {exc or ('closed here' if self.closed else 'closed by the broker')}"
        )

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
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
        # An answer's receiver, or a bad frame, may close the connection: the rest is then void.
        while not self.closed and end - position >= 4:
            (size,) = _int32(view, position)
            if not _MIN_FRAME_SIZE <= size <= MAX_FRAME_SIZE:
                self._refuse(
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
                self._refuse(f"a response to request {correlation_id} came, expected: {expected}")
                return
            request = self._pending.popleft()
            self._meter.response_received(self._node_id, needs, now - request.sent_at)
            self._deliver(request, view[position + 8 : position + needs], None)
            position += needs
            needs = _MIN_FRAME_SIZE
        if position < end:
            self._partial = bytearray(view[position:])
            self._partial_needs = needs

    def _refuse(self, why: str) -> None:
        error = ProtocolError(f"{self._node} does not speak the Kafka protocol: {why}")
        _log.warning("%s; closing the connection", error)
        self.close(error)

    def _deliver(
        self, request: _Pending, payload: memoryview | None, error: KafkaError | None
    ) -> None:
        try:
            request.on_done(payload, error)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001
            # One broken receiver must not take the connection and its other requests with it.
            _log.exception("handling the answer to %s from %s failed", request.api, self._node)

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
        """Close the connection when a request is overdue; else sleep until the next deadline.

        The timer is not moved when requests are answered, it looks again when it fires: one
        timer per timeout period instead of one per request.
        """
        self._timer = None
        suspect, self._suspect = self._suspect, None
        if not self._pending:
            return
        now = self._clock()
        first = min(self._pending, key=_deadline)
        if first.deadline > now:
            self._arm_timer(first.deadline, now)
        elif suspect is not first:
            # The loop may have been blocked, with the answer waiting in the socket (uvloop runs
            # timers before it reads): let it read, and return the time that it lost.
            self._suspect = first
            lag = now - self._timer_at
            self._arm_timer(now + min(max(_SECOND_LOOK_S, lag), _MAX_SECOND_LOOK_S), now)
        else:
            self.close(self._timed_out(first, now))

    def _error_of(self, request: _Pending, now: float) -> KafkaError | None:
        if not isinstance(self._error, RequestTimedOutError):
            return self._error
        if request.deadline <= now:
            return self._timed_out(request, now)
        return BrokerConnectionError(
            f"the connection to {self._node} was closed before {request.api} was answered, "
            f"because another request was overdue: {self._error}"
        )

    def _timed_out(self, request: _Pending, now: float) -> RequestTimedOutError:
        return RequestTimedOutError(
            f"{self._node} did not answer {request.api} within {now - request.sent_at:.3g} s; "
            "the broker may be overloaded, paused or cut off, or request.timeout.ms is too short"
        )


def _deadline(request: _Pending) -> float:
    return request.deadline


def _settle(
    answer: asyncio.Future[memoryview], payload: memoryview | None, error: KafkaError | None
) -> None:
    if answer.done():  # the caller was cancelled
        return
    if payload is None:
        answer.set_exception(error or BrokerConnectionError("the connection was closed"))
        answer.exception()  # a caller cancelled in this very moment leaves no unretrieved error
    else:
        answer.set_result(payload)
