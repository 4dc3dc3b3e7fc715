from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from experiments.slow_broker.results import Results
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = [
    *("client", "setting", "rate", "linger_ms", "run", "records", "seconds", "records_per_s"),
    *("mb_per_s", "avg_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"),
    *("bytes_per_broker", "requests_per_broker", "requests_per_s", "errors", "lost"),
    *("duplicated", "reordered"),
]


def test_what_was_written_is_read_again(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "new")
    assert Results.read(tmp_path / "new") == results


def test_the_summary_has_the_common_record_and_what_it_was_measured_on(
    results: Results, tmp_path: Path
) -> None:
    results.write(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [list(run) for run in summary["runs"]] == [FIELDS] * 6
    assert summary["runs"][0]["bytes_per_broker"] == [250_000, 375_000, 375_000]
    assert summary["machine"]["versions"]["kafka"] == "4.3.1"
    assert summary["plan"]["delay_ms"] == 20
    assert [run["telemetry"] for run in summary["recorded"]] == ["telemetry/default"]
    assert summary["complete"] is True


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not hold the results"):
        Results.read(tmp_path)
    (tmp_path / "summary.json").write_text('{"runs": []}')
    (tmp_path / "latencies.json").write_text('{"runs": []}')
    with pytest.raises(ConfigError, match="plan"):
        Results.read(tmp_path)
