"""A survey: which lanes can take a request, and which connection each of them uses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkaclient.producer.sender.broker_lane import ProduceRequest
from kafkaclient.producer.sender.broker_lanes import BrokerLanes, BrokerSurvey
from kafkaclient.producer.settings import SenderSettings


def connection(**facts: Any) -> Any:
    return SimpleNamespace(**{"closed": False, "writable": True, "throttled_until": 0.0, **facts})


class World:
    """Broker 0 and its lane. ``asked`` counts how often the router was asked for a connection."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.brokers = {0: "its address"}
        self.asked = 0
        self.suspected_at: dict[int, float] = {}
        self.has_large_unbound = self.head_is_full = False
        settings = SenderSettings(client_id="test", adaptive_window=True)
        self.lanes = BrokerLanes(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            settings,
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
        )

    def produce_connection(self, node_id: int, *, side: bool) -> Any:
        self.asked += 1
        return self.link if node_id in self.brokers else None

    def reset_share_to_average(self, _number: int) -> None: ...

    def connection_error(self, _node_id: int) -> None: ...

    def has_full_head(self, _number: int) -> bool:
        return self.head_is_full

    def survey(self, now: float = 1.0) -> BrokerSurvey:
        return self.lanes.survey([0], self, 0.0, now)  # type: ignore[arg-type]

    def send(self, now: float = 1.0) -> None:
        lane = self.lanes.lane(0, now)
        lane.in_flight.append(ProduceRequest(1, lambda *_: None, now, lane, self.link, [], 9, {}))


def test_the_router_is_asked_only_for_a_connection_that_is_missing() -> None:
    world = World(connection())
    for _ in range(3):
        assert world.survey().available == {0: world.link}
    assert world.asked == 1
    world.link.closed, world.link.writable = True, False
    world.link = connection()
    assert world.survey().available == {0: world.link}
    assert world.asked == 2


def test_an_open_connection_to_a_broker_that_left_the_metadata_is_not_used() -> None:
    world = World(connection())
    world.survey()
    del world.brokers[0]
    survey = world.survey()
    assert (survey.available, survey.eligible) == ({}, set())
    world.brokers[0] = "its address"
    assert world.survey().available == {0: world.link}


@pytest.mark.parametrize(
    ("facts", "available", "next_look"),
    [
        ({}, True, float("inf")),
        ({"writable": False}, False, float("inf")),
        ({"throttled_until": 1.5}, False, 1.5),
        ({"throttled_until": 1.5, "writable": False}, False, 1.5),
    ],
)
def test_an_idle_lane(facts: dict[str, Any], available: bool, next_look: float) -> None:
    survey = World(connection(**facts)).survey()
    assert (0 in survey.available, survey.next_look) == (available, next_look)


def test_a_full_window_takes_one_more_request_for_a_full_batch_only() -> None:
    world = World(connection())
    world.survey()
    world.send()
    assert world.survey().available == {}
    assert world.survey().eligible == {0}, "busy is not excluded"
    world.head_is_full = True
    survey = world.survey()
    assert (set(survey.available), survey.saturated) == ({0}, {0})
    world.send()
    assert world.survey().available == {}
    world.head_is_full, world.has_large_unbound = False, True
    assert world.survey().available == {}, "the window grows by one, and two are in flight"
