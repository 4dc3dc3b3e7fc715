"""Windowed statistics, step by step against Java's Rate, Avg and Max (kafka-clients 4.3.1)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.metrics.stats import Windowed, Windows

# Per sequence: [ms, value] records, [ms, rate, average, maximum] measures; null is Java's NaN.
# Times are multiples of 125 ms, so that seconds are exact in binary.
VECTORS = json.loads((Path(__file__).parent / "java_sampled_stats.json").read_text("utf-8"))


def windowed(samples: int = 2, window_s: float = 30) -> Windowed:
    return Windowed(Windows(window_s, samples))


@pytest.mark.parametrize("sequence", VECTORS, ids=lambda s: f"{s['samples']}x{s['window_ms']}ms")
def test_same_values_as_java(sequence: dict[str, Any]) -> None:
    values = windowed(sequence["samples"], sequence["window_ms"] / 1000)
    for at_ms, *rest in sequence["steps"]:
        now = at_ms / 1000
        if len(rest) == 1:
            values.record(rest[0], now)
        else:
            rate, average, maximum = (math.nan if value is None else value for value in rest)
            assert values.rate(now) == pytest.approx(rate)
            assert values.average(now) == pytest.approx(average, nan_ok=True)
            assert values.maximum(now) == pytest.approx(maximum, nan_ok=True)


def test_nothing_recorded() -> None:
    values = windowed()
    assert values.rate(5) == values.frequency(5) == 0
    assert math.isnan(values.average(5))
    assert math.isnan(values.maximum(5))


def test_a_young_rate_is_taken_over_all_but_one_window() -> None:
    values = windowed(samples=2, window_s=30)
    values.record(300, 0)
    values.record(600, 1)
    assert values.rate(1) == pytest.approx(900 / 31)
    assert values.frequency(1) == pytest.approx(2 / 31)


def test_a_single_window_has_a_shortest_time() -> None:
    values = windowed(samples=1, window_s=30)
    values.record(5, 0)
    assert values.rate(0) == pytest.approx(5000)


def test_old_values_go_and_totals_stay() -> None:
    values = windowed(samples=2, window_s=1)
    values.record(100, 0)
    values.record(10, 5)
    assert values.maximum(5) == 10
    assert math.isnan(values.average(9))
    assert (values.events, values.total) == (2, 110)


def test_negative_values_have_a_maximum() -> None:
    values = windowed()
    values.record(-5, 0)
    assert values.maximum(0) == -5


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 100), st.floats(-1e6, 1e6, allow_subnormal=False)), max_size=60
    ),
    samples=st.integers(1, 4),
)
def test_memory_is_bounded_and_totals_are_exact(
    steps: list[tuple[float, float]], samples: int
) -> None:
    values, now = windowed(samples, 1), 0.0
    for pause, value in steps:
        now += pause
        values.record(value, now)
        assert values.maximum(now) >= value
        assert len(values._windows) <= samples + 1
    assert values.events == len(steps)
    assert values.total == pytest.approx(sum(value for _, value in steps))
