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


def _compared(window: InFlightWindow, latencies: list[tuple[float, int, float]]) -> bool:
    for latency, ahead, shared in latencies:
        window.compare(latency, ahead, shared)
    return window.side_by_side


@pytest.mark.parametrize(
    ("latencies", "side_by_side"),
    [
        pytest.param([(0.4, 0, 0.0), (0.4, 1, 0.3)], True, id="as soon as alone"),
        pytest.param([(0.4, 0, 0.0), (0.45, 1, 0.3)], True, id="a little later"),
        pytest.param([(0.4, 0, 0.0), (0.7, 1, 0.3)], False, id="behind the one ahead"),
        pytest.param([(0.4, 0, 0.0), (0.4, 1, 0.05)], False, id="too little shared"),
        pytest.param([(0.004, 0, 0.0), (0.004, 1, 0.003)], False, id="too fast to tell"),
        pytest.param([(0.4, 1, 0.3)], False, id="none was alone"),
        pytest.param([(0.3, 0, 0.0), (0.04, 1, 0.02)], False, id="the first one was an outlier"),
        pytest.param(
            [(0.3, 0, 0.0), (0.02, 0, 0.0), (0.04, 1, 0.02)], False, id="the least one counts"
        ),
    ],
)
def test_a_broker_that_serves_requests_side_by_side(latencies, side_by_side: bool) -> None:
    window = InFlightWindow(5)
    assert _compared(window, latencies) is side_by_side
    assert window.size == (5 if side_by_side else 1)


def test_a_fixed_window_measures_nothing() -> None:
    window = InFlightWindow(5, fixed=True)
    assert not _compared(window, [(0.4, 0, 0.0), (0.4, 1, 0.3)])
    assert not window.is_comparison_due(0.0)
    assert window.size == 5


def test_a_broker_that_begins_to_serve_requests_one_by_one() -> None:
    window = InFlightWindow(5)
    assert _compared(window, [(0.4, 0, 0.0), (0.4, 1, 0.3)])
    assert _compared(window, [(0.9, 1, 0.3)]), "one late answer is not believed"
    assert not _compared(window, [(0.9, 1, 0.3)])
    assert window.size == 1
    assert window.must_measure_alone, "it may only have become slower"
    assert not window.is_comparison_due(0.0)
    for responses in (4, 8, 16, 32, 64, 64):
        assert not _compared(window, [(0.4, 0, 0.0)])
        assert not window.must_measure_alone
        assert window.is_comparison_due(0.1)
        assert not window.is_comparison_due(0.35), "too late for the two to share much"
        assert not _compared(window, [(0.7, 1, 0.3)])
        assert not window.is_comparison_due(0.0), "it has just shown it"
        assert not _compared(window, [(0.4, 0, 0.0)] * (responses - 1))
        assert not window.is_comparison_due(0.0)


def test_a_broker_that_becomes_slower() -> None:
    """Two requests are compared again as soon as one alone was measured, not 64 responses later,
    each of which takes a second."""
    window = InFlightWindow(5)
    assert _compared(window, [(0.4, 0, 0.0), (0.4, 1, 0.3)])
    assert not _compared(window, [(1.0, 4, 0.8)] * 3)
    assert window.must_measure_alone
    assert not _compared(window, [(1.0, 1, 0.8)]), "sent before that"
    assert not _compared(window, [(1.0, 0, 0.0)])
    assert window.is_comparison_due(0.2)
    assert _compared(window, [(1.0, 1, 0.8)])


@pytest.mark.parametrize(("latency", "measured"), [(0.4, True), (0.004, False)])
def test_a_broker_that_becomes_faster_before_it_has_shown_how_it_serves(
    latency: float, measured: bool
) -> None:
    window = InFlightWindow(5)
    assert not _compared(window, [(1.0, 0, 0.0), (latency, 1, latency / 2)])
    assert window.must_measure_alone is measured, "at a fast broker it makes no difference"
