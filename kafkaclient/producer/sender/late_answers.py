"""Looks after requests whose answers are late: finds the cause, and gives up what is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.producer.sender.broker_lane import MIN_OVERDUE_S, median
from kafkaclient.producer.sender.liveness import BELIEVED_S
from kafkaclient.producer.settings import side_of

if TYPE_CHECKING:
    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.router import Router
    from kafkaclient.producer.sender.broker_lane import BrokerLane, ProduceRequest
    from kafkaclient.producer.sender.broker_lanes import BrokerLanes
    from kafkaclient.producer.sender.liveness import BrokerLiveness
    from kafkaclient.producer.settings import SenderSettings
    from kafkaclient.producer.wakeup import Wakeup

ALL = -1
"""acks=all."""

# Liveness probes are sent after this part of the time after which an answer is overdue, so that
# the probes are answered by then.
_SUSPECT_RATIO = 0.5
_PROBE_SETUP_RATIO = 4  # a liveness probe may take this many times the connection's setup time
_PROBE_LATENCY_RATIO = 2  # ... or this many times the brokers' median latency, if that is longer


class LateAnswers:
    """``wakeup`` is told when a broker's state changes between two passes of the sender."""

    def __init__(
        self,
        lanes: BrokerLanes,
        liveness: BrokerLiveness,
        router: Router,
        metadata: Metadata,
        settings: SenderSettings,
        wakeup: Wakeup,
    ) -> None:
        self._lanes = lanes
        self._liveness = liveness
        self._router = router
        self._metadata = metadata
        self._acks_all = settings.acks == ALL
        self._idempotent = settings.idempotent
        self._wakeup = wakeup

    def check(self, unblocked_since: float, now: float) -> None:
        """Look at every broker that owes an answer, also while nothing else happens."""
        for lane in list(self._lanes):
            if not lane.in_flight:
                continue
            before, oldest = lane.state, lane.in_flight[0]
            state = self._lanes.update_state(lane, oldest.connection, unblocked_since, now)
            if state is not before:
                self._wakeup.wake_at()
            waited = lane.oldest_wait(now, unblocked_since)
            if waited <= MIN_OVERDUE_S:
                continue
            if waited > _SUSPECT_RATIO * lane.overdue_after:
                since = max(oldest.sent_at, now - BELIEVED_S)
                self._liveness.suspect(self._brokers_needed(oldest), since)
            if waited > lane.overdue_after:
                self._close_if_no_longer_leader(lane, oldest)
            if self._liveness.dead and waited > lane.late_after:
                self._close_if_blocked_by_dead_replica(lane, oldest, now)
        if self._liveness.probe_pending:
            self._liveness.expire_probes(now, unblocked_since, self._probe_timeout)

    def request_ended(self, request: ProduceRequest, unblocked_since: float, now: float) -> None:
        """A request ended whose connection is closed, or whose broker was excluded meanwhile."""
        lane = request.lane
        if request.connection.closed and not lane.ignore_disconnect:
            self._liveness.suspect([lane.node_id], now - BELIEVED_S)
        if lane.state.exclusion_reason is not None:
            if lane.primary is not lane:
                # The dead replica that the answer waited for was removed from the ISR, or is back.
                self._metadata.request_refresh(f"broker {lane.node_id} answers again")
            self._lanes.update_state(lane, request.connection, unblocked_since, now)

    def request_succeeded(self, request: ProduceRequest) -> None:
        """The request was answered without an error."""
        self._liveness.confirm(self._brokers_needed(request), request.sent_at)

    def _probe_timeout(self, node_id: int) -> float:
        """How many seconds a liveness probe may take."""
        setup = self._router.setup_time(node_id)
        # Not the slowest broker: until the dead brokers are known, records without key wait.
        usual = median([lane.p95_latency for lane in self._lanes])
        return max(MIN_OVERDUE_S, _PROBE_SETUP_RATIO * setup, _PROBE_LATENCY_RATIO * usual)

    def _brokers_needed(self, request: ProduceRequest) -> set[int]:
        """The brokers without which the request is not answered."""
        needed = {request.lane.node_id}
        if self._acks_all:
            for batch in request.batches:
                needed.update(batch.queue.replicas)
        return needed

    def _close_if_no_longer_leader(self, lane: BrokerLane, oldest: ProduceRequest) -> None:
        """A broker that leads none of the request's partitions any more may never answer: the
        kernel of a paused broker keeps the connection alive. Closing the connection lets the
        batches go to their new leaders, in their order."""
        if all(batch.queue.leader not in (-1, lane.node_id) for batch in oldest.batches):
            oldest.connection.close(
                BrokerConnectionError(
                    f"broker {lane.node_id} has not answered since it was replaced as the leader "
                    "of what it was sent; the connection was given up"
                )
            )

    def _close_if_blocked_by_dead_replica(
        self, lane: BrokerLane, oldest: ProduceRequest, now: float
    ) -> None:
        """A live broker cannot answer while it waits for a dead replica. Closing the connection
        lets the batches that need this replica go by the side lane, so that they block no others.
        Without sequence numbers the log would get the batches twice."""
        if lane.primary is not lane or not self._idempotent:
            return
        blocked = [
            b.queue.tp for b in oldest.batches if b.queue.target_lane == side_of(lane.node_id)
        ]
        if not blocked:
            return
        self._liveness.suspect([lane.node_id], max(oldest.sent_at, now - BELIEVED_S))
        if self._liveness.alive_since(lane.node_id, oldest.sent_at):
            lane.ignore_disconnect = True
            oldest.connection.close(
                BrokerConnectionError(
                    f"broker {lane.node_id} waits for a replica that gives no sign of life, to "
                    f"answer for {', '.join(map(str, blocked))}; the connection was given up for "
                    "the sake of other partitions"
                )
            )
