"""Computes how many requests a broker should have in flight (``BrokerLane`` applies it).

Enough to hide the network, and no more.

A broker serves one request of a connection at a time. Requests in flight beyond the first only hide
the network's round trip. More requests than that merely queue up at the broker, which may turn out
to be the slow one.

Some brokers serve the requests of a connection side by side, at the same time (those that write to
an object store). Then a request sent closely behind another one takes no longer than one alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkaclient.net.pending_request import PendingRequest
from kafkaclient.producer.settings import NEVER
from kafkaclient.wire.api_versions import ApiVersionsCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.net.connection import Connection

_SMOOTHING = 0.2  # the weight of a new service time in their average
_ROUND_TRIPS_KEPT = 3  # how many measured round trips the least one is taken of
_LEAST_SERVICE_S = 0.0001  # a shorter service time is below the grain of clock and event loop
_QUEUEING_SMOOTHING = 0.5  # the weight of a new request in ``queueing``
_LEAST_SHARED = 0.25  # two requests are compared if both are in flight for this part of a latency
_LEAST_SHARED_S = 0.01  # ... and for at least this many seconds, far more than a disturbance
# A broker serves side by side once ``_queueing`` is below the first, until it is above the second.
_SIDE_BY_SIDE = (0.4, 0.6)
_ALONE_KEPT = 3  # how many latencies of requests alone the least one is taken of
_AS_ALONE = 0.8  # ... it is out of date if a request behind others takes less than this part
# After how many responses two requests are compared again: the first number, which is doubled up to
# the second each time that the broker has served them one by one.
_COMPARED_EVERY = (4, 64)
_NEW_NETWORK_RATIO = 2.0  # a round trip that grew by this factor voids the service time

_PROBE_INTERVAL_S = 0.5  # how often the round trip is measured
_DOUBTFUL_PROBE_INTERVAL_S = 0.1  # how often while the latest round trips disagree
PROBE_PATIENCE_S = 2.0
"""A probe waits for an idle connection for this many seconds at least."""
_PROBE_PATIENCE_RATIO = 40  # ... or this many times the 95th percentile of latencies, if longer


class InFlightWindow:
    """``1 + round trip / service time``, at least 1 and at most ``limit``. Times in seconds.

    Until both are known the size is 1. It is ``limit`` if the broker serves requests side by side.
    ``fixed`` leaves it at ``limit`` and measures nothing.
    """

    def __init__(self, limit: int, *, fixed: bool = False) -> None:
        self.limit = limit
        self.fixed = fixed
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS_KEPT)
        self.round_trip: float | None = None
        """The network's round trip: the least of the latest few measurements, because a
        disturbance makes a measurement longer."""
        self.service: float | None = None
        """How long the broker works on one Produce request, smoothed."""
        self.side_by_side = False
        """Whether the broker serves the requests of a connection at the same time."""
        self._alone: deque[float] = deque(maxlen=_ALONE_KEPT)
        """The newest latencies of requests with no other in flight."""
        self.must_measure_alone = False
        """Whether the next request waits until none is in flight: how long one alone takes now has
        to be known, to find out whether the broker serves requests side by side."""
        self._queueing: float | None = None
        """How much later a request with others ahead was answered than one alone, as a part of
        the time that it shared with them; smoothed. A broker that serves one by one has 1, one
        that serves side by side 0."""
        self._compared_every = _COMPARED_EVERY[0]
        self._responses_until_compared = 0
        self.probed_at = -NEVER
        """When the round trip was last measured."""

    def __repr__(self) -> str:
        return f"<InFlightWindow {self.size} of {self.limit}>"

    @property
    def size(self) -> int:
        """How many requests the broker should have in flight."""
        if self.fixed or self.side_by_side:
            return self.limit
        return self._size_for(self.round_trip)

    @property
    def round_trip_doubtful(self) -> bool:
        """Whether the round trip should be measured again soon: there are too few measurements, or
        the latest one, taken alone, gives another size."""
        if len(self._round_trips) < _ROUND_TRIPS_KEPT:
            return True
        latest = self._round_trips[-1]
        return latest != self.round_trip and self._size_for(latest) != self.size

    def on_round_trip(self, round_trip: float) -> None:
        """A probe took this long on an idle connection."""
        before = self.round_trip
        after = self._add(round_trip)
        if before is not None and after > _NEW_NETWORK_RATIO * before:
            self.service = None

    def on_response(self, latency: float, ahead: int) -> None:
        """A Produce request was answered; ``ahead`` others had been in flight when it left."""
        round_trip = self.round_trip
        if round_trip is None:
            return
        if latency < round_trip:  # the network became faster
            round_trip = self._add(latency)
        service = (latency - round_trip) / (1 + ahead)
        service = max(service, _LEAST_SERVICE_S)
        if self.service is None:
            self.service = service
        else:
            self.service += _SMOOTHING * (service - self.service)

    def compare(self, latency: float, ahead: int, shared: float) -> None:
        """Find out from an answered request whether the broker serves requests side by side.

        ``ahead``: how many others were in flight when it was sent. ``shared``: for how many seconds
        the last of these was in flight together with it."""
        if self.fixed:
            return  # its size does not depend on it, and neither does the time between requests
        self._responses_until_compared -= 1
        if not ahead:
            self._alone.append(latency)
            self.must_measure_alone = False
        if not ahead or not self._alone:
            return
        alone = min(self._alone)
        if latency < _AS_ALONE * alone:
            self._alone.clear()
            # A broker that gets large batches without a pause would have none alone for long.
            self.must_measure_alone = not self.side_by_side and latency >= 2 * _LEAST_SHARED_S
            return
        if shared < _LEAST_SHARED_S or shared < _LEAST_SHARED * alone:
            return
        queued = min(1.0, max(0.0, (latency - alone) / shared))
        if self._queueing is None:
            self._queueing = queued
        self._queueing += _QUEUEING_SMOOTHING * (queued - self._queueing)
        was_side_by_side, (below, above) = self.side_by_side, _SIDE_BY_SIDE
        self.side_by_side = self._queueing < (above if was_side_by_side else below)
        least, most = _COMPARED_EVERY
        if self.side_by_side:
            self._compared_every = max(least, self._compared_every // 2)
        elif was_side_by_side:
            # Or it became slower: under load no request is alone, so what is known is old.
            self._alone.clear()
            self.must_measure_alone = True
            self._queueing, self._responses_until_compared = None, 0
        elif queued > above:
            self._responses_until_compared = self._compared_every
            self._compared_every = min(most, 2 * self._compared_every)

    def is_comparison_due(self, elapsed: float) -> bool:
        """Whether to find out how the broker serves requests, with a second request behind the one
        that was sent ``elapsed`` seconds ago."""
        if not self._alone or self._responses_until_compared > 0:
            return False
        alone = min(self._alone)
        shared = alone - elapsed
        return (
            not self.side_by_side
            and shared >= 2 * _LEAST_SHARED_S
            and shared >= _LEAST_SHARED * alone
        )

    def must_idle_for_probe(self, busy_for: float, p95_latency: float) -> bool:
        """Whether the connection must fall idle for a probe: it was busy for ``busy_for`` seconds,
        more than ``PROBE_PATIENCE_S``, and a connection that is never idle cannot be probed."""
        return not self.fixed and busy_for > _PROBE_PATIENCE_RATIO * p95_latency

    def is_probe_due(self, now: float) -> bool:
        """Whether the round trip should be measured, as soon as the connection is idle."""
        if self.fixed:
            return False
        waited = now - self.probed_at
        return waited >= _PROBE_INTERVAL_S or (
            waited >= _DOUBTFUL_PROBE_INTERVAL_S and self.round_trip_doubtful
        )

    def _add(self, round_trip: float) -> float:
        self._round_trips.append(round_trip)
        self.round_trip = least = min(self._round_trips)
        return least

    def _size_for(self, round_trip: float | None) -> int:
        if round_trip is None or self.service is None:
            return 1
        return max(1, min(self.limit, 1 + round(round_trip / self.service)))


def probe_round_trip(
    window: InFlightWindow,
    connection: Connection,
    client_id: str,
    seconds_since: Callable[[float], float | None],
    now: float,
) -> None:
    """Send a probe: a call that costs the broker almost nothing, on an idle connection ahead of a
    Produce request. Its duration is the network's round trip.

    ``seconds_since(now)`` returns the seconds since ``now``, or None if the event loop was blocked.
    """
    version = connection.api_versions_version
    if connection.in_flight or version is None:
        return

    def on_done(
        _request: PendingRequest, payload: memoryview | None, _error: KafkaError | None
    ) -> None:
        round_trip = seconds_since(now)
        if payload is not None and round_trip is not None:
            window.on_round_trip(round_trip)

    window.probed_at = now
    probe = PendingRequest(connection.next_correlation_id(), on_done, now, "ApiVersions")
    request = ApiVersionsCall().encode(version, probe.correlation_id, client_id)
    connection.send([request], probe)
