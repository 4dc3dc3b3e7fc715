"""The faults and counters of a fault proxy, and the line that delays bytes. No I/O."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- A queue that delays bytes in order -----------------------------------------------------------


class DelayLine:
    """Delivers chunks in order. A chunk leaves ``latency`` seconds after its arrival, and at least
    ``spacing`` seconds after the previous chunk. Without both it is delivered at once."""

    def __init__(
        self,
        clock: Callable[[], float],
        deliver: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._deliver = deliver
        self._ended = ended
        self._queue: deque[tuple[float, float, bytes | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_left = 0.0
        self._frozen = False
        self.size: int = 0
        """The number of waiting bytes."""

    def push(self, data: bytes, latency: float, spacing: float) -> None:
        if not self._queue and not latency and not spacing and not self._frozen:
            self._deliver(data)
            return
        # With both, the server's delay is added to the network's latency.
        self._append(self._clock() + latency + spacing, spacing, data)

    def finish(self) -> None:
        """Call ``ended`` after the last waiting chunk. No more chunks may be added."""
        self._append(0.0, 0.0, None)

    def freeze(self) -> None:
        """Deliver nothing until :meth:`thaw`."""
        self._frozen = True
        self._stop_timer()

    def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            self._advance()

    def clear(self) -> None:
        self._queue.clear()
        self.size = 0
        self._stop_timer()

    def _append(self, not_before: float, spacing: float, data: bytes | None) -> None:
        self._queue.append((not_before, spacing, data))
        self.size += len(data or b"")
        if self._timer is None:
            self._advance()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _advance(self) -> None:
        self._timer = None
        while self._queue and not self._frozen:
            not_before, spacing, data = self._queue[0]
            now = self._clock()
            wait = max(not_before, self._last_left + spacing) - now
            if wait > 0:
                # Checked again at the timer: uvloop rounds timers to milliseconds.
                self._timer = self._loop.call_later(wait, self._advance)
                return
            self._queue.popleft()
            self._last_left = now
            if data is None:
                self._ended()
                return
            self.size -= len(data)
            self._deliver(data)


# --- The faults and the counters of a fault proxy. No I/O -----------------------------------------

HALF = -1  # a FrameFault.keep of half of the frame


class Frame(NamedTuple):
    """A request or a response in the proxy, for the predicates of faults.

    ``size`` is the number of bytes including the 4-byte size field. A response has the API key and
    correlation id of its request. ``connection`` counts from 1 per proxy.
    """

    api_key: int
    api_version: int
    correlation_id: int
    size: int
    connection: int


class WhichFrames(TypedDict, total=False):
    """The frames to which a fault applies, and how often; see :class:`FrameFault`."""

    when: Callable[[Frame], bool] | None
    every: int
    times: int | None


@dataclass(slots=True, kw_only=True)
class FrameFault:
    """Corrupts or truncates matching frames.

    A frame matches if it has ``api_key`` (None: any) and satisfies ``when``. The fault applies to
    every ``every``-th matching frame, at most ``times`` times (None: until healed). ``xor`` maps
    the offset of a byte to the mask for XOR. ``keep`` is the number of bytes to forward before the
    connection is cut (``HALF``: half of the frame; None: forward all and do not cut). Offset 0 is
    the first byte of the size field; negative offsets count from the frame's end."""

    api_key: int | None = None
    when: Callable[[Frame], bool] | None = None
    every: int = 1
    times: int | None = 1
    keep: int | None = None
    xor: Mapping[int, int] = field(default_factory=dict)
    reset: bool = False
    hits: int = 0
    """The number of frames to which the fault was applied."""
    _seen: int = 0

    @property
    def spent(self) -> bool:
        """Whether the fault will not apply to any more frames."""
        return self.times is not None and self.hits >= self.times

    def claims(self, frame: Frame) -> bool:
        """Count a matching frame. Returns whether the fault applies to it."""
        if self.spent or (self.api_key is not None and frame.api_key != self.api_key):
            return False
        if self.when is not None and not self.when(frame):
            return False
        self._seen += 1
        if self._seen % self.every:
            return False
        self.hits += 1
        return True


class SpoiledFrame:
    """Applies a fault to the bytes of one frame, chunk by chunk."""

    __slots__ = ("_patches", "_position", "keep", "reset")

    def __init__(self, fault: FrameFault, size: int) -> None:
        self.keep: int | None = size // 2 if fault.keep == HALF else fault.keep
        self.reset: bool = fault.reset
        self._position = 0
        self._patches = {
            offset + size if offset < 0 else offset: mask for offset, mask in fault.xor.items()
        }

    @property
    def cuts_here(self) -> bool:
        """Whether all bytes before the cut have been forwarded."""
        return self.keep is not None and self._position >= self.keep

    def apply(self, data: bytes) -> bytes:
        """The bytes to forward for the frame's next bytes."""
        start = self._position
        if self.keep is not None:
            data = data[: max(0, self.keep - start)]
        self._position = end = start + len(data)
        hits = [(offset - start, m) for offset, m in self._patches.items() if start <= offset < end]
        if not hits:
            return data
        patched = bytearray(data)
        for index, mask in hits:
            patched[index] ^= mask
        return bytes(patched)


class Faults:
    """The current faults of a proxy. They are read for every frame, and may change at any time."""

    def __init__(self) -> None:
        self.requests: list[FrameFault] = []
        self.responses: list[FrameFault] = []
        self.heal()

    def heal(self) -> None:
        """Remove all faults."""
        self.service_times: dict[int | None, float] = {}
        self.overlapping = False
        """Whether requests of one connection are served at the same time."""
        self.one_way_s: float = 0.0
        self.stalled = False
        self.requests.clear()
        self.responses.clear()

    def service_time(self, api_key: int) -> float:
        """The delay in seconds of a response; the responses of a connection wait in order."""
        times = self.service_times
        return times.get(api_key, times.get(None, 0.0)) if times else 0.0

    @staticmethod
    def claim(faults: list[FrameFault], frame: Frame) -> FrameFault | None:
        """The first fault that applies to the frame. Removes a spent fault from the list."""
        for fault in faults:
            if fault.claims(frame):
                if fault.spent:
                    faults.remove(fault)
                return fault
        return None


@dataclass(slots=True)
class ProxyCounters:
    """Counts the traffic from clients and from the broker before faults apply."""

    connections: int = 0
    """Accepted client connections."""
    request_bytes: int = 0
    response_bytes: int = 0
    produce_bytes: int = 0
    """Bytes of Produce requests, headers included."""
    requests: Counter[int] = field(default_factory=Counter)
    """By API key."""
    responses: Counter[int] = field(default_factory=Counter)
    """By API key of the request."""

    @property
    def produce_requests(self) -> int:
        return self.requests[ApiKey.PRODUCE]

    def snapshot(self) -> ProxyCounters:
        """A copy that does not change."""
        return copy.deepcopy(self)
