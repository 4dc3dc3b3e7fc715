"""One broker's outgoing side: requests in flight, and how well the broker keeps up."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.producer.lane_id import node_of
from kafkaclient.producer.sender.in_flight_window import InFlightWindow
from kafkaclient.producer.timing import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.net.connection import Connection
    from kafkaclient.producer.batches.batch import ProducerBatch

__all__ = ["LEAST_PATIENCE", "BrokerLane", "Exclusion", "Request"]

_RECENT, _LATEST = 64, 3
# An answer is overdue after this many times the usual latency, but not before LEAST_PATIENCE (in
# seconds).
_PATIENCE, _SUSPICION = 8, 2
LEAST_PATIENCE = 0.05


class Exclusion(Enum):
    """Why a broker gets no batch that could go elsewhere."""

    CONNECTION = "there is no connection to it"
    THROTTLED = "it asked for silence (KIP-219)"
    OVERDUE = "its oldest answer is long overdue"
    SLOW = "it takes far longer than the others; it gets a batch now and then"
    AVAILABILITY = "its oldest answer took longer than availability.timeout.ms"


class Request(NamedTuple):
    """A Produce request in flight."""

    lane: BrokerLane
    connection: Connection
    batches: list[ProducerBatch]
    version: int
    sent_at: float
    ahead: int
    """How many others were in flight when it left."""
    names: Mapping[bytes, str]
    """The topics that it names by id."""


class BrokerLane:
    """Java keeps these facts in ``NodeLatencyStats`` and ``InFlightRequests``.

    Times are the clock's, in seconds. ``awake_since`` is when the event loop was last known to
    be blocked (:class:`~kafkaclient.producer.sender.loop_monitor.LoopMonitor`).
    """

    __slots__ = (
        "_able_at",
        "_asked_at",
        "_judged_at",
        "_sorted",
        "bytes_sent",
        "connection",
        "exclusion",
        "exclusions",
        "idle_at",
        "ignore_disconnect",
        "in_flight",
        "latest_latencies",
        "node_id",
        "number",
        "primary",
        "probed_at",
        "recent_latencies",
        "requests_sent",
        "was_excluded",
        "window",
    )

    def __init__(
        self,
        number: int,
        now: float,
        limit: int = 5,
        *,
        fixed_window: bool = False,
        main: BrokerLane | None = None,
    ) -> None:
        self.number = number
        self.node_id = node_of(number)
        self.primary = main or self
        """The first lane to the broker, which counts what goes out by both."""
        self.window = InFlightWindow(limit, fixed=fixed_window)
        self.probed_at = -NEVER
        """When the network's round trip was last asked for."""
        self.idle_at = now
        """When nothing was last in flight."""
        self.recent_latencies: deque[float] = deque()
        """The latest latencies of Produce requests, in seconds."""
        self.latest_latencies: deque[float] = deque(maxlen=_LATEST)
        """The very latest, as they were, but of requests that were under way together only the
        first: a stall makes all of them late."""
        self._sorted: list[float] = []
        """The same by size."""
        self.in_flight: deque[Request] = deque()
        """Oldest first."""
        self.ignore_disconnect = False
        """Whether the end of the connection would say nothing about the broker: what is in flight
        followed upon a long silence, after which the broker may have closed it before, or we close
        it ourselves."""
        self.connection: Connection | None = None
        """As of the last look."""
        self.was_excluded = False
        """Whether the broker was out of order since it was last told to be back."""
        self.exclusion: Exclusion | None = None
        """Why the broker gets no batch that could go elsewhere, as of the last look."""
        self.exclusions: Counter[Exclusion] = Counter()
        """How often that began."""
        self.bytes_sent = 0
        self.requests_sent = 0
        self._asked_at = now
        self._able_at = now
        self._judged_at = now

    def __repr__(self) -> str:
        which = "" if self.primary is self else "side "
        return f"<BrokerLane {which}to broker {self.node_id} in_flight={len(self.in_flight)}>"

    def can_take(self, connection: Connection | None, window: int, now: float) -> bool:
        """Whether the broker can take a request now."""
        return (
            connection is not None
            and connection.writable
            and connection.throttled_until <= now
            and len(self.in_flight) < window
        )

    @property
    def healthy(self) -> bool:
        """Whether the broker would take a request if it had not enough of them, as of the last
        look. With acks=0 a connection that takes no more is all that tells of a stall."""
        connection = self.connection
        slow_or_well = self.exclusion in (None, Exclusion.AVAILABILITY)
        return slow_or_well and connection is not None and connection.writable

    # --- unavailable, as KIP-794 has it ---------------------------------------------------------

    def note_readiness(self, *, able: bool, now: float) -> None:
        """Remember that a batch was ready for the broker, and whether it could be sent."""
        self._asked_at = now
        if able:
            self._able_at = now

    @property
    def unavailable_for(self) -> float:
        """How long the broker has not been able to take what was ready for it."""
        return self._asked_at - self._able_at

    # --- overdue, as late binding has it --------------------------------------------------------

    def exclude(self, why: Exclusion | None) -> None:
        """Take note of why the broker is left out; None: it is not."""
        before, self.exclusion = self.exclusion, why
        if why is None or why is before:
            return
        if self.requests_sent or why is not Exclusion.CONNECTION:  # else it was never connected
            self.exclusions[why] += 1

    def pop_in_flight(self, now: float) -> None:
        """The oldest request has been answered, or never will be."""
        self.in_flight.popleft()
        if not self.in_flight:
            self.idle_at = now

    def record_latency(self, latency: float, now: float) -> None:
        """A request was answered. One answer may at most double what is usual: a broker that
        came back from a stall must not be granted as long a stall the next time."""
        if now - latency >= self._judged_at:
            self._judged_at = now
            self.latest_latencies.append(latency)
        latency = min(latency, 2 * max(self.p95_latency(), LEAST_PATIENCE / _PATIENCE))
        if len(self.recent_latencies) == _RECENT:
            del self._sorted[bisect_left(self._sorted, self.recent_latencies.popleft())]
        self.recent_latencies.append(latency)
        insort(self._sorted, latency)

    def oldest_wait(self, now: float, awake_since: float) -> float:
        """For how long the oldest request has been waited for, while we could have heard of it."""
        if not self.in_flight:
            return 0.0
        return now - max(self.in_flight[0].sent_at, awake_since)

    @property
    def overdue_after(self) -> float:
        """After how many seconds an answer is overdue."""
        return max(LEAST_PATIENCE, _PATIENCE * self.p95_latency())

    def overdue(self, waited: float) -> bool:
        """Whether the oldest request should have been answered long ago."""
        return waited > LEAST_PATIENCE and waited > self.overdue_after

    def late(self, waited: float) -> bool:
        """Whether it takes longer than usual: enough if there is a reason to think that it will
        not be answered."""
        return waited > LEAST_PATIENCE and waited > _SUSPICION * self.p95_latency()

    @property
    def recent_minimum(self) -> float:
        """What the latest few took, each of them, in seconds; one that is fast is enough to tell
        that the broker is well again."""
        return min(self.latest_latencies) if len(self.latest_latencies) == _LATEST else 0.0

    @property
    def median_latency(self) -> float | None:
        """Of the latest Produce requests, in seconds; None before the first answer."""
        return median(self.recent_latencies) if self.recent_latencies else None

    def p95_latency(self) -> float:
        """The median of the slowest tenth: one answer that was late must not make us patient."""
        known = len(self._sorted)
        slow = max(1, known // 10)
        return self._sorted[known - slow + slow // 2] if known else 0.0
