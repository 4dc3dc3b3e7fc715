"""How many requests a broker should have in flight: enough to hide the network, and no more.

A broker serves one request of a connection at a time. Requests in flight beyond the first only hide
the network's round trip; more than that merely stand in line there, bound to a broker that may
turn out to be the slow one.
"""

from __future__ import annotations

from collections import deque

__all__ = ["InFlightWindow"]

_SMOOTHING = 0.2
_ROUND_TRIPS = 3
# Below this the clock and the event loop's own grain are all that is measured (seconds).
_LEAST_SERVICE = 0.0001
# A round trip that changed by this factor is another network: what was learnt is void.
_STEP = 2.0


class InFlightWindow:
    """``1 + round trip / service time``, at least 1 and at most ``limit``. Times in seconds.

    Until something is known it is 1. ``fixed`` leaves it at ``limit``, whatever is measured.
    """

    __slots__ = ("_fixed", "_round_trips", "limit", "needs_probe", "round_trip", "service", "size")

    def __init__(self, limit: int, *, fixed: bool = False) -> None:
        self.limit = limit
        self._fixed = fixed
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self.round_trip: float | None = None
        """Of a light request that waits for nothing: the least of the latest few, because
        whatever disturbs one makes it longer."""
        self.service: float | None = None
        """What one Produce request takes on the broker, smoothed."""
        self.size = 1
        """How many requests the broker should have in flight."""
        self.needs_probe = True
        """Whether the latest round trip would change the window if the others agreed with it:
        then it should be measured again soon."""
        self._weigh()

    def __repr__(self) -> str:
        return f"<InFlightWindow {self.size} of {self.limit}>"

    def on_round_trip(self, round_trip: float) -> None:
        """A light request took this long on an otherwise quiet connection."""
        before = self.round_trip
        after = self._add(round_trip)
        if before is not None and after > _STEP * before:
            self.service = None
        self._weigh()

    def on_response(self, latency: float, ahead: int) -> None:
        """A Produce request was answered; ``ahead`` others had been in flight when it left."""
        round_trip = self.round_trip
        if round_trip is None:
            return
        if latency < round_trip:  # the network has become faster since
            round_trip = self._add(latency)
        service = (latency - round_trip) / (1 + ahead)
        service = max(service, _LEAST_SERVICE)
        if self.service is None:
            self.service = service
        else:
            self.service += _SMOOTHING * (service - self.service)
        self._weigh()

    def _add(self, round_trip: float) -> float:
        self._round_trips.append(round_trip)
        self.round_trip = least = min(self._round_trips)
        return least

    def _weigh(self) -> None:
        self.size = self.limit if self._fixed else self._worth(self.round_trip)
        latest = self._round_trips[-1] if self._round_trips else None
        self.needs_probe = len(self._round_trips) < _ROUND_TRIPS or (
            latest != self.round_trip and self._worth(latest) != self.size
        )

    def _worth(self, round_trip: float | None) -> int:
        if round_trip is None or self.service is None:
            return 1
        return max(1, min(self.limit, 1 + round(round_trip / self.service)))
