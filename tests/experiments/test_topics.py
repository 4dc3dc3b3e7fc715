from __future__ import annotations

from typing import Any

from experiments.experiment import run_record
from experiments.topics import ProduceCount, produce_count
from kafkaclient.perf.run import RunRecord


class Proxies:
    async def proxy_stats(self) -> tuple[dict[str, Any], ...]:
        return (
            {"produce_bytes": 1000, "requests": {0: 10, 18: 3}},
            {"produce_bytes": 0, "requests": {3: 1}},
        )


async def test_only_produce_requests_count() -> None:
    counted = await produce_count(Proxies())  # type: ignore[arg-type]
    assert counted == ProduceCount((1000, 0), (10, 0))


def test_a_run_has_what_was_added_since_it_began() -> None:
    counted = ProduceCount((1000, 500), (10, 5)).since(ProduceCount((400, 500), (4, 5)))
    record = RunRecord(
        client="java",
        setting="default",
        rate=None,
        linger_ms=None,
        run=1,
        records=9,
        seconds=2.0,
        records_per_s=4.5,
        mb_per_s=0.0,
        avg_ms=None,
        p50_ms=None,
        p95_ms=None,
        p99_ms=None,
        p999_ms=None,
        max_ms=None,
        bytes_per_broker=(1, 1),
    )
    found = counted.added_to(record)
    assert (found.bytes_per_broker, found.requests_per_broker) == ((600, 0), (6, 0))
    assert found.requests_per_s == 3
    assert run_record({**found.as_json(), "telemetry": "beside"}) == found
