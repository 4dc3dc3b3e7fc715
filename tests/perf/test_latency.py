from __future__ import annotations

import re
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.perf.latency import Distribution, LatencyRecorder, Window

# As Java's String.format makes them: %d, %.1f, %.2f, %f.
WINDOW = re.compile(
    r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d{2} MB/sec\), "
    r"\d+\.\d ms avg latency, \d+\.\d ms max latency\."
)
FINAL = re.compile(
    r"\d+( steady state)? records sent, \d+\.\d{6} records/sec \(\d+\.\d{2} MB/sec\), "
    r"\d+\.\d{2} ms avg latency, \d+\.\d{2} ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)


def recorded(latencies_ms: list[float], *, interval_s: float = 1e9) -> LatencyRecorder:
    recorder = LatencyRecorder(0.0, interval_s)
    for number, latency in enumerate(latencies_ms):
        recorder.record(float(number), number + latency / 1e3, 1, 100)
    return recorder


def test_summary_counts_records_bytes_and_time() -> None:
    summary = recorded([10, 20, 30, 40]).summary(2.0)
    assert (summary.records, summary.nbytes, summary.seconds) == (4, 400, 2.0)
    assert summary.records_per_s == 2.0
    assert summary.mb_per_s == 200 / 1024 / 1024
    assert summary.avg_ms == pytest.approx(25)
    assert summary.max_ms == pytest.approx(40)


def test_final_line_is_that_of_kafkas_tool() -> None:
    line = recorded([1, 2, 3, 400.5]).summary(4.0).line()
    assert FINAL.fullmatch(line)
    assert line == (
        "4 records sent, 1.000000 records/sec (0.00 MB/sec), 101.63 ms avg latency, "
        "400.50 ms max latency, 2 ms 50th, 400 ms 95th, 400 ms 99th, 400 ms 99.9th."
    )
    assert FINAL.fullmatch(recorded([1]).summary(4.0).line(steady_state=True))


def test_final_line_without_records_names_no_number() -> None:
    line = LatencyRecorder(0.0, 5.0).summary(1.0).line()
    assert line.startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg")


def test_window_line_is_that_of_kafkas_tool() -> None:
    line = Window(records=5, nbytes=1024 * 1024, seconds=2.0, avg_ms=1.25, max_ms=3).line()
    assert WINDOW.fullmatch(line)
    assert line == (
        "5 records sent, 2.5 records/sec (0.50 MB/sec), 1.2 ms avg latency, 3.0 ms max latency."
    )


def test_a_window_ends_with_the_first_record_after_its_interval() -> None:
    windows: list[Window] = []
    recorder = LatencyRecorder(0.0, 1.0, windows.append)
    recorder.record(0.0, 0.5, 1, 10)
    recorder.record(0.2, 0.9, 1, 10)
    assert windows == []
    recorder.record(0.9, 1.5, 1, 10)
    recorder.record(1.5, 1.6, 1, 10)
    assert len(windows) == 1
    (window,) = windows
    assert (window.records, window.nbytes, window.seconds) == (3, 30, 1.5)
    assert window.avg_ms == pytest.approx(600)
    assert window.max_ms == pytest.approx(700)
    recorder.record(1.0, 2.5, 1, 10)
    assert windows[1].records == 2
    assert windows[1].max_ms == pytest.approx(1500)


def test_a_muted_recorder_reports_no_windows_and_keeps_counting() -> None:
    windows: list[Window] = []
    recorder = LatencyRecorder(0.0, 1.0, windows.append)
    recorder.mute()
    recorder.record(0.0, 5.0, 1, 10)
    assert windows == []
    assert recorder.count == 1


def test_records_with_the_same_latency_count_as_so_many() -> None:
    one_by_one, together = LatencyRecorder(0.0, 5.0), LatencyRecorder(0.0, 5.0)
    for started, finished, count in ((0.0, 0.25, 3), (0.5, 1.5, 90), (1.0, 1.5, 7)):
        together.record(started, finished, count, 10 * count)
        for _ in range(count):
            one_by_one.record(started, finished, 1, 10)
    assert together.count == 100
    assert together.summary(2.0).line() == one_by_one.summary(2.0).line()


@given(st.lists(st.floats(1e-6, 3000, allow_nan=False), min_size=1, max_size=200))
def test_percentiles_are_those_of_the_sorted_latencies(latencies: list[float]) -> None:
    distribution = Distribution(array("f", latencies))
    ordered = sorted(latencies)
    assert distribution.count == len(latencies)
    for percentile in (50, 95, 99, 99.9):
        expected = ordered[min(int(percentile / 100 * len(ordered)), len(ordered) - 1)] * 1e3
        below = ordered[max(int(percentile / 100 * len(ordered)) - 1, 0)] * 1e3
        found = distribution.percentile_ms(percentile)
        assert found is not None
        assert below * 0.998 - 0.002 <= found <= expected * 1.002 + 0.002
    assert distribution.percentile_ms(100) == pytest.approx(ordered[-1] * 1e3, rel=1e-3, abs=2e-3)
