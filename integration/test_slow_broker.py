"""A short ``python -m experiments slow-broker``, with its own brokers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
import pytest

MAIN = [sys.executable, "-m", "experiments"]
COMMAND = [*MAIN, "slow-broker", "--rates", "1000"]
OURS = ["default", "kip794 adaptive linger 0"]


@pytest.mark.full
@pytest.mark.timeout(180)
def test_every_record_is_acknowledged_and_the_results_are_written(tmp_path) -> None:
    result = subprocess.run(
        [
            *COMMAND,
            *("--seconds", "2", "--peers", "java", "--out", str(tmp_path)),
            *("--settings", ",".join([*OURS, "java:adaptive linger 5"])),
        ],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    for stage in ("Starting 3", "Warming", "20 ms late", "1/3", "3/3"):
        assert stage in result.stderr

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["complete"]
    assert summary["machine"]["versions"]["kafka"]
    runs = {(run["client"], run["setting"]): run for run in summary["runs"]}
    assert set(runs) == {
        *(("kafkaclient", name) for name in OURS),
        ("java", "adaptive linger 5"),
    }
    for run in runs.values():
        assert (run["rate"], run["run"], run["records"], run["errors"]) == (1000, 1, 2000, 0)
        assert 0 < run["p50_ms"] <= run["p99_ms"] <= run["p999_ms"] <= run["max_ms"]
        assert len(run["bytes_per_broker"]) == len(run["requests_per_broker"]) == 3
        assert sum(run["bytes_per_broker"]) > 2000 * 512
        assert all(run["requests_per_broker"])
    for name in OURS:
        run = runs["kafkaclient", name]
        assert (run["lost"], run["duplicated"], run["reordered"]) == (0, 0, 0)
        assert name in result.stdout
    assert [run["records"] for run in summary["steady_state"]] == [1500] * 3

    page = (tmp_path / "report.html").read_text()
    assert "46.8 / 9.2 / 9.0" in page
    assert "<script src" not in page


@pytest.mark.full
@pytest.mark.timeout(120)
def test_ctrl_c_ends_the_brokers_and_keeps_what_was_measured(tmp_path) -> None:
    with subprocess.Popen(
        [
            *COMMAND,
            *("--seconds", "1", "--repeat", "100", "--peers", "none", "--settings", "default"),
            *("--out", str(tmp_path)),
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as experiment:
        assert experiment.stderr is not None
        for line in experiment.stderr:
            if "2/100" in line:
                break
        helpers = psutil.Process(experiment.pid).children(recursive=True)
        assert len(helpers) >= 3
        experiment.send_signal(signal.SIGINT)
        rest = experiment.stderr.read()
        assert experiment.wait(timeout=60) == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    _gone, alive = psutil.wait_procs(helpers, timeout=10)
    assert not alive
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["runs"][0]["records"] == 1000
    assert not summary["complete"]
