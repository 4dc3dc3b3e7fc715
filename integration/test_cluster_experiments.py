"""Short runs of the experiments about partitions and moves, as a shell starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]

MAIN = [sys.executable, "-m", "experiments"]


def experiment(out: Path, *words: str) -> dict[str, Any]:
    """Its ``summary.json``."""
    result = subprocess.run(
        [*MAIN, *words, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert result.returncode == 0, result.stderr + result.stdout
    assert (out / "report.html").stat().st_size > 100_000
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert summary["complete"]
    return summary


def test_moves_keep_to_their_quota_and_leave_nothing(tmp_path) -> None:
    summary = experiment(
        tmp_path,
        *("replication-quota", "--scenarios", "one-to-one", "--seconds", "15"),
        *("--partitions", "20", "--load", "500", "--quiet-seconds", "4"),
    )
    plain, loaded = summary["runs"]
    for run in (plain, loaded):
        assert not run["left"]
        assert run["bytes_to_move"] >= 150_000_000
        # A busy machine makes moves slower, and nothing makes them faster but for the burst.
        assert 0.4 < run["share"] < 1.5
        assert run["samples"][-1][1] >= run["bytes_to_move"]
    assert plain["inbound"] == 0
    assert 200_000 < loaded["inbound"] < 1_000_000
    for stretch in ("quiet", "throttled", "unthrottled"):
        assert loaded[stretch]["records"] > 500
        assert loaded[stretch]["failed"] == 0
    assert loaded["unthrottled_s"] < loaded["seconds"]


def test_topics_are_made_written_to_and_gone(tmp_path) -> None:
    summary = experiment(
        tmp_path, "partition-limits", "--partitions", "10,60", "--seconds", "1", "--brokers", "3"
    )
    shapes = [(run["replication"], run["topic_partitions"]) for run in summary["runs"]]
    assert shapes == [(1, 30), (3, 10), (1, 180), (3, 60)]
    for run in summary["runs"]:
        assert 0 < run["answered_s"] <= run["directories_s"]
        assert 0 < run["unknown_s"] <= run["removed_s"]
        ours, java = run["sent"]
        assert (ours["client"], java["client"]) == ("kafkaclient", "java")
        assert ours["records"] == java["records"] > 0
        assert ours["failed"] == java["failed"] == 0
