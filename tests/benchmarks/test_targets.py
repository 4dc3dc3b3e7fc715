from __future__ import annotations

from typing import Any

import pytest

from benchmarks.produce.entries import CONFLUENT, DROP_IN, OURS, PEER, RAW
from benchmarks.produce.targets import Line, judge, medians


def run(client: str, setting: str, **values: Any) -> dict[str, Any]:
    return {"client": client, "setting": setting, "run": 1, **values}


def lines(runs: list[dict[str, Any]], what: str) -> list[Line]:
    return [line for line in judge(runs) if line.what == what]


def test_medians_are_of_the_good_runs_and_of_numbers() -> None:
    runs = [
        run(OURS, "send_nowait", records_per_s=rate, keyed=False, loop="uvloop", p50_ms=None)
        for rate in (1.0, 5.0, 3.0)
    ]
    runs.append(run(OURS, "send_nowait", records_per_s=100.0, failed="records are missing"))
    runs.append(run(OURS, "send_many", unavailable="not there"))
    assert medians(runs) == {f"{OURS}: send_nowait": {"run": 1, "records_per_s": 3.0}}


def test_nothing_is_met_or_missed_without_runs() -> None:
    judged = judge([])
    assert len(judged) >= 20
    assert {line.met for line in judged} == {None}


@pytest.mark.parametrize(("ours", "met"), [(1.5, True), (1.4, False)])
def test_a_ratio_of_rates(ours: float, met: bool) -> None:
    runs = [
        run(OURS, "send_nowait", records_per_s=ours),
        run(CONFLUENT, "produce", records_per_s=1.0),
    ]
    line = lines(runs, "send_nowait")[0]
    assert (line.value, line.met, line.note) == (ours, met, "x confluent: produce")


def test_the_best_of_the_others_counts() -> None:
    runs = [
        run(OURS, "send_nowait", records_per_s=18.0),
        run(PEER, "send", records_per_s=1.0),
        run(PEER, "send, futures awaited", records_per_s=2.0),
    ]
    line = lines(runs, "send_nowait")[2]
    assert (line.value, line.other, line.met) == (9.0, 2.0, True)
    assert line.note == "x aiokafka: send, futures awaited"


def test_the_drop_in_is_compared_way_by_way() -> None:
    setting = "send_and_wait, 1000 tasks"
    runs = [
        run(DROP_IN, "send", records_per_s=8.0, cpu_us_per_record=1.4),
        run(OURS, "send_nowait", records_per_s=99.0, cpu_us_per_record=9.0),
        run(PEER, "send", records_per_s=2.0, cpu_us_per_record=7.0),
        run(DROP_IN, setting, records_per_s=4.0),
        run(PEER, setting, records_per_s=2.0),
    ]
    (cpu,) = lines(runs, "CPU, drop-in send")
    assert (cpu.ours, cpu.met) == (1.4, True)
    (send,) = lines(runs, "drop-in, send")
    assert (send.value, send.met, send.note) == (4.0, True, "x aiokafka: send")
    (tasks,) = lines(runs, f"drop-in, {setting}")
    assert (tasks.value, tasks.met) == (2.0, False)


def test_one_task_meets_its_target_by_the_peer_or_by_the_raw_round_trip() -> None:
    setting = "send_and_wait, 1 task, linger 0"
    ours, peer = run(OURS, setting, p50_ms=0.30), run(PEER, setting, p50_ms=0.32)
    (line,) = lines([ours, peer], "send_and_wait, 1 task, p50")
    assert line.met is False
    near = run(RAW, "round trip of 1 record", p50_ms=0.27)
    (line,) = lines([ours, peer, near], "send_and_wait, 1 task, p50")
    assert (line.met, line.value) == (True, pytest.approx(0.03))
    far = run(RAW, "round trip of 1 record", p50_ms=0.20)
    (line,) = lines([ours, peer, far], "send_and_wait, 1 task, p50")
    assert (line.met, line.note) == (False, "x aiokafka")


def test_what_a_key_costs_and_what_the_loop_lags_are_differences() -> None:
    runs = [
        run(OURS, "send_nowait", cpu_us_per_record=0.30),
        run(OURS, "send_nowait, keyed", cpu_us_per_record=0.33),
        run(OURS, "event loop, send_nowait", lag_p99_ms=9.0, lag_p999_ms=18.0),
        run(OURS, "event loop, idle beside a busy producer", lag_p99_ms=3.0, lag_p999_ms=4.0),
    ]
    (key,) = lines(runs, "CPU of a key")
    assert (key.value, key.met) == (pytest.approx(30.0), True)
    (p99,) = lines(runs, "event loop's lag, p99")
    assert (p99.value, p99.met) == (6.0, False)
    (p999,) = lines(runs, "event loop's lag, p99.9")
    assert (p999.value, p999.met) == (14.0, True)


def test_memory_is_bounded_and_flat() -> None:
    def overload(samples: list[float]) -> list[dict[str, Any]]:
        over_time = [[place / 4, mb] for place, mb in enumerate(samples)]
        return [
            run(
                OURS,
                "overload, 1 KB",
                rss_start_mb=50.0,
                rss_peak_mb=max(samples),
                rss_over_time_mb=over_time,
                buffer_memory_mb=32.0,
            )
        ]

    full = overload([50, 100, 120, 121, 120, 122])
    assert [line.met for line in lines(full, "memory, overload")] == [True]
    assert [line.value for line in lines(full, "memory, flat")] == [1]
    growing = overload([50, 70, 90, 110, 130, 150])
    assert [line.met for line in lines(growing, "memory, overload")] == [False]
    assert [line.met for line in lines(growing, "memory, flat")] == [False]


def test_a_line_is_plain_json() -> None:
    line = Line("a", 1.0, None, "records/s", None, 2.0, "at least")
    assert line.as_json()["met"] is None
