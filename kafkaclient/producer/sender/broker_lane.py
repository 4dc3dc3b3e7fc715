"""One connection to a broker for Produce requests, and the states that the broker can be in."""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.net.pending_request import PendingRequest
from kafkaclient.producer.sender.in_flight_window import PROBE_PATIENCE_S, InFlightWindow
from kafkaclient.producer.settings import node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.net.connection import Connection
    from kafkaclient.net.pending_request import OnDone
    from kafkaclient.producer.batches.batch import ProducerBatch


# --- Which brokers get no records without key, and why: the states of a broker's lane -------------
# ``update_state`` finds a lane's state, and ``current_state`` refines it between two surveys.
# What the producer does differently for a broker in trouble is a column of this table.
#
# To add a reason: a row here, and its condition in ``update_state`` at the same place in the
# order. ``BrokerLoad.excluded`` and the metrics name it from the table.
#
# This table is about a lane: its connection, throttling, slow answers. Whether the broker is alive
# is decided apart from it (``BrokerLiveness``): an overdue broker may be alive.


class LaneState(Enum):
    """``update_state`` finds the first of these states whose condition holds. UNWRITABLE, ON_TRIAL
    and SATURATED are found by ``current_state`` only."""

    # condition, exclusion reason, last resort, keeps reserved batches, resets the share
    DISCONNECTED = "there is no connection", "connection", False, False, True
    THROTTLED = "the broker asked for silence (KIP-219)", "throttled", False, False, False
    UNAVAILABLE = "availability.timeout.ms is exceeded", "availability", False, True, False
    OVERDUE = "the oldest answer is long overdue", "overdue", True, False, True
    SLOW = "far slower than the others, and cooling down", "slow", True, False, True
    UNWRITABLE = "the connection takes no more bytes", None, False, False, False
    ON_TRIAL = "slow, and due for one batch that shows its speed", None, False, True, False
    SATURATED = "the in-flight window is full", None, False, True, False
    HEALTHY = "none of the above", None, False, True, False

    def __init__(
        self,
        condition: str,
        exclusion_reason: str | None,
        last_resort: bool,
        keeps_reserved: bool,
        resets_share: bool,
    ) -> None:
        self.condition = condition
        self.exclusion_reason = exclusion_reason
        """Why the broker gets no unkeyed batches, as ``BrokerLoad.excluded`` and the metric
        ``exclusion-*-total`` name it. None: the broker is not excluded. Batches wait for a busy
        broker that is not excluded, and do not go to an excluded one instead."""
        self.last_resort = last_resort
        """Whether an excluded broker gets unkeyed batches if all brokers of the topic are
        excluded."""
        self.keeps_reserved = keeps_reserved
        """Whether open batches that are reserved for the broker's partitions stay there."""
        self.resets_share = resets_share
        """Whether the broker's partitions are raised to the average share afterwards, so that the
        broker is not flooded while it catches up."""


# --- One connection to a broker for Produce requests: what is in flight ---------------------------

_LATENCIES_KEPT = 64  # how many latencies the 95th percentile is taken over
_NEWEST_KEPT = 3  # a broker is slow if each of this many latest responses was
_OVERDUE_RATIO = 8  # an answer is overdue after this many times the 95th percentile of latencies
_LATE_RATIO = 2  # an answer is late after this many times the 95th percentile of latencies
_FORGET_LATENCY_S = 5.0  # how long the newest latencies say how soon a broker answers
MIN_OVERDUE_S = 0.05
"""No answer is late or overdue before this many seconds."""
_LEAST_USUAL_S = MIN_OVERDUE_S / _OVERDUE_RATIO  # a shorter 95th percentile counts as this


class ProduceRequest(PendingRequest):
    """A Produce request in flight."""

    __slots__ = ("ahead", "batches", "connection", "lane", "names", "version")

    def __init__(
        self,
        correlation_id: int,
        on_done: OnDone,
        sent_at: float,
        lane: BrokerLane,
        connection: Connection,
        batches: list[ProducerBatch],
        version: int,
        names: Mapping[bytes, str],
    ) -> None:
        super().__init__(correlation_id, on_done, sent_at)
        self.lane = lane
        self.connection = connection
        self.batches = batches
        self.version = version
        self.names = names
        """Topic id -> topic name, for the topics that the request names by id."""
        self.ahead = len(lane.in_flight)
        """How many other requests were in flight when this one was sent."""


