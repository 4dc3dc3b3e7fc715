"""All brokers' lanes: which of them can take a request now, and which are better left alone."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import AuthenticationError, BrokerConnectionError
from kafkaclient.producer.lane_id import node_of, side_of
from kafkaclient.producer.sender.broker_lane import LEAST_PATIENCE, BrokerLane, Exclusion
from kafkaclient.producer.sender.liveness import BrokerLiveness
from kafkaclient.producer.sender.loop_monitor import LoopMonitor
from kafkaclient.producer.timing import NEVER
from kafkaclient.wire.codec import ApiVersionsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from kafkaclient.errors import KafkaError
    from kafkaclient.net.connection import Connection
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.sender.broker_lane import Request
    from kafkaclient.producer.sender.ports import Connections, Leaders
    from kafkaclient.producer.settings import SenderSettings

__all__ = ["ALL", "BrokerLanes", "BrokerSurvey"]

# How often the network's round trip to a broker is measured; how often while the last few
# measurements disagree; how long a busy connection may put it off (seconds, and answers).
_PROBE_EVERY, _PROBE_DOUBTFUL, _PROBE_PATIENCE, _PROBE_SHARE = 0.5, 0.1, 2.0, 40
# How often leaders are asked for because of brokers that do not answer, at the most (seconds).
_REFRESH_EVERY = 1.0
# After which part of the time that makes an answer overdue signs of life are asked for, so that
# they are there when it is.
_DOUBT = 0.5
# It may take so many times as long as connecting to the broker, or as brokers take to answer.
_SLOW_SETUP, _SLOW_ANSWER = 4, 2
# What a broker in trouble takes to answer, at the least: so many seconds, and so many times as long
# as brokers usually take. After a batch it is left alone for so many times as long as that took.
_TROUBLE, _TROUBLE_RATIO, _REST = 0.1, 8, 4
# For how long a sign of life is believed in while the answer does not come (seconds).
_BELIEVED = 1.0
ALL = -1
"""acks=all."""


class BrokerSurvey(NamedTuple):
    """The lanes at one moment, by their numbers."""

    available: dict[int, Connection]
    """Those that can take a request now."""
    saturated: Collection[int]
    """Of these, those that have their window full already: for batches that must go there only."""
    healthy: AbstractSet[int]
    """Those that are not excluded, free or not."""
    overdue: Collection[int]
    """Those excluded only because they are slow to answer: better than nothing."""
    next_look: float
    """When to look again by oneself."""
    liveness_pending: bool = False
    """Whether it will be known in a moment who is dead, so that waiting is better still."""


class BrokerLanes:
    """The lanes by their numbers (routes.py), made when they are first asked for.

    ``busy()`` says whether there is anything to wait for.
    ``on_return(number)`` is called when a broker that was out of order is in order again.
    ``wake()`` is called when a broker is found to be overdue between two passes of the sender;
    ``on_lag(seconds)`` with each measurement of the event loop's lag;
    ``on_health()`` when ``health`` has changed.
    """

    def __init__(
        self,
        connections: Connections,
        leaders: Leaders,
        settings: SenderSettings,
        *,
        clock: Callable[[], float],
        busy: Callable[[], bool],
        wake: Callable[[], None],
        on_return: Callable[[int], None],
        on_lag: Callable[[float], None],
        on_health: Callable[[], None],
    ) -> None:
        self._lanes: dict[int, BrokerLane] = {}
        self.side_lanes: set[int] = set()
        """The second lanes that brokers have."""
        self._connections = connections
        self._leaders = leaders
        self._settings = settings
        self._clock = clock
        self._busy = busy
        self._wake = wake
        self._on_return = on_return
        self._refreshed_at = -NEVER
        self._loop_monitor = LoopMonitor(clock, on_beat=self._check_late_answers, on_lag=on_lag)
        self.liveness = BrokerLiveness(connections, clock=clock, on_change=on_health)

    def __iter__(self) -> Iterator[BrokerLane]:
        return iter(self._lanes.values())

    def get(self, number: int) -> BrokerLane | None:
        return self._lanes.get(number)

    def in_flight_of(self, number: int) -> tuple[int, int]:
        """How many requests a lane has in flight, and its in-flight window."""
        lane = self._lanes.get(number)
        return (0, 1) if lane is None else (len(lane.in_flight), lane.window.size)

    def lane(self, number: int, now: float) -> BrokerLane:
        lane = self._lanes.get(number)
        if lane is None:
            limit, fixed = self._settings.max_in_flight, not self._settings.adaptive_window
            main = None
            if number != node_of(number):
                main = self.lane(node_of(number), now)
                self.side_lanes.add(number)
            lane = BrokerLane(number, now, limit, fixed_window=fixed, main=main)
            self._lanes[number] = lane
        return lane

    def has_capacity(self, number: int) -> bool:
        """Whether the broker is in order and could take another request, as of the last look."""
        lane = self._lanes.get(number)
        if lane is None or lane.exclusion is not None or not lane.healthy:
            return False
        return len(lane.in_flight) < lane.window.size and self.may_be_waited_for(number)

    def is_healthy(self, number: int) -> bool:
        """Whether the broker would take requests if it had not its share of them already."""
        lane = self._lanes.get(number)
        return lane is not None and lane.healthy

    def may_be_waited_for(self, number: int) -> bool:
        """Whether records may wait for the broker in order that it gets its share: not for one that
        takes a tenth of a second, and many times as long as the others. It is in trouble."""
        lane = self._lanes.get(number)
        return lane is None or not self._is_slow(lane)

    def _is_slow(self, lane: BrokerLane) -> bool:
        if lane.recent_minimum < _TROUBLE:
            return False
        others = [
            latency
            for other in self._lanes.values()
            if other is not lane and other.exclusion is None
            if (latency := other.median_latency) is not None
        ]
        return bool(others) and lane.recent_minimum >= _TROUBLE_RATIO * median(others)

    def _cooling_down(self, lane: BrokerLane, now: float) -> bool:
        """Whether the broker has had its batch for the moment, by which it shows how it does."""
        rested = not lane.in_flight and now >= lane.idle_at + _REST * lane.recent_minimum
        return not rested and self._is_slow(lane)

    def p95_latency(self, number: int) -> float:
        lane = self._lanes.get(number)
        return 0.0 if lane is None else lane.p95_latency()

    def watch(self) -> None:
        """See to it that an answer that does not come is noticed, while ``busy()``."""
        self._loop_monitor.start()

    def request_ended(self, request: Request, now: float) -> None:
        """The oldest request in its lane has been answered, or never will be."""
        lane = request.lane
        lane.pop_in_flight(now)
        if request.connection.closed and not lane.ignore_disconnect:
            self.liveness.suspect([lane.node_id], now - _BELIEVED)
        if lane.exclusion is not None:
            if lane.primary is not lane:
                # What it was held up by is over: a replica was given up, or is back.
                self._leaders.request_refresh(f"broker {lane.node_id} answers again")
            self._update_exclusion(lane, request.connection, now)

    def request_succeeded(self, request: Request) -> None:
        """The request was answered without an error."""
        if self.liveness.any_suspected:
            self.liveness.confirm(self._needed(request), request.sent_at)

    def close(self) -> None:
        self._loop_monitor.stop()
        self.liveness.close()

    def loop_ran_freely_since(self, since: float, now: float) -> bool:
        """Whether the event loop has run without a break, so that times mean something."""
        return self._loop_monitor.unblocked_since(now) <= since

    # --- who can take something -------------------------------------------------------------------

    def survey(
        self, wanted: Iterable[int], large: bool, presses: Callable[[int], bool], now: float
    ) -> BrokerSurvey:
        """Look at these lanes; ``large``: what waits for any of them is a large batch;
        ``presses(number)``: a full batch waits that must go by this one."""
        free: dict[int, Connection] = {}
        pressed, sound, overdue, due = set(), set(), set(), NEVER
        for number in wanted:
            lane = self.lane(number, now)
            connection = lane.connection = self._connect(lane)
            window = self._window(lane, large, now)
            able = lane.can_take(connection, window, now)
            if not able and window and presses(number):
                # It gains nothing by waiting here, and the broker must not wait for it.
                able = lane.can_take(connection, min(window + 1, self._settings.max_in_flight), now)
                if able:
                    pressed.add(number)
            lane.note_readiness(able=able, now=now)
            why = self._update_exclusion(lane, connection, now)
            if why is None:
                sound.add(number)
            elif why in (Exclusion.OVERDUE, Exclusion.SLOW):
                overdue.add(number)
            if connection is None:
                self._check_unreachable(lane.node_id, now)
            elif able:
                free[number] = connection
            elif connection.throttled_until > now:
                # A connection that comes up, an answer, or a transport that drains wakes the
                # sender; only the end of a broker's throttling has nobody to tell of it.
                due = min(due, connection.throttled_until)
        return BrokerSurvey(free, pressed, sound, overdue, due, self.liveness.probe_pending)

    def _connect(self, lane: BrokerLane) -> Connection | None:
        return self._connections.produce_connection(lane.node_id, side=lane.primary is not lane)

    def _window(self, lane: BrokerLane, large: bool, now: float) -> int:
        limit = self._settings.max_in_flight
        if not self._settings.adaptive_window:
            return limit
        busy = now - max(lane.idle_at, lane.probed_at) if lane.in_flight else 0.0
        if busy > _PROBE_PATIENCE and busy > _PROBE_SHARE * lane.p95_latency():
            return 0  # a connection that is never idle cannot be probed
        # Large batches keep the network itself busy: the next one goes out behind the first.
        return min(limit, lane.window.size + large)

    def _update_exclusion(
        self, lane: BrokerLane, connection: Connection | None, now: float
    ) -> Exclusion | None:
        waited = lane.oldest_wait(now, self._loop_monitor.unblocked_since(now))
        overdue, why = lane.overdue(waited), None
        if connection is None or connection.closed:
            why = Exclusion.CONNECTION
        elif connection.throttled_until > now:
            why = Exclusion.THROTTLED
        elif 0 < self._settings.availability_timeout < waited:
            why = Exclusion.AVAILABILITY
        elif overdue:
            why = Exclusion.OVERDUE
        elif self._cooling_down(lane, now):
            why = Exclusion.SLOW
        if overdue:
            self._request_metadata(lane, waited, now)
        lane.was_excluded |= overdue or why in (Exclusion.CONNECTION, Exclusion.SLOW)
        lane.exclude(why)
        if why is None and lane.was_excluded:
            lane.was_excluded = False
            self._on_return(lane.number)
        return why

    def _request_metadata(self, lane: BrokerLane, waited: float, now: float) -> None:
        """A broker that does not answer may have been replaced: ask another one."""
        if now - self._refreshed_at >= _REFRESH_EVERY:
            self._refreshed_at = now
            self._leaders.request_refresh(
                f"broker {lane.node_id} has owed an answer for {waited:.3f} s"
            )

    def _check_unreachable(self, node_id: int, now: float) -> None:
        """There is no connection to the broker."""
        trouble = self._connections.connection_error(node_id)
        if trouble is not None:
            # With nothing in flight there is no failed request to tell that leaders may have
            # moved away from this broker.
            self._leaders.request_refresh(f"records wait for a broker: {trouble}")
            if not isinstance(trouble, AuthenticationError):  # whoever refuses us is not dead
                self.liveness.suspect([node_id], now - _BELIEVED)

    # --- who does not answer ----------------------------------------------------------------------

    def _check_late_answers(self, now: float) -> bool:
        """Look after the brokers that owe answers, also while nothing else happens."""
        awake_since = self._loop_monitor.unblocked_since(now)
        for lane in list(self._lanes.values()):
            if not lane.in_flight:
                continue
            before = lane.exclusion
            connection = lane.in_flight[0].connection
            if self._update_exclusion(lane, connection, now) is not before:
                self._wake()
            waited = lane.oldest_wait(now, awake_since)
            if waited > LEAST_PATIENCE and waited > _DOUBT * lane.overdue_after:
                self._suspect(lane.in_flight[0], now)
            if lane.overdue(waited):
                self._close_if_no_longer_leader(lane)
            if self.liveness.dead and lane.in_flight and lane.late(waited):
                self._close_if_blocked_by_dead_replica(lane, now)
        self.liveness.expire_probes(now, awake_since, self._probe_timeout)
        return self._busy()

    def _probe_timeout(self, node_id: int) -> float:
        """How long a sign of life may take, in seconds."""
        setup = self._connections.setup_time(node_id)
        # Not the slowest: while it is not known who is dead, records without key wait.
        usual = median([lane.p95_latency() for lane in self._lanes.values()])
        return max(LEAST_PATIENCE, _SLOW_SETUP * setup, _SLOW_ANSWER * usual)

    def _suspect(self, request: Request, now: float) -> None:
        """Its broker may be dead, or one that this waits for."""
        self.liveness.suspect(self._needed(request), max(request.sent_at, now - _BELIEVED))

    def _needed(self, request: Request) -> set[int]:
        """The brokers without which the request is not answered."""
        needed = {request.lane.node_id}
        if self._settings.acks == ALL:
            for batch in request.batches:
                needed.update(batch.queue.replicas)
        return needed

    def _close_if_no_longer_leader(self, lane: BrokerLane) -> None:
        """A broker that owes answers and leads none of what it was sent any more may never answer:
        a paused one's kernel keeps the connection alive. Closing it lets the batches go to their
        new leaders, in their order."""
        oldest = lane.in_flight[0]
        if all(batch.queue.leader not in (-1, lane.node_id) for batch in oldest.batches):
            oldest.connection.close(
                BrokerConnectionError(
                    f"broker {lane.node_id} has not answered since it was replaced as the leader "
                    "of what it was sent; the connection was given up"
                )
            )

    def _close_if_blocked_by_dead_replica(self, lane: BrokerLane, now: float) -> None:
        """A broker that lives, but can't answer for want of a replica: what has to wait for that
        goes by the other lane, so that nothing else does. Without sequence numbers what is sent
        again would be written again."""
        if lane.primary is not lane or not self._settings.idempotent:
            return
        oldest = lane.in_flight[0]
        held_up = [
            b.queue.tp for b in oldest.batches if b.queue.target_lane == side_of(lane.node_id)
        ]
        if not held_up:
            return
        self.liveness.suspect([lane.node_id], max(oldest.sent_at, now - _BELIEVED))
        if self.liveness.alive_since(lane.node_id, oldest.sent_at):
            lane.ignore_disconnect = True
            oldest.connection.close(
                BrokerConnectionError(
                    f"broker {lane.node_id} waits for a replica that gives no sign of life, to "
                    f"answer for {', '.join(map(str, held_up))}; the connection was given up for "
                    "the sake of other partitions"
                )
            )

    def close_unused_side_lanes(self, needed: Container[int]) -> None:
        """Close the second connections that nothing goes by any more."""
        for lane in [self._lanes[number] for number in self.side_lanes]:
            if lane.number not in needed and not lane.in_flight:
                self.side_lanes.remove(lane.number)
                del self._lanes[lane.number]
                self._connections.close_side(lane.node_id)

    # --- the network's round trip ---------------------------------------------------------------

    def probe_round_trip(self, lane: BrokerLane, connection: Connection, now: float) -> None:
        """Now and then, measure the network's round trip by a call that costs the broker nothing,
        ahead of a Produce on a quiet connection."""
        interval = _PROBE_DOUBTFUL if lane.window.needs_probe else _PROBE_EVERY
        if now - lane.probed_at < interval or not self._settings.adaptive_window:
            return
        version = connection.api_versions_version
        if connection.in_flight or version is None:
            return
        lane.probed_at = now
        correlation_id = connection.next_correlation_id()
        request = ApiVersionsCall().encode(version, correlation_id, self._settings.client_id)
        answered = partial(self._probed, lane, now)
        connection.send([request], correlation_id, answered, api="ApiVersions")

    def _probed(
        self,
        lane: BrokerLane,
        sent_at: float,
        payload: memoryview | None,
        _error: KafkaError | None,
    ) -> None:
        now = self._clock()
        if payload is not None and self.loop_ran_freely_since(sent_at, now):
            lane.window.on_round_trip(now - sent_at)

    # --- KIP-794's outages ------------------------------------------------------------------------

    def kip794_unavailable(
        self, lines: ReadyQueues, excluded: Collection[int], now: float
    ) -> set[int]:
        """The lanes that could not take what was ready for them for too long; ``excluded`` are
        those of the last time."""
        found = set()
        for number, lane in self._lanes.items():
            # A lane with nothing ready was not asked in this pass.
            if not lines.ready.get(number):
                if lane.in_flight and lines.blocked[number]:
                    # What could be ready waits for the answers that the broker owes.
                    lane.note_readiness(able=False, now=now)
                elif number in excluded:
                    # Asked all the same, or a broker that was left out would never be back.
                    connection = self._connect(lane)
                    if lane.can_take(connection, self._settings.max_in_flight, now):
                        lane.note_readiness(able=True, now=now)
            if lane.unavailable_for > self._settings.availability_timeout:
                found.add(number)
        return found
