"""A fake broker's side of one connection, which answers requests strictly in order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from kafkaclient.errors import ProtocolError
from kafkaclient.testing.fake.apis import APIS, metadata, produce
from kafkaclient.testing.fake.interceptors import (
    CLOSE,
    CLOSE_ANSWER,
    DROP,
    DROP_ANSWER,
    Delay,
    Request,
    delay_answer,
)
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.testing.fake.apis.api import Api
    from kafkaclient.testing.fake.interceptors import Action, Answer
    from kafkaclient.testing.fake.state import ClusterState, FakeBroker

_Outcome: TypeAlias = "bytes | Action | asyncio.Future[Any]"
"""The outcome of a request: the answer's bytes (b"" for no answer), DROP, CLOSE, or a future of the
answer's fields."""

_SIZE = struct.Struct(">i")
_CHANGES_LOGS = frozenset(
    {ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID, ApiKey.DELETE_TOPICS}
)
"""The requests after which a Fetch request that waits for records may have them."""
_MAX_REQUEST_BYTES = 100 * 1024 * 1024  # Kafka's default of socket.request.max.bytes


class FakeConnection(asyncio.Protocol):
    """Handles the requests of a connection one by one, as a broker does.

    While a request is delayed or waits for requests of other clients, later requests wait. A
    request that is never answered blocks the connection until the connection is closed.
    """

    def __init__(
        self,
        state: ClusterState,
        broker: FakeBroker,
        record: Callable[[Any, int], Request],
    ) -> None:
        self._state = state
        self._broker = broker
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._waiting: deque[Request] = deque()
        self._busy = False
        self._overlapping_until = 0.0
        """When the last answer leaves of those whose delays overlap."""
        self._timer: asyncio.TimerHandle | None = None
        self._awaited: asyncio.Future[Any] | None = None
        self._deferred_wake: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._broker.connections.add(self)
        if self._broker.stalled:
            self.stall()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.discard(self)
        self._waiting.clear()
        self._deferred_wake = None
        if self._timer is not None:
            self._timer.cancel()
        if self._awaited is not None:
            self._awaited.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            if not 0 <= size <= _MAX_REQUEST_BYTES:
                self.transport.close()
                return
            end = _SIZE.size + size
            if len(self._received) < end:
                break
            frame = bytes(memoryview(self._received)[_SIZE.size : end])
            del self._received[:end]
            try:
                request = self._record(decode_request(frame), end)
            except ProtocolError:
                self.transport.close()
                return
            self._waiting.append(request)
        self._work()

    def stall(self) -> None:
        self.transport.pause_reading()

    def resume(self) -> None:
        self.transport.resume_reading()
        if self._deferred_wake is not None:
            wake, self._deferred_wake = self._deferred_wake, None
            wake()
        self._work()

    def _work(self) -> None:
        while self._waiting and not self._busy and not self._broker.stalled:
            self._handle(self._waiting.popleft())

    def _handle(self, request: Request) -> None:
        decided, now, delay = self._state.intercept(request), self._loop.time(), 0.0
        if decided is None and request.api_key == ApiKey.PRODUCE:
            delay = self._broker.produce_delay_s
        if delay and not self._broker.produce_delays_overlap:
            decided, delay = delay_answer(delay), 0.0
        if delay or (now < self._overlapping_until and not isinstance(decided, Delay)):
            outcome = self._outcome(request, decided)
            # In order: timers of the same time are not.
            at = self._overlapping_until = max(now + delay, self._overlapping_until + 1e-6)
            self._loop.call_at(at, self._send, request, outcome)
            return
        if not isinstance(decided, Delay):
            self._send(request, self._outcome(request, decided))
        elif decided.effect_first:
            outcome = self._outcome(request, decided.answer)
            self._wait(decided.seconds, lambda: self._send(request, outcome))
        else:
            answer = decided.answer
            self._wait(decided.seconds, lambda: self._send(request, self._outcome(request, answer)))

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        """Call ``then`` after ``seconds``, and handle no other request until then."""

        def wake() -> None:
            self._timer = None
            self._go_on(then)

        self._busy = True
        self._timer = self._loop.call_later(seconds, wake)

    def _await(self, request: Request, future: asyncio.Future[Any]) -> None:
        """Answer when the future is done, and handle no other request until then."""

        def wake(done: asyncio.Future[Any]) -> None:
            self._awaited = None
            if not done.cancelled():
                self._go_on(lambda: self._send(request, self._encode(request, done.result())))

        self._busy, self._awaited = True, future
        future.add_done_callback(wake)

    def _go_on(self, then: Callable[[], None]) -> None:
        """Call ``then`` and handle later requests, unless the broker is stalled."""
        if self._broker.stalled:
            self._deferred_wake = lambda: self._go_on(then)
            return
        self._busy = False
        then()
        self._work()

    def _outcome(self, request: Request, decided: Answer) -> _Outcome:
        if decided is None:
            return self._normal_outcome(request)
        if decided is DROP_ANSWER or decided is CLOSE_ANSWER:
            self._normal_outcome(request)
            return DROP if decided is DROP_ANSWER else CLOSE
        if isinstance(decided, int):
            api = APIS.get(request.api_key)
            if api is None:
                return CLOSE
            return self._encode(request, api.refuse(request, RefusedError(decided)))
        if decided is DROP or decided is CLOSE or isinstance(decided, bytes):
            return decided
        return self._encode(request, cast("Mapping[str, Any]", decided))

    def _normal_outcome(self, request: Request) -> _Outcome:
        api, version = self._supported(request), request.version
        if api is None and request.api_key == ApiKey.API_VERSIONS:
            limit = self._state.closes_api_versions_above
            if limit is not None and version > limit:
                return CLOSE
            fields = metadata.unsupported(self._state)
            return encode_response(request.api_key, 0, request.frame.correlation_id, **fields)
        sasl = self._state.sasl
        if sasl is not None and not sasl.allows(request, self._state.now()):
            return CLOSE
        if api is None:
            return CLOSE  # a broker closes the connection if it does not support the version
        answer = api.answer(self._state, request)
        if api.key in _CHANGES_LOGS:
            self._state.serve_waiting_fetches()
        return answer if isinstance(answer, asyncio.Future) else self._encode(request, answer)

    def _supported(self, request: Request) -> Api | None:
        """The API of the request; None: the broker does not support the API or the version."""
        api = APIS.get(request.api_key)
        if api is None or request.message is None:
            return None
        offered = self._state.versions.get(request.api_key)
        if offered is None:
            return None
        ranges = api.versions, offered
        return api if all(low <= request.version <= high for low, high in ranges) else None

    def _encode(self, request: Request, fields: Mapping[str, Any]) -> bytes | Action:
        if not request.frame.expects_response:
            return CLOSE if produce.has_error(fields) else b""
        if self._broker.throttle_ms and request.api_key == ApiKey.PRODUCE:
            fields = {"throttle_time_ms": self._broker.throttle_ms, **fields}
        frame = request.frame
        return encode_response(frame.api_key, frame.version, frame.correlation_id, **fields)

    def _send(self, request: Request, outcome: _Outcome) -> None:
        if isinstance(outcome, asyncio.Future):
            self._await(request, outcome)
        elif outcome is DROP:
            self._busy = True
        elif outcome is CLOSE:
            self._busy = True
            self.transport.close()
        elif isinstance(outcome, bytes) and outcome:
            self.transport.write(outcome)
