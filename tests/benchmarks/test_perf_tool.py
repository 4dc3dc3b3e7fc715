from __future__ import annotations

import pytest

from benchmarks.produce.perf_tool import Window, parse_window, steady

ON_THE_WAY = (
    "3072 records sent, 614.4 records/sec (0.30 MB/sec), 31.4 ms avg latency, 612.0 ms max latency."
)
AT_THE_END = (
    "6144 records sent, 1667.299864 records/sec (0.81 MB/sec), 1271.82 ms avg latency, "
    "1911.00 ms max latency, 1347 ms 50th, 1743 ms 95th, 1896 ms 99th, 1910 ms 99.9th."
)


def test_lines_on_the_way_are_told_from_the_last() -> None:
    assert parse_window(ON_THE_WAY) == (3072, pytest.approx(5.0))
    assert parse_window(AT_THE_END) is None
    assert parse_window("Warmup first 2048 records.") is None
    assert parse_window(ON_THE_WAY.replace("614.4", "0.0")) is None


def test_the_warm_up_is_left_out_of_records_seconds_and_cpu() -> None:
    windows = [Window(10, 1.0, 5.0), Window(20, 1.0, 7.0), *(Window(50, 1.0, n) for n in (8, 9))]
    assert steady(windows, warm_up_s=2.0) == (100, 2.0, 2.0)


def test_the_warm_up_is_at_most_half_of_the_run() -> None:
    windows = [Window(10, 1.0, float(n)) for n in range(4)]
    assert steady(windows, warm_up_s=60.0) == (20, 2.0, 2.0)


def test_a_run_of_one_line_has_no_steady_state() -> None:
    with pytest.raises(ValueError, match="too short"):
        steady([Window(10, 1.0, 1.0)])
