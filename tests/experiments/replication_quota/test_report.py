from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.replication_quota.report import arrival, waiting, write_report


@pytest.fixture
def html(monkeypatch, tmp_path):

    def write(results) -> str:
        write_report(tmp_path, results)
        return (tmp_path / "report.html").read_text("utf-8")

    return write


def test_within_all_targets(html, results) -> None:
    text = html(results)
    assert 'class="verdict good"' in text
    for shown in ("one to two, with load", "94%", "+5%", "1.40", "40.00", "400.0"):
        assert shown in text


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seconds": 40.0}, "rate 75% of what is dictated"),
        ({"expected_s": 50.0}, "estimate +56%"),
        ({"left": True}, "a throttle was left behind"),
    ],
)
def test_what_is_missed_is_told(html, results, moved, changed, told) -> None:
    text = html(replace(results, runs=[moved(**changed)]))
    assert 'class="verdict bad"' in text
    assert told in text


def test_a_p99_beyond_its_target_and_a_run_that_failed(html, results) -> None:
    _, loaded = results.runs
    slow = replace(loaded, throttled=replace(loaded.throttled, p99_ms=16.0))
    text = html(replace(results, runs=[slow], failed={"two to one": "no <broker>"}))
    assert "p99 1.60 x" in text
    assert "two to one: no &lt;broker&gt;" in text


def test_pictures(results) -> None:
    plain, loaded = results.runs
    arrived, dictated, _rate = arrival(plain)["data"]
    assert arrived["y"] == [0.0, 60.0, 100.0, 290.0]
    assert dictated["y"] == [0, 320.0]
    assert waiting(plain)["data"] == []
    assert len(waiting(loaded)["data"]) == 6
