"""Doubling, jitter, the ceiling."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.cluster.backoff import exponential_s


class Middle(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_it_doubles_up_to_the_ceiling() -> None:
    pauses = [exponential_s(n, 0.1, 1.0, Middle()) for n in range(7)]
    assert pauses == pytest.approx([0, 0.1, 0.2, 0.4, 0.8, 0.9, 0.9])


@given(st.integers(0, 10**9), st.floats(0, 10), st.floats(0, 100), st.integers())
def test_it_stays_within_its_bounds(failures: int, first: float, most: float, seed: int) -> None:
    pause = exponential_s(failures, first, most, Random(seed))
    assert 0 <= pause <= most
    assert pause <= 1.2 * first * 2.0 ** min(max(0, failures - 1), 60)
