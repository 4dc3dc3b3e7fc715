"""All lanes: the state of each broker (overdue, slow, ...), which can take a request now, and which
KIP-794 leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.errors import AuthenticationError
from kafkaclient.producer.sender.broker_lane import MIN_OVERDUE_S, BrokerLane, LaneState, median
from kafkaclient.producer.sender.liveness import BELIEVED_S
from kafkaclient.producer.settings import NEVER, node_of

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.router import Router
    from kafkaclient.net.connection import Connection
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.sender.liveness import BrokerLiveness
    from kafkaclient.producer.settings import SenderSettings


# --- Which brokers KIP-794 leaves out -------------------------------------------------------------


class Kip794Outages:
    """``timeout`` is availability.timeout.ms in seconds."""

    def __init__(self, lanes: BrokerLanes, router: Router, timeout: float) -> None:
        self._lanes = lanes
        self._router = router
        self._timeout = timeout
        self.unavailable: frozenset[int] = frozenset()
        """The lanes that were unavailable for longer than the timeout, as of the last update."""

    def surveyed(self, wanted: Iterable[int], available: Collection[int], now: float) -> None:
        """Batches are ready for the ``wanted`` lanes; the ``available`` ones can take them."""
        for number in wanted:
            self._lanes.lane(number, now).note_readiness(able=number in available, now=now)

    def update(self, ready_queues: ReadyQueues, now: float) -> frozenset[int]:
        """Find the unavailable lanes at the end of a pass."""
        found = []
        for lane in self._lanes:
            # A lane with nothing ready was not surveyed in this pass.
            if not ready_queues.ready.get(lane.number):
                if lane.in_flight and ready_queues.blocked[lane.number]:
                    # What could be ready waits for the answers that the broker owes.
                    lane.note_readiness(able=False, now=now)
                elif lane.number in self.unavailable and self._can_take(lane, now):
                    # Looked at all the same, or an excluded broker would never be back.
                    lane.note_readiness(able=True, now=now)
            if lane.unavailable_for > self._timeout:
                found.append(lane.number)
        self.unavailable = frozenset(found)
        return self.unavailable

    def _can_take(self, lane: BrokerLane, now: float) -> bool:
        side = lane.primary is not lane
        connection = self._router.produce_connection(lane.node_id, side=side)
        return lane.can_take(connection, lane.window.limit, now)


# --- All brokers' lanes: which of them can take a request now -------------------------------------

_REFRESH_INTERVAL_S = 1.0  # how often overdue answers request metadata at most
_SLOW_LATENCY_S = 0.1  # a broker is slow if each of its latest answers took at least this long
_SLOW_RATIO = 8  # ... and at least this many times the median of the other brokers
_HEALTHY = LaneState.HEALTHY  # an Enum's member costs a Python call before Python 3.12
_COOL_DOWN_RATIO = 4  # a slow broker rests for this many latencies between two batches


class BrokerSurvey:
    """The lanes at one moment, by their numbers."""

    __slots__ = (
        "available",
        "eligible",
        "expected_latency",
        "last_resort",
        "liveness_pending",
        "next_look",
        "saturated",
    )

    def __init__(
        self,
        available: dict[int, Connection],
        saturated: Collection[int],
        eligible: AbstractSet[int],
        last_resort: Collection[int],
        next_look: float,
        liveness_pending: bool = False,
        expected_latency: Mapping[int, float] | None = None,
    ) -> None:
        self.available = available
        """The lanes that can take a request now."""
        self.expected_latency = expected_latency or {}
        """By available lane: how soon the broker would answer, in seconds."""
        self.saturated = saturated
        """Available lanes whose in-flight window is full. They take one extra request, for
        partitions of that broker only."""
        self.eligible = eligible
        """The lanes that are not excluded, available or not."""
        self.last_resort = last_resort
        """The lanes that are excluded only because the broker is slow to answer."""
        self.next_look = next_look
        """When to survey again although nothing wakes the sender."""
        self.liveness_pending = liveness_pending
        """A liveness probe is pending: wait for it before falling back to an overdue broker."""


class BrokerLanes:
    """The lanes by their numbers (settings.py), made when they are first asked for.

    A state may reset the broker's share (:class:`LaneState`). When such a broker recovers,
    ``accumulator`` raises its partitions to the average share."""

    def __init__(
        self,
        router: Router,
        metadata: Metadata,
        settings: SenderSettings,
        liveness: BrokerLiveness,
        accumulator: RecordAccumulator,
    ) -> None:
        self._lanes: dict[int, BrokerLane] = {}
        self.side_lanes: set[int] = set()
        """The side lanes that exist."""
        self._router = router
        self._metadata = metadata
        self._settings = settings
        self._liveness = liveness
        self._accumulator = accumulator
        self._unavailable_after = settings.availability_timeout or NEVER
        self._refreshed_at = -NEVER

    def __iter__(self) -> Iterator[BrokerLane]:
        return iter(self._lanes.values())

    def get(self, number: int) -> BrokerLane | None:
        return self._lanes.get(number)

    def lane(self, number: int, now: float) -> BrokerLane:
        lane = self._lanes.get(number)
        if lane is None:
            settings, primary = self._settings, None
            if number != node_of(number):
                primary = self.lane(node_of(number), now)
                self.side_lanes.add(number)
            lane = self._lanes[number] = BrokerLane(
                number,
                now,
                settings.max_in_flight,
                fixed_window=not settings.adaptive_window,
                primary=primary,
            )
        return lane

    def close_unused_side_lanes(self, needed: Container[int]) -> None:
        """Close the side connections that no partition uses any more."""
        for lane in [self._lanes[number] for number in self.side_lanes]:
            if lane.number not in needed and not lane.in_flight:
                self.side_lanes.remove(lane.number)
                del self._lanes[lane.number]
                self._router.close_side(lane.node_id)

    def in_flight_of(self, number: int) -> tuple[int, int]:
        """How many requests a lane has in flight, and its in-flight window."""
        lane = self._lanes.get(number)
        return (0, 1) if lane is None else (len(lane.in_flight), lane.window.size)

    def oldest_wait(self, number: int, now: float) -> float:
        lane = self._lanes.get(number)
        return 0.0 if lane is None else lane.oldest_wait(now, 0.0)

    def p95_latency(self, number: int) -> float:
        lane = self._lanes.get(number)
        return 0.0 if lane is None else lane.p95_latency

    def has_capacity(self, number: int) -> bool:
        """Whether the broker could take another request, and is not slow."""
        return self.current_state(number) is _HEALTHY

    def keeps_reserved(self, number: int) -> bool:
        """Whether batches that are reserved for the broker's partitions stay there."""
        return self.current_state(number).keeps_reserved

    def may_be_waited_for(self, number: int) -> bool:
        """Whether records may wait until the broker has its minimum share: not if it is slow."""
        lane = self._lanes.get(number)
        return lane is None or not self._is_slow(lane)

    def current_state(self, number: int) -> LaneState:
        """The state as of the last look, refined by what can be seen without another look."""
        lane = self._lanes.get(number)
        if lane is None:
            return LaneState.DISCONNECTED
        state = lane.state
        # HEALTHY and UNAVAILABLE keep reserved batches, while the connection takes bytes.
        if state.keeps_reserved and (lane.connection is None or not lane.connection.writable):
            return LaneState.UNWRITABLE
        if state is not _HEALTHY:
            return state
        if self._is_slow(lane):
            return LaneState.ON_TRIAL
        full = len(lane.in_flight) >= lane.window.size
        return LaneState.SATURATED if full else _HEALTHY

    def survey(
        self,
        wanted: Iterable[int],
        ready_queues: ReadyQueues,
        unblocked_since: float,
        now: float,
    ) -> BrokerSurvey:
        """Look at the ``wanted`` lanes, in which batches of ``ready_queues`` are ready or could be
        bound. ``unblocked_since``: as the loop monitor has it.
        """
        available: dict[int, Connection] = {}
        expected: dict[int, float] = {}
        saturated, eligible, last_resort, next_look = set(), set(), set(), NEVER
        large = ready_queues.has_large_unbound
        for number in wanted:
            lane = self._lanes.get(number) or self.lane(number, now)
            connection = lane.connection
            if connection is None or connection.closed or lane.node_id not in self._router.brokers:
                side = lane.primary is not lane
                connection = self._router.produce_connection(lane.node_id, side=side)
                lane.connection = connection
            state = self.update_state(lane, connection, unblocked_since, now)
            if state.exclusion_reason is None:
                eligible.add(number)
            elif state.last_resort:
                last_resort.add(number)
            if connection is None:
                self._report_unreachable(lane.node_id, now)
            elif (silent_until := max(connection.throttled_until, lane.paced_until)) > now:
                # A new connection, an answer, or a transport that drains wakes the sender. Nothing
                # wakes it at the end of a broker's throttling, or when its next request is due.
                next_look = min(next_look, silent_until)
            elif connection.writable:
                free = lane.free_slots(large, now) if lane.in_flight else 1
                if free > 0:
                    available[number] = connection
                    expected[number] = self._expected_latency(lane, now)
                elif free == 0 and ready_queues.has_full_head(number):
                    # A full batch cannot grow: it waits at the broker, which goes on without a
                    # pause.
                    available[number] = connection
                    saturated.add(number)
        pending = bool(self._liveness.suspected_at) and self._liveness.probe_pending
        return BrokerSurvey(
            available or self._lanes_to_compare(wanted, now),
            saturated,
            eligible,
            last_resort,
            next_look,
            pending,
            expected,
        )

    def _expected_latency(self, lane: BrokerLane, now: float) -> float:
        # A slow broker whose rest is over is due for a batch that shows its speed.
        on_trial = lane.recent_minimum >= _SLOW_LATENCY_S and self._is_slow(lane)
        return 0.0 if on_trial else lane.expected_latency(now)

    def _lanes_to_compare(self, wanted: Iterable[int], now: float) -> dict[int, Connection]:
        """The lanes that take a second request although their window is full, so that it shows
        whether the broker serves requests side by side."""
        found = {}
        for number in wanted:
            lane = self._lanes[number]
            if len(lane.in_flight) == 1 and lane.can_take(lane.connection, lane.window.limit, now):
                assert lane.connection is not None
                if lane.window.is_comparison_due(now - lane.in_flight[0].sent_at):
                    found[number] = lane.connection
        return found

    def update_state(
        self, lane: BrokerLane, connection: Connection | None, unblocked_since: float, now: float
    ) -> LaneState:
        """Find the lane's state, and do what follows from a new one."""
        waited = lane.oldest_wait(now, unblocked_since) if lane.in_flight else 0.0
        overdue = waited > MIN_OVERDUE_S and waited > lane.overdue_after
        state = _HEALTHY
        if connection is None or connection.closed:
            state = LaneState.DISCONNECTED
        elif connection.throttled_until > now:
            state = LaneState.THROTTLED
        elif waited > self._unavailable_after:
            state = LaneState.UNAVAILABLE
        elif overdue:
            state = LaneState.OVERDUE
        elif lane.recent_minimum >= _SLOW_LATENCY_S and self._cooling_down(lane, now):
            state = LaneState.SLOW
        if overdue:
            self._request_metadata(lane, waited, now)
        if state is not lane.state:
            lane.enter(state)
        if overdue or state.resets_share:
            lane.share_reset_due = True
        elif lane.share_reset_due and state.exclusion_reason is None:
            lane.share_reset_due = False
            self._accumulator.reset_share_to_average(lane.number)
        return state

    def _cooling_down(self, lane: BrokerLane, now: float) -> bool:
        """Whether a slow broker is cooling down between two batches that show its speed."""
        rests_until = lane.idle_since + _COOL_DOWN_RATIO * lane.recent_minimum
        return (bool(lane.in_flight) or now < rests_until) and self._is_slow(lane)

    def _is_slow(self, lane: BrokerLane) -> bool:
        if lane.recent_minimum < _SLOW_LATENCY_S:
            return False
        others = [
            other.median_latency
            for other in self._lanes.values()
            if other is not lane and other.state.exclusion_reason is None
        ]
        known = [latency for latency in others if latency is not None]
        return bool(known) and lane.recent_minimum >= _SLOW_RATIO * median(known)

    def _request_metadata(self, lane: BrokerLane, waited: float, now: float) -> None:
        """A broker that does not answer may have been replaced: ask another broker."""
        if now - self._refreshed_at >= _REFRESH_INTERVAL_S:
            self._refreshed_at = now
            self._metadata.request_refresh(
                f"broker {lane.node_id} has owed an answer for {waited:.3f} s"
            )

    def _report_unreachable(self, node_id: int, now: float) -> None:
        """There is no connection to the broker."""
        error = self._router.connection_error(node_id)
        if error is not None:
            # With nothing in flight no failed request shows that leaders may have moved away from
            # this broker.
            self._metadata.request_refresh(f"records wait for a broker: {error}")
            if not isinstance(error, AuthenticationError):  # a broker that refuses is alive
                self._liveness.suspect([node_id], now - BELIEVED_S)