class BrokerLane:
    """Java keeps these facts in ``NodeLatencyStats`` and ``InFlightRequests``.

    Times are the clock's, in seconds.
    """

    def __init__(
        self,
        number: int,
        now: float,
        limit: int = 5,
        *,
        fixed_window: bool = False,
        primary: BrokerLane | None = None,
    ) -> None:
        self.number = number
        self.node_id = node_of(number)
        self.primary = primary or self
        """The primary lane to the broker. It counts what both lanes send."""
        self.window = InFlightWindow(limit, fixed=fixed_window)
        self.idle_since = now
        """When the last request in flight ended; meaningless while requests are in flight."""
        self.latencies: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        """Of the latest 64 Produce requests, in seconds. One latency at most doubles the 95th
        percentile of those before it."""
        self._p95_latency: float | None = 0.0
        self.newest_latencies: deque[float] = deque(maxlen=_NEWEST_KEPT)
        """The three newest latencies, as measured. Of requests that were in flight together only
        the first one counts: a stall makes all of them late."""
        self.recent_minimum = 0.0
        """The least of the newest latencies, in seconds; 0.0 while there are too few. One fast
        answer is enough to show that the broker has recovered."""
        self.in_flight: deque[ProduceRequest] = deque()
        """Requests without an answer, oldest first."""
        self.ignore_disconnect = False
        """Do not count the next disconnect against the broker: the connection was idle long enough
        for the broker to close it, or the producer is closing it."""
        self.connection: Connection | None = None
        """The connection, as of the last survey."""
        self.state = LaneState.HEALTHY
        """The state as of the last look."""
        self.share_reset_due = False
        """Whether the broker's partitions are to be raised to the average share once the broker
        has recovered."""
        self.exclusions: Counter[LaneState] = Counter()
        """How often the lane entered each state that excludes the broker."""
        self.bytes_sent = 0
        self.requests_sent = 0
        self._ready_at = now  # when a batch was last ready for the lane (Java: readyTimeMs)
        self._able_at = now  # when the lane could last take such a batch (Java: drainTimeMs)
        self._measured_at = self._response_at = now

    def __repr__(self) -> str:
        which = "" if self.primary is self else "side "
        connected = self.connection is not None and not self.connection.closed
        state = self.state if connected else LaneState.DISCONNECTED
        in_flight = f"in_flight={len(self.in_flight)}"
        return f"<BrokerLane {which}to broker {self.node_id} {state.name} {in_flight}>"

    def can_take(self, connection: Connection | None, window_size: int, now: float) -> bool:
        """Whether the broker can take a request now. ``window_size``: how many may be in flight, at
        times another number than ``self.window.size``."""
        return (
            connection is not None
            and connection.writable
            and connection.throttled_until <= now
            and len(self.in_flight) < window_size
        )

    def free_slots(self, has_large: bool, now: float) -> int:
        """Free places in the window. 0: window full, but one extra request is allowed. -1: nothing
        may be sent.

        ``has_large``: a large batch waits for any lane."""
        window, in_flight = self.window, len(self.in_flight)
        busy_for = now - max(self.idle_since, window.probed_at)
        if window.must_measure_alone:
            return -1
        if busy_for > PROBE_PATIENCE_S and window.must_idle_for_probe(busy_for, self.p95_latency):
            return -1
        # Large batches keep the network itself busy: the next one goes out behind the first.
        free = min(window.limit, window.size + has_large) - in_flight
        return free if free > 0 or (free == 0 and in_flight < window.limit) else -1

    @property
    def paced_until(self) -> float:
        """When the next request may follow the last one. A broker that serves requests side by
        side gets them at even distances. Otherwise all would be sent and answered together, and a
        record that comes in between would wait for a whole latency."""
        window, in_flight = self.window, self.in_flight
        if not window.side_by_side or not in_flight:
            return 0.0
        return in_flight[-1].sent_at + self.recent_minimum / window.limit

    def note_readiness(self, able: bool, now: float) -> None:
        """KIP-794: a batch is ready for the lane, which is ``able`` to take it or not."""
        self._ready_at = now
        if able:
            self._able_at = now

    @property
    def unavailable_for(self) -> float:
        """KIP-794: for how many seconds the lane could not take what was ready for it."""
        return self._ready_at - self._able_at

    def enter(self, state: LaneState) -> None:
        """Note the lane's state, and count the exclusion that begins with it."""
        before, self.state = self.state, state
        if state is before or state.exclusion_reason is None:
            return
        if self.requests_sent or state is not LaneState.DISCONNECTED:  # else never connected
            self.exclusions[state] += 1

    def request_sent(self, request: ProduceRequest | None, nbytes: int) -> None:
        """A request of ``nbytes`` bytes was written; None: no answer will come (acks=0)."""
        if request is not None:
            self.in_flight.append(request)
        self.primary.requests_sent += 1
        self.primary.bytes_sent += nbytes

    def pop_in_flight(self, now: float) -> None:
        """The oldest request was answered, or never will be."""
        self.in_flight.popleft()
        if not self.in_flight:
            self.idle_since = now

    def record_latency(self, latency: float, ahead: int, now: float) -> None:
        """A request was answered after ``latency`` seconds; ``ahead`` others had been in flight
        when it was sent."""
        if latency <= MIN_OVERDUE_S or latency <= self.overdue_after:
            self.window.on_response(latency, ahead)  # a stall says nothing about the broker's speed
        self.window.compare(latency, ahead, self._response_at - (now - latency))
        self._response_at = now
        if now - latency >= self._measured_at:
            self._measured_at = now
            self.newest_latencies.append(latency)
            if len(self.newest_latencies) == _NEWEST_KEPT:
                self.recent_minimum = min(self.newest_latencies)
        # One answer may at most double what is usual: a broker that came back from a stall must
        # not be granted as long a stall the next time.
        if latency > 2 * _LEAST_USUAL_S:
            latency = min(latency, 2 * max(self.p95_latency, _LEAST_USUAL_S))
        self.latencies.append(latency)
        self._p95_latency = None

    @property
    def p95_latency(self) -> float:
        """The median of the slowest tenth of latencies, in seconds; 0.0 before the first answer.
        ``overdue_after`` depends on it, and one late answer must not raise that. Rarely asked for
        while answers come fast, so it is not kept up to date."""
        if self._p95_latency is None:
            slowest = max(1, len(self.latencies) // 10)
            self._p95_latency = sorted(self.latencies)[slowest // 2 - slowest]
        return self._p95_latency

    @property
    def overdue_after(self) -> float:
        """An answer is overdue after this many seconds."""
        return max(MIN_OVERDUE_S, _OVERDUE_RATIO * self.p95_latency)

    def expected_latency(self, now: float) -> float:
        """How soon the broker would answer a request sent now, in seconds; 0.0: it has to show.

        The least of the newest latencies counts, once for each request in flight and the new one
        unless the broker serves them side by side. It is forgotten after some seconds without an
        answer: so a broker that gets no records because it was slow is tried again.
        """
        if now - self._measured_at > _FORGET_LATENCY_S:
            return 0.0
        ahead = 0 if self.window.side_by_side else len(self.in_flight)
        return self.recent_minimum * (1 + ahead)

    def oldest_wait(self, now: float, unblocked_since: float) -> float:
        """For how many seconds the oldest request has been waiting while the event loop could read
        its answer (see :class:`~kafkaclient.producer.wakeup.LoopMonitor`)."""
        if not self.in_flight:
            return 0.0
        return now - max(self.in_flight[0].sent_at, unblocked_since)

    @property
    def late_after(self) -> float:
        """An answer is late after this many seconds. Counts only if another sign says that the
        answer will not come (a dead replica)."""
        return max(MIN_OVERDUE_S, _LATE_RATIO * self.p95_latency)

    @property
    def median_latency(self) -> float | None:
        """The median latency of the latest Produce requests, in seconds; None before the first
        answer."""
        return median(self.latencies) if self.latencies else None


def median(values: Iterable[float]) -> float:
    """As ``statistics.median``, whose module takes longer to import than this package's sender."""
    ordered: list[float] = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
