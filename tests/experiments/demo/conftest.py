"""Two runs of a demonstration, made up."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from experiments.demo.experiment import DemoRun, DemoSetting
from experiments.demo.sampler import Samples
from experiments.readback import ReadBack
from kafkaclient.perf.latency import Distribution, Summary
from kafkaclient.perf.load import LoadOutcome
from kafkaclient.perf.run import LoadRun, RunRecord
from kafkaclient.perf.traffic import BrokerTraffic, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def demo_run() -> Callable[..., DemoRun]:
    def make(name: str = "default", latency_s: float = 0.01, lost: int = 0) -> DemoRun:
        latencies = array("f", [latency_s * (1 + n / 1000) for n in range(1000)])
        summary = Summary(1000, 300_000, 2.0, latency_s * 1e3, Distribution(latencies))
        record = RunRecord(
            client="kafkaclient",
            setting=name,
            rate=500.0,
            linger_ms=5.0,
            run=1,
            records=1000,
            seconds=2.0,
            records_per_s=500.0,
            mb_per_s=0.14,
            avg_ms=latency_s * 1e3,
            p50_ms=latency_s * 1.5e3,
            p95_ms=latency_s * 1.9e3,
            p99_ms=latency_s * 2e3,
            p999_ms=latency_s * 2e3,
            max_ms=latency_s * 2e3,
            bytes_per_broker=(50_000, 100_000, 150_000),
            requests_per_broker=(5, 10, 15),
            requests_per_s=15.0,
            lost=lost,
            duplicated=0,
            reordered=0,
        )
        read_back = ReadBack(
            records=1000 - lost,
            lost=lost,
            duplicated=0,
            reordered=0,
            unexpected=0,
            ordered_by="partition",
            records_per_partition=(1000 - lost,),
            seconds=0.5,
        )
        moments = [0.05 * n for n in range(40)]
        samples = Samples(
            moments,
            [
                Traffic(
                    tuple(
                        BrokerTraffic(broker, int(1e6 * moment) * (broker + 1), n, 2000, broker)
                        for broker in range(3)
                    ),
                    (),
                )
                for n, moment in enumerate(moments)
            ],
        )
        run = LoadRun(LoadOutcome(summary, None), None, record)
        return DemoRun(DemoSetting(name, "topic"), run, record, read_back, samples)

    return make
