"""The figures of a worker, as the benchmark's driver decodes them."""

from __future__ import annotations

import pytest
from hdrh.histogram import HdrHistogram

from experiments.openmessaging.stats import WorkerStats


@pytest.fixture
def stats() -> WorkerStats:
    stats = WorkerStats()
    for number in range(1, 101):
        stats.sent(10, intended=0.0, started=0.001, now=0.001 + number / 1000)
    return stats


def test_latencies_come_back_with_three_digits(stats: WorkerStats) -> None:
    found = stats.period()
    publish = HdrHistogram.decode(found["publishLatency"])
    assert publish.get_total_count() == 100
    assert publish.get_value_at_percentile(50) == pytest.approx(50_000, rel=1e-3)
    assert publish.get_max_value() == pytest.approx(100_000, rel=1e-3)
    assert HdrHistogram.decode(found["publishDelayLatency"]).get_value_at_percentile(99) == 1_000
    assert HdrHistogram.decode(found["endToEndLatency"]).get_total_count() == 0


def test_a_period_ends_with_the_look_at_it_and_the_total_goes_on(stats: WorkerStats) -> None:
    assert stats.period()["messagesSent"] == 100
    stats.failed()
    later = stats.period()
    assert (later["messagesSent"], later["messageSendErrors"]) == (0, 1)
    assert later["totalMessagesSent"] == 100
    assert stats.counters()["messagesSent"] == 100
    assert stats.counters()["messageSendErrors"] == 1
    assert HdrHistogram.decode(stats.cumulative()["publishLatency"]).get_total_count() == 100


def test_a_reset_of_latencies_leaves_the_counts(stats: WorkerStats) -> None:
    stats.clear_latencies()
    assert stats.counters()["messagesSent"] == 100
    assert HdrHistogram.decode(stats.cumulative()["publishLatency"]).get_total_count() == 0


def test_a_latency_beyond_the_histogram_counts_as_its_largest() -> None:
    stats = WorkerStats()
    stats.sent(1, intended=0.0, started=0.0, now=100.0)
    found = HdrHistogram.decode(stats.period()["publishLatency"])
    assert found.get_value_at_percentile(100) == pytest.approx(60e6, rel=1e-3)


def test_records_read_before_their_timestamp_have_no_latency() -> None:
    stats = WorkerStats()
    stats.received(2, 20, -1000)
    stats.received(3, 30, 5000)
    found = stats.period()
    assert (found["messagesReceived"], found["bytesReceived"]) == (5, 50)
    assert HdrHistogram.decode(found["endToEndLatency"]).get_total_count() == 3
