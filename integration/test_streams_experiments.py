"""The experiments with streams applications and groups, small, each on its own brokers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MAIN = [sys.executable, "-m", "experiments"]
ROOT = Path(__file__).parents[1]
PEERS = {
    "quixstreams": ROOT / "build/quix/bin/python",
    "faust": ROOT / "build/faust/bin/python",
    "kafka-streams": Path(sys.executable),
}


def summary(out: Path, *words: str) -> dict[str, Any]:
    """What the experiment printed, once it has ended with status 0."""
    result = subprocess.run(
        [*MAIN, *words, "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["complete"]
    assert (out / "report.html").exists()
    return found


@pytest.mark.full
@pytest.mark.timeout(120)
def test_words_are_counted_exactly(tmp_path) -> None:
    [run] = summary(tmp_path, "word-count", "--words", "20000", "--runs", "1")["runs"]
    assert (run["client"], run["words"], run["wrong"]) == ("kafkaclient", 20_000, 0)
    assert run["words_per_s"] > 0
    assert run["cpu_s"] > 0
    assert not list(tmp_path.glob("state-*"))


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("peer", PEERS)
def test_words_are_counted_by_a_peer(tmp_path, peer) -> None:
    if not PEERS[peer].exists():
        pytest.skip(f"make peers installs {peer}")
    found = summary(tmp_path, "word-count", "--words", "10000", "--runs", "1", "--peers", peer)
    assert {run["client"]: run["wrong"] for run in found["runs"]} == {"kafkaclient": 0, peer: 0}


@pytest.mark.full
@pytest.mark.timeout(300)
def test_counts_are_exact_under_faults(tmp_path) -> None:
    found = summary(
        tmp_path, "streams-chaos", "--seconds", "30", "--broker-every", "15", "--rate", "300"
    )
    [run] = found["runs"]
    assert (run["wrong"], run["examples"]) == (0, [])
    assert run["records"] >= 9_000
    assert run["rebalances"] > 0
    assert len(found["faults"]) == 5
    assert any(each["kind"] == "no fault" for each in run["gaps"])


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_consumes_every_record_under_faults(tmp_path, protocol: str) -> None:
    words = ("--protocol", protocol, "--seconds", "30", "--rate", "300")
    found = summary(tmp_path, "consumer-chaos", *words)
    [run] = found["runs"]
    assert (run["lost"], run["skipped"], run["examples"]) == (0, 0, [])
    assert run["processed"] >= run["records"] - run["deleted_unread"] > 5_000
    assert run["stints"] > 12
    assert len(found["faults"]) == 9


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_group_is_balanced_after_an_instance_joins(tmp_path) -> None:
    words = ("--topics", "2", "--partitions", "6", "--instances", "2", "--keys", "200")
    [run] = summary(tmp_path, "rebalance-1000", *words)["runs"]
    assert (run["tasks"], run["instances"], run["moved"], run["wrong"]) == (12, 3, 4, 0)
    assert run["rebalances"] >= 1
    assert run["most_warmups"] >= 1
