"""How many requests in flight a broker is worth."""

from __future__ import annotations

import pytest

from kafkaclient.producer.sender.in_flight_window import InFlightWindow


def _settled(round_trip: float, service: float, limit: int = 5) -> InFlightWindow:
    window = InFlightWindow(limit)
    for _ in range(40):
        window.on_round_trip(round_trip)
        window.on_response(round_trip + service, 0)
    return window


def test_nothing_is_known_at_first() -> None:
    window = InFlightWindow(5)
    assert window.size == 1
    window.on_response(0.02, 0)  # without a round trip it says nothing
    assert window.size == 1
    window.on_round_trip(0.001)
    assert window.size == 1


@pytest.mark.parametrize(
    ("round_trip", "service", "value"),
    [
        (0.0005, 0.020, 1),  # a slow broker: more in flight would only wait in line there
        (0.001, 0.001, 2),
        (0.003, 0.001, 4),
        (0.050, 0.001, 5),  # a far one: as much as is allowed
        (0.0, 0.0, 1),
    ],
)
def test_the_window_hides_the_network_and_no_more(
    round_trip: float, service: float, value: int
) -> None:
    assert _settled(round_trip, service).size == value


def test_requests_ahead_share_the_latency() -> None:
    window = InFlightWindow(5)
    window.on_round_trip(0.001)
    for ahead in (0, 1, 2, 3, 4):
        window.on_response(0.001 + 0.020 * (1 + ahead), ahead)
    assert window.service == pytest.approx(0.020)
    assert window.size == 1


def test_one_disturbed_measurement_changes_nothing() -> None:
    window = _settled(0.0005, 0.020)
    window.on_round_trip(0.3)
    assert window.size == 1


def test_a_round_trip_that_steps_is_followed() -> None:
    window = _settled(0.001, 0.001)
    for _ in range(10):  # its latency looks like a slow broker's at first
        window.on_response(0.031, 0)
    assert window.size == 1
    assert not window.round_trip_doubtful
    window.on_round_trip(0.030)
    assert window.round_trip_doubtful, "one is not believed, but asks for more"
    window.on_round_trip(0.030)
    window.on_round_trip(0.030)
    window.on_response(0.031, 0)
    assert window.size == 5
    assert not window.round_trip_doubtful
    for _ in range(40):  # busy, so that nothing but the answers tells
        window.on_response(0.002, 0)
    assert window.round_trip == pytest.approx(0.002)
    assert window.size <= 5
