"""Rates, shares and percentiles between scrapes of a producer."""

from __future__ import annotations

import pytest

from kafkaclient.cli.producer_status import Trends, percentile
from tests.cli.producer_support import broker, producer, times


def test_the_first_scrape_is_since_the_start_and_has_no_rates() -> None:
    (found,) = Trends().add(
        100.0,
        [producer(broker(0, 300), broker(1, 100, latencies=times(0.02)), records_sent=7)],
    )
    assert found.records_per_s is None
    assert found.bytes_per_s is None
    assert [b.share for b in found.brokers] == [0.75, 0.25]
    assert found.buffer_used == 0.25
    assert found.brokers[0].p99_s is None
    assert 0.01 < found.brokers[1].p99_s <= 0.025


def test_rates_are_since_the_scrape_before() -> None:
    trends = Trends()
    trends.add(100.0, [producer(broker(0, 1000), records_sent=10)])
    trends.add(102.0, [producer(broker(0, 2000), records_sent=30)])
    (found,) = trends.add(103.0, [producer(broker(0, 2100), records_sent=70)])
    assert found.records_per_s == 40
    assert found.bytes_per_s == 100
    assert found.brokers[0].history == (500, 100)


def test_shares_and_percentiles_are_of_ten_seconds() -> None:
    trends = Trends()
    fast, slow = (0.001,) * 10, (0.4,) * 10
    for second in range(30):
        produced = 1000 + second  # since the start: nearly all at broker 0
        (found,) = trends.add(
            float(second),
            [
                producer(
                    broker(0, produced, latencies=times(*fast * (second + 1))),
                    broker(1, 3 * second, latencies=times(*slow * max(second - 5, 1))),
                    queue_times=times(*fast * 50, *slow * second),
                )
            ],
        )
    assert [b.share for b in found.brokers] == [0.25, 0.75]
    assert found.brokers[0].p99_s <= 0.001
    assert found.brokers[1].p50_s > 0.25
    assert found.queue_p50_s > 0.25  # most of all times are short, and older
    assert len(found.brokers[0].history) == 29


def test_a_producer_that_began_again_has_no_rates_from_before() -> None:
    trends = Trends()
    trends.add(0.0, [producer(broker(0, 5000, latencies=times(0.1)), records_sent=50)])
    (found,) = trends.add(1.0, [producer(broker(0, 10, latencies=times(0.1)), records_sent=1)])
    assert found.records_per_s is None
    assert found.brokers[0].share == 1
    assert found.brokers[0].p50_s > 0


def test_a_broker_that_joins_counts_from_nothing() -> None:
    trends = Trends()
    trends.add(0.0, [producer(broker(0, 100))])
    (found,) = trends.add(1.0, [producer(broker(0, 200), broker(1, 300))])
    assert [b.share for b in found.brokers] == [0.25, 0.75]
    assert found.brokers[1].bytes_per_s == 300


@pytest.mark.parametrize(
    ("part", "value"), [(0.0, 0.005), (0.5, 0.0075), (1.0, 0.01)], ids=["min", "median", "max"]
)
def test_a_percentile_is_interpolated_in_its_bucket(part: float, value: float) -> None:
    assert percentile(times(*[0.006] * 4), part) == pytest.approx(value)


def test_a_percentile_above_all_bounds_is_the_last_bound() -> None:
    assert percentile(times(1000.0), 0.5) == 120.0
    assert percentile(times(), 0.5) is None
    assert percentile(None, 0.5) is None
