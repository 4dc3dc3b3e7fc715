"""How a broker is: the state that a look finds, and what the table says of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkaclient.producer.sender.broker_lane import LaneState, ProduceRequest
from kafkaclient.producer.sender.broker_lanes import BrokerLanes
from kafkaclient.producer.sender.liveness import BrokerLiveness
from kafkaclient.producer.settings import SenderSettings

OPEN = {"closed": False, "writable": True, "throttled_until": 0.0}


class World:
    """Lanes without a network; ``recovered`` lists the lanes whose share is reset."""

    def __init__(self, **settings: Any) -> None:
        self.recovered: list[int] = []
        self.lanes = BrokerLanes(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            SenderSettings(client_id="test", **settings),
            BrokerLiveness(self, None, self, clock=lambda: 0.0),  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
        )

    def reset_share_to_average(self, lane: int) -> None:
        self.recovered.append(lane)

    def request_refresh(self, reason: str) -> None: ...

    def look(self, connection: Any, now: float, sent_at: float | None = None) -> LaneState:
        lane = self.lanes.lane(0, 0.0)
        lane.in_flight.clear()
        if sent_at is not None:
            request = ProduceRequest(1, lambda *_: None, sent_at, lane, connection, [], 9, {})
            lane.in_flight.append(request)
        lane.connection = connection
        return self.lanes.update_state(lane, connection, 0.0, now)


def connection(**facts: Any) -> Any:
    return SimpleNamespace(**{**OPEN, **facts})


@pytest.mark.parametrize(
    ("facts", "now", "sent_at", "state"),
    [
        ({}, 1.0, None, LaneState.HEALTHY),
        ({}, 1.0, 0.96, LaneState.HEALTHY),
        ({}, 1.0, 0.9, LaneState.OVERDUE),
        ({}, 1.0, 0.4, LaneState.UNAVAILABLE),
        ({"throttled_until": 1.1}, 1.0, 0.4, LaneState.THROTTLED),
        ({"throttled_until": 1.1, "closed": True}, 1.0, 0.4, LaneState.DISCONNECTED),
    ],
)
def test_the_first_state_that_holds(
    facts: dict[str, Any], now: float, sent_at: float | None, state: LaneState
) -> None:
    world = World(availability_timeout=0.5)
    assert world.look(connection(**facts), now, sent_at) is state
    assert world.lanes.lane(0, now).state is state


def test_between_two_looks() -> None:
    world, link = World(max_in_flight=1), connection()
    assert world.lanes.current_state(0) is LaneState.DISCONNECTED, "not seen yet"
    world.look(link, 1.0)
    assert world.lanes.current_state(0) is LaneState.HEALTHY
    world.look(link, 1.0, 0.99)
    assert world.lanes.current_state(0) is LaneState.SATURATED
    link.writable = False
    assert world.lanes.current_state(0) is LaneState.UNWRITABLE


def test_a_slow_broker_cools_down_between_its_batches() -> None:
    world, link = World(), connection()
    world.lanes.lane(1, 0.0).record_latency(0.001, 0, 0.001)
    lane = world.lanes.lane(0, 0.0)
    for n in range(3):
        lane.record_latency(0.2, 0, 1.0 + n)
    lane.idle_since = 10.0
    assert world.look(link, 10.7) is LaneState.SLOW
    assert world.look(link, 10.9) is LaneState.HEALTHY
    assert world.lanes.current_state(0) is LaneState.ON_TRIAL
    assert not world.lanes.has_capacity(0)
    assert world.recovered == [0]


def test_only_states_of_trouble_reset_the_share() -> None:
    world = World()
    for facts in ({"throttled_until": 9.0}, {}, {"closed": True}, {"throttled_until": 9.0}):
        world.look(connection(**facts), 1.0)
        assert not world.recovered
    world.look(connection(), 1.0)
    assert world.recovered == [0]


def test_a_last_resort_is_excluded_and_keeps_nothing() -> None:
    for state in LaneState:
        if state.last_resort:
            assert state.exclusion_reason
            assert not state.keeps_reserved
