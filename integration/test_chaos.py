"""``python -m experiments chaos``: every record has its outcome, once and in order."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MAIN = [sys.executable, "-m", "experiments"]
TAKEN_AWAY = {"kill", "terminate", "pause"}
SMALLER = {"cut", "cut before", "cut after", "corrupt", "delay", "move leaders", "grow"}


def campaign(out: Path, *options: str, limit_s: float) -> dict[str, Any]:
    """Its ``summary.json``."""
    result = subprocess.run(
        [*MAIN, "chaos", *options, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert result.returncode == 0, result.stderr + result.stdout
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary


def check(summary: dict[str, Any], least_sent: float) -> set[str]:
    """Every record was acknowledged, and is there once and in order. Returns the faults' kinds."""
    wrong = ("lost", "duplicated", "reordered", "misplaced", "unexpected", "unresolved")
    assert {name: summary[name] for name in wrong} == dict.fromkeys(wrong, 0)
    assert summary["failed"] == {}
    assert summary["sent"] == summary["acked"] > least_sent
    return {fault["kind"] for fault in summary["faults"] if fault["began"] is not None}


@pytest.mark.timeout(300)
def test_some_faults_cost_no_record(tmp_path) -> None:
    summary = campaign(tmp_path, "--seconds", "20", "--seed", "7", "--rate", "1500", limit_s=280)
    began = check(summary, 20 * 1500 * 0.8)
    assert began & TAKEN_AWAY
    assert began & SMALLER
    for kind in ("unkeyed", "keyed", "explicit"):
        assert summary["latency_ms"][kind]["max"] > 500, "the faults were not felt"
    assert (tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.full
@pytest.mark.timeout(420)
def test_a_minute_of_faults_costs_no_record(tmp_path) -> None:
    summary = campaign(tmp_path, "--seconds", "60", "--seed", "7", "--rate", "1500", limit_s=400)
    began = check(summary, 60 * 1500 * 0.8)
    # On a busy machine a broker may take so long to start that the last faults have no time left.
    assert began & TAKEN_AWAY
    assert began >= SMALLER
    assert summary["down_share"] >= 0.4
    assert summary["retried"] > 0
    for kind in ("unkeyed", "keyed", "explicit"):
        assert summary["latency_ms"][kind]["max"] > 1000, "the faults were not felt"


@pytest.mark.full
@pytest.mark.timeout(240)
def test_faults_cost_no_record_through_the_drop_in(tmp_path) -> None:
    options = ("--api", "aiokafka", "--seconds", "25", "--seed", "3", "--rate", "1000")
    summary = campaign(tmp_path, *options, limit_s=220)
    began = check(summary, 25 * 1000 * 0.8)
    assert began & TAKEN_AWAY
    assert began & SMALLER
    for kind in ("unkeyed", "keyed", "explicit"):
        assert summary["latency_ms"][kind]["max"] > 500, "the faults were not felt"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_all_brokers_away_and_back_costs_no_record(tmp_path) -> None:
    """The first acknowledgement comes soon after another client sees leaders; the campaign's
    figure is 2 s, here the machine may be busy with brokers that start."""
    options = ("--seconds", "24", "--outage", "8", "--seed", "1", "--rate", "1000")
    summary = campaign(tmp_path, *options, limit_s=280)
    assert summary["sent"] == summary["acked"] > 10_000
    (outage,) = summary["outages"]
    assert outage["brokers_started"] >= outage["began"] + 8
    assert -1 < outage["first_ack_after_leaders_s"] < 4
