"""KIP-441's convergence in 10,000 random histories of three events each; no broker is needed."""

from __future__ import annotations

import random

import pytest

from tests.streams.group import check_convergence


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ten_thousand_random_histories_converge() -> None:
    rebalances = sum(check_convergence(random.Random(seed)) for seed in range(10_000))
    assert rebalances > 30_000
