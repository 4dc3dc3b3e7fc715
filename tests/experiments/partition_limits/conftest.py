"""Two made-up topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from experiments.machine import machine_facts
from experiments.partition_limits.plan import Plan
from experiments.partition_limits.results import Cell, Results, Sent

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def made() -> Callable[..., Cell]:
    def make(replication: int = 3, partitions: int = 100, **changed: Any) -> Cell:
        sent = tuple(
            Sent(
                client=client,
                records=80_000,
                records_per_s=10_000.0,
                mbps=mbps,
                avg_ms=12.0,
                p99_ms=99.5,
            )
            for client, mbps in (("kafkaclient", 81.92), ("java", 64.0))
        )
        values: dict[str, Any] = {
            "topic_partitions": partitions,
            "answered_s": 0.5,
            "led_s": 1.5,
            "directories_s": 2.5,
            "sent": sent,
            "unknown_s": 0.25,
            "removed_s": 3.75,
        }
        return Cell(replication=replication, partitions=partitions, **{**values, **changed})

    return make


@pytest.fixture
def results(made: Callable[..., Cell]) -> Results:
    return Results(
        Plan().as_json(), machine_facts(), complete=True, cells=[made(1, 10), made(3, 100)]
    )
