from __future__ import annotations

import json
from dataclasses import replace


def test_beside_the_kips_figures(made) -> None:
    assert made(3, 100).published_mbps == 101
    assert made(1, 5000).published_mbps == 24
    assert made(3, 7).published_mbps is None
    assert made(2, 100).published_mbps is None
    assert made().mbps("java") == 64.0
    assert made(sent=()).mbps("java") is None


def test_written(results, tmp_path) -> None:
    results.write(tmp_path / "new")
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert (summary["experiment"], summary["complete"]) == ("partition-limits", results.complete)
    assert (summary["plan"], summary["machine"]) == (results.plan, results.machine)
    assert summary["runs"] == json.loads(json.dumps([run.as_json() for run in results.cells]))


def test_clean(results, made) -> None:
    assert results.is_clean
    assert not replace(results, complete=False).is_clean
    assert not replace(results, cells=[made(failures=("java: it ended",))]).is_clean
    ours, java = made().sent
    assert not replace(results, cells=[made(sent=(replace(ours, failed=1), java))]).is_clean
