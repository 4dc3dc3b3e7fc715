"""One broker's lane: whether it takes requests, and for how long it has not (KIP-794)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkaclient.producer.lane import Lane


def connection(**facts: Any) -> Any:
    return SimpleNamespace(**{"writable": True, "throttled_until": 0.0, **facts})


def test_stuck_while_something_is_ready_and_cannot_leave() -> None:
    """Java's NodeLatencyStats: ready_ms - drain_ms."""
    lane = Lane(0, 10.0)
    assert lane.stuck_for == 0.0
    lane.note(able=True, now=11.0)
    lane.note(able=False, now=11.2)
    assert lane.stuck_for == pytest.approx(0.2)
    lane.note(able=False, now=12.0)
    assert lane.stuck_for == pytest.approx(1.0)
    lane.note(able=True, now=12.5)
    assert lane.stuck_for == 0.0


def test_time_without_anything_ready_does_not_count() -> None:
    lane = Lane(0, 10.0)
    lane.note(able=False, now=10.1)
    assert lane.stuck_for == pytest.approx(0.1), "frozen until it is asked again"


@pytest.mark.parametrize(
    ("facts", "in_flight", "free"),
    [
        ({}, 0, True),
        ({}, 4, True),
        ({}, 5, False),
        ({"writable": False}, 0, False),
        ({"throttled_until": 7.1}, 0, False),
        ({"throttled_until": 7.0}, 0, True),
    ],
)
def test_free(facts: dict[str, Any], in_flight: int, free: bool) -> None:
    lane = Lane(3, 0.0)
    lane.sent.extend([1.0] * in_flight)
    assert lane.free(connection(**facts), 5, 7.0) is free
    assert repr(lane) == f"<Lane to broker 3 in_flight={in_flight}>"


def test_not_free_without_a_connection() -> None:
    assert not Lane(0, 0.0).free(None, 5, 0.0)
