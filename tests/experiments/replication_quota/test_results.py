from __future__ import annotations

import json
from dataclasses import replace

import pytest

MB = 1_000_000


def test_what_a_move_came_to(moved) -> None:
    run = moved()
    assert run.name == "one to two"
    assert run.rate == pytest.approx(300 * MB / 32)
    assert run.share == pytest.approx(0.9375)
    assert run.burst_s == pytest.approx(5.0)
    assert run.steady_rate == pytest.approx(190 * MB / 20)
    assert run.error == pytest.approx(0.05)
    assert run.p99_ratio is None
    assert run.rates()[0] == (0.5, 60 * MB)


def test_what_comes_in_anyway_is_not_the_moves(results) -> None:
    _, run = results.runs
    assert run.name == "one to two, with load"
    assert run.dictated == 8 * MB
    assert run.share == pytest.approx(300 / 40 / 8)
    assert run.p99_ratio == pytest.approx(1.4)
    assert run.unthrottled_ratio == pytest.approx(40.0)


def test_a_short_move_has_no_steady_rate(moved) -> None:
    run = moved(samples=((0.0, 0), (1.0, 60 * MB), (11.5, 100 * MB), (15.0, 140 * MB)))
    assert run.steady_rate is None
    assert moved(samples=()).burst_s == 0.0
    assert moved(expected_s=None).error is None


def test_written(results, tmp_path) -> None:
    results.write(tmp_path / "new")
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert (summary["experiment"], summary["complete"]) == ("replication-quota", results.complete)
    assert (summary["plan"], summary["machine"]) == (results.plan, results.machine)
    assert summary["runs"] == json.loads(json.dumps([run.as_json() for run in results.runs]))


def test_clean(results, moved) -> None:
    assert results.is_clean
    _, loaded = results.runs
    assert not replace(results, complete=False).is_clean
    assert not replace(results, runs=[moved(left=True)]).is_clean
    bad = replace(loaded, throttled=replace(loaded.throttled, failed=1))
    assert not replace(results, runs=[bad]).is_clean
