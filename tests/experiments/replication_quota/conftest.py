"""A made-up result: 100 MB at 10 MB/s, with and without load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from experiments.machine import machine_facts
from experiments.replication_quota.plan import Plan
from experiments.replication_quota.results import Latency, MoveResult, Results

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1_000_000


def latency(p99_ms: float | None, failed: int = 0) -> Latency:
    return Latency(
        records=1000,
        failed=failed,
        p50_ms=5.0,
        p99_ms=p99_ms,
        max_ms=50.0,
        windows=((1.0, 5.0, 12.0), (2.0, 6.0, 50.0)),
    )


@pytest.fixture
def moved() -> Callable[..., MoveResult]:
    def make(**changed: Any) -> MoveResult:
        values: dict[str, Any] = {
            "scenario": "one to two",
            "load": 0.0,
            "quota": 10 * MB,
            "inbound": 0.0,
            "bytes_to_move": 300 * MB,
            "seconds": 32.0,
            "move_time_s": 60.0,
            "expected_s": 33.6,
            # A burst of five seconds' worth within one, then what the quota lets through.
            "samples": ((0.0, 0), (1.0, 60 * MB), (11.0, 100 * MB), (31.0, 290 * MB)),
            "left": False,
        }
        return MoveResult(**{**values, **changed})

    return make


@pytest.fixture
def results(moved: Callable[..., MoveResult]) -> Results:
    loaded = moved(
        load=2000.0,
        inbound=2.0 * MB,
        seconds=40.0,
        expected_s=39.0,
        quiet=latency(10.0),
        throttled=latency(14.0),
        unthrottled=latency(400.0),
        unthrottled_s=4.0,
    )
    return Results(Plan().as_json(), machine_facts(), complete=True, runs=[moved(), loaded])
