"""What a fault proxy does to the traffic, and what it counts: plain state, no I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["HALF", "Faults", "Frame", "FrameFault", "HowOften", "ProxyCounters", "WhichFrames"]

HALF = -1
"""A :attr:`FrameFault.keep` that stands for half of the frame."""


class Frame(NamedTuple):
    """A request or a response passing the proxy, as fault predicates see it.

    ``size`` is the whole frame's, its 4-byte size field included; API and correlation id of a
    response are those of the request it answers. ``connection`` counts from 1 per proxy.
    """

    api_key: int
    api_version: int
    correlation_id: int
    size: int
    connection: int


class HowOften(TypedDict, total=False):
    """How often a fault hits; see :class:`FrameFault`."""

    every: int
    times: int | None


class WhichFrames(HowOften, total=False):
    """Which frames a fault hits; see :class:`FrameFault`."""

    when: Callable[[Frame], bool] | None


@dataclass(slots=True, kw_only=True)
class FrameFault:
    """Spoils chosen frames: bytes are changed, or the connection ends inside or before them.

    Of the frames that have the API key ``api_key`` (None: any) and satisfy ``when``, every
    ``every``-th is hit, ``times`` times in all (None: until healed). A frame that is hit has its
    byte at each offset of ``xor`` combined with the mask given there, and is forwarded up to
    ``keep`` bytes, after which the connection is cut (``HALF``: half of it; None: it is forwarded
    whole and nothing is cut). Offset 0 is the first byte of the size field, negative offsets
    count from the frame's end.
    """

    api_key: int | None = None
    when: Callable[[Frame], bool] | None = None
    every: int = 1
    times: int | None = 1
    keep: int | None = None
    xor: Mapping[int, int] = field(default_factory=dict)
    reset: bool = False
    hits: int = 0
    """How many frames were hit so far."""
    _seen: int = 0

    @property
    def spent(self) -> bool:
        """True when it will not hit again."""
        return self.times is not None and self.hits >= self.times

    def claims(self, frame: Frame) -> bool:
        """Count the frame, and say whether it is one to hit."""
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
    """One frame on its way, hit by a fault: applies it to the frame's bytes piece by piece."""

    __slots__ = ("_patches", "_position", "keep", "reset")

    def __init__(self, fault: FrameFault, size: int) -> None:
        self.keep = size // 2 if fault.keep == HALF else fault.keep
        self.reset = fault.reset
        self._position = 0
        self._patches = {
            offset + size if offset < 0 else offset: mask for offset, mask in fault.xor.items()
        }

    @property
    def cuts_here(self) -> bool:
        """True when all bytes that may pass have passed."""
        return self.keep is not None and self._position >= self.keep

    def apply(self, data: bytes) -> bytes:
        """The part of the frame's next bytes that passes."""
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
    """The faults in force on a whole proxy; read for every frame, changed at any time."""

    def __init__(self) -> None:
        self.requests: list[FrameFault] = []
        self.responses: list[FrameFault] = []
        self.heal()

    def heal(self) -> None:
        """No fault at all."""
        self.service_times: dict[int | None, float] = {}
        self.one_way_s = 0.0
        self.stalled = False
        self.requests.clear()
        self.responses.clear()

    def service_time(self, api_key: int) -> float:
        """Seconds added to a response, one after the other on its connection."""
        times = self.service_times
        return times.get(api_key, times.get(None, 0.0)) if times else 0.0

    @staticmethod
    def claim(faults: list[FrameFault], frame: Frame) -> FrameFault | None:
        """The first fault that hits the frame; a fault that is spent leaves the list."""
        for fault in faults:
            if fault.claims(frame):
                if fault.spent:
                    faults.remove(fault)
                return fault
        return None


@dataclass(slots=True)
class ProxyCounters:
    """What came in from clients and from the broker, faults or not; all start at 0."""

    connections: int = 0
    """Client connections accepted."""
    request_bytes: int = 0
    response_bytes: int = 0
    produce_bytes: int = 0
    """Bytes of Produce requests, headers included."""
    requests: Counter[int] = field(default_factory=Counter)
    """By API key."""
    responses: Counter[int] = field(default_factory=Counter)
    """By API key of the request answered."""

    @property
    def produce_requests(self) -> int:
        return self.requests[ApiKey.PRODUCE]

    def snapshot(self) -> ProxyCounters:
        """A copy that stands still."""
        return ProxyCounters(
            self.connections,
            self.request_bytes,
            self.response_bytes,
            self.produce_bytes,
            Counter(self.requests),
            Counter(self.responses),
        )
