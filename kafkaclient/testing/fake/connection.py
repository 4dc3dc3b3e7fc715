"""A fake broker's side of one connection, which answers requests strictly in order."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from kafkaclient.errors import ProtocolError
from kafkaclient.testing.fake.apis import APIS, fetch, handshake, produce
from kafkaclient.testing.fake.interceptors import (
    CLOSE,
    CLOSE_ANSWER,
    DROP,
    DROP_ANSWER,
    Delay,
    Request,
    delay,
    delay_answer,
)
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.testing.fake.interceptors import Action, Answer
    from kafkaclient.testing.fake.state import ClusterState, FakeBroker

_SIZE = struct.Struct(">i")
_MAX_REQUEST_BYTES = 100 * 1024 * 1024  # Kafka's default of socket.request.max.bytes


class FakeConnection(asyncio.Protocol):
    """Handles the requests of a connection one by one, as a broker does.

    While a request is delayed, later requests wait. A request that is never answered blocks the
    connection until the connection is closed.
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
        self._timer: asyncio.TimerHandle | None = None
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
        decided = self._state.intercept(request)
        if decided is None and self._broker.produce_delay_s and request.api_key == ApiKey.PRODUCE:
            decided = delay_answer(self._broker.produce_delay_s)
        if decided is None and request.api_key == ApiKey.FETCH and request.message is not None:
            wait_s = fetch.waits_s(self._state, request)
            decided = delay(wait_s) if wait_s else None
        if not isinstance(decided, Delay):
            self._send(self._outcome(request, decided))
        elif decided.effect_first:
            outcome = self._outcome(request, decided.answer)
            self._wait(decided.seconds, lambda: self._send(outcome))
        else:
            self._wait(decided.seconds, lambda: self._send(self._outcome(request, decided.answer)))

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        """Call ``then`` after ``seconds``, and handle no other request until then."""

        def wake() -> None:
            self._timer = None
            if self._broker.stalled:
                self._deferred_wake = wake
                return
            self._busy = False
            then()
            self._work()

        self._busy = True
        self._timer = self._loop.call_later(seconds, wake)

    def _outcome(self, request: Request, decided: Answer) -> bytes | Action:
        """The outcome of a request: the answer's bytes (b"" for no answer), DROP, or CLOSE."""
        if decided is None:
            return self._normal_outcome(request)
        if decided is DROP_ANSWER or decided is CLOSE_ANSWER:
            self._normal_outcome(request)
            return DROP if decided is DROP_ANSWER else CLOSE
        if isinstance(decided, int):
            api = APIS.get(request.api_key)
            return CLOSE if api is None else self._encode(request, api.refuse(request, decided))
        if decided is DROP or decided is CLOSE or isinstance(decided, bytes):
            return decided
        return self._encode(request, cast("Mapping[str, Any]", decided))

    def _normal_outcome(self, request: Request) -> bytes | Action:
        key, version = request.api_key, request.version
        oldest, newest = self._state.versions.get(key, (0, -1))
        offered = oldest <= version <= newest and request.message is not None
        if key == ApiKey.API_VERSIONS and not offered:
            limit = self._state.closes_api_versions_above
            if limit is not None and version > limit:
                return CLOSE
            correlation_id = request.frame.correlation_id
            return encode_response(key, 0, correlation_id, **handshake.unsupported(self._state))
        sasl = self._state.sasl
        if sasl is not None and not sasl.allows(request, self._state.now()):
            return CLOSE
        api = APIS.get(key)
        if not offered or api is None:
            return CLOSE  # a broker closes the connection if it does not support the version
        return self._encode(request, api.answer(self._state, request))

    def _encode(self, request: Request, fields: Mapping[str, Any]) -> bytes | Action:
        if not request.frame.expects_response:
            return CLOSE if produce.has_error(fields) else b""
        if self._broker.throttle_ms and request.api_key == ApiKey.PRODUCE:
            fields = {"throttle_time_ms": self._broker.throttle_ms, **fields}
        frame = request.frame
        return encode_response(frame.api_key, frame.version, frame.correlation_id, **fields)

    def _send(self, outcome: bytes | Action) -> None:
        if outcome is DROP:
            self._busy = True
        elif outcome is CLOSE:
            self._busy = True
            self.transport.close()
        elif isinstance(outcome, bytes) and outcome:
            self.transport.write(outcome)
