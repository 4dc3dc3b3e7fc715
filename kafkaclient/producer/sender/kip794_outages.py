"""Which brokers KIP-794 leaves out: those that could not take what was ready for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kafkaclient.cluster.router import Router
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.sender.broker_lane import BrokerLane
    from kafkaclient.producer.sender.broker_lanes import BrokerLanes


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
