"""``python -m experiments task-handover`` with a small state, on its own broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MAIN = [sys.executable, "-m", "experiments"]
STEPS = ["start", "join-2", "join-3", "crash", "restart"]
KEYS, VALUE_SIZE = 20_000, 1_000


@pytest.mark.full
@pytest.mark.timeout(400)
def test_tasks_are_handed_over_and_counted_exactly(tmp_path) -> None:
    result = subprocess.run(
        [
            *(*MAIN, "task-handover", "--out", str(tmp_path), "--settle", "1"),
            *("--keys", str(KEYS), "--value-size", str(VALUE_SIZE)),
            *("--tasks", "3", "--acceptable-recovery-lag", "500"),
        ],
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["complete"], summary["skipped"]) == (True, [])
    runs = {(run["mode"], run["step"]): run for run in summary["runs"]}
    assert list(runs) == [(mode, step) for mode in ("kip441", "restore-first") for step in STEPS]
    for run in runs.values():
        assert run["counts_exact"]
        assert run["longest_gap_s"] > 0
        assert run["time_to_balance_s"] > 0
    # The first instance restores everything; later ones, with KIP-441, nothing but what was
    # written while they took over.
    state = KEYS * VALUE_SIZE
    for mode in ("kip441", "restore-first"):
        assert runs[mode, "start"]["restored_bytes"] >= state
    assert runs["kip441", "join-2"]["warmup_bytes"] >= state / 3
    assert runs["kip441", "join-2"]["restored_bytes"] < state / 3
    assert runs["restore-first", "join-2"]["restored_bytes"] >= state / 3
    gaps = json.loads((tmp_path / "gaps.json").read_text())
    assert [len(tasks) for steps in gaps.values() for tasks in steps.values()] == [3] * 10
    assert "Tasks handed over" in (tmp_path / "report.html").read_text()
    assert not list(tmp_path.glob("state-*"))
