"""A short ``python -m experiments demo``, with its own brokers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
import pytest

COMMAND = [sys.executable, "-m", "experiments", "demo"]
SETTINGS = [
    "adaptive.partitioning.enable=false",
    "default",
    "availability.timeout.ms=5",
    "default, keyed by carrier",
    "keyed, broker 0 stalled",
    "confluent-kafka: keyed, broker 0 stalled",
]


@pytest.mark.full
@pytest.mark.timeout(180)
def test_every_row_is_read_back_once_and_the_results_are_written(tmp_path) -> None:
    result = subprocess.run(
        [*COMMAND, "--rows", "12000", "--rate", "4000", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    for setting in SETTINGS:
        assert setting in result.stdout
    for stage in ("Starting", "Warming", "20 ms late", "publishing", "reading back"):
        assert stage in result.stderr

    runs = json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    assert [run["setting"] for run in runs] == SETTINGS
    for run in runs:
        client = "confluent" if "confluent" in run["setting"] else "kafkaclient"
        rate = 2000 if "stalled" in run["setting"] else 4000
        assert (run["client"], run["rate"], run["linger_ms"]) == (client, rate, 5)
        assert (run["records"], run["errors"]) == (12_000, 0)
        assert (run["lost"], run["duplicated"], run["reordered"]) == (0, 0, 0)
        assert (run["read_back"]["records"], run["read_back"]["unexpected"]) == (12_000, 0)
        assert len(run["read_back"]["records_per_partition"]) == 12
        assert len(run["bytes_per_broker"]) == len(run["requests_per_broker"]) == 3
        assert all(run["bytes_per_broker"])
    assert [run["read_back"]["ordered_by"] for run in runs] == ["partition"] * 3 + ["key"] * 3
    ours, peer = ((r["to_others_before_per_s"], r["to_others_stalled_per_s"]) for r in runs[4:])
    assert min(ours) > 0
    assert peer[0] > 0

    page = (tmp_path / "out" / "report.html").read_text()
    for setting in SETTINGS:
        assert setting in page
    assert "<script src" not in page
    assert "<link" not in page


@pytest.mark.timeout(120)
@pytest.mark.full
def test_ctrl_c_ends_the_brokers(tmp_path) -> None:
    # Where the shell has Ctrl-C ignored (jobs by &), the command would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [*COMMAND, "--rows", "5000", "--rate", "100", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "publishing" in line:
                break
        helpers = psutil.Process(demo.pid).children(recursive=True)
        assert len(helpers) >= 3
        demo.send_signal(signal.SIGINT)
        rest = demo.stderr.read()
        assert demo.wait(timeout=60) == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    _gone, alive = psutil.wait_procs(helpers, timeout=10)
    assert not alive
    assert not (tmp_path / "summary.json").exists()
