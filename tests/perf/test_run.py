from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kafkaclient.perf.run import RunRecord, write_runs

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = (
    *("client", "setting", "rate", "linger_ms", "run", "records", "seconds", "records_per_s"),
    *("mb_per_s", "avg_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"),
    *("bytes_per_broker", "requests_per_broker", "requests_per_s", "errors"),
    *("lost", "duplicated", "reordered"),
)


def record(run: int = 1) -> RunRecord:
    return RunRecord(
        client="kafkaclient",
        setting="default",
        rate=None,
        linger_ms=5.0,
        run=run,
        records=10,
        seconds=1.23456789,
        records_per_s=8.1,
        mb_per_s=0.1,
        avg_ms=1.0,
        p50_ms=1.0,
        p95_ms=2.0,
        p99_ms=3.0,
        p999_ms=None,
        max_ms=4.0,
        bytes_per_broker=(3, 2, 1),
    )


def test_the_fields_stand_in_their_documented_order_and_unknown_ones_are_null() -> None:
    values = json.loads(json.dumps(record().as_json()))
    assert tuple(values) == FIELDS
    assert values["bytes_per_broker"] == [3, 2, 1]
    assert values["seconds"] == 1.234568
    for unknown in ("rate", "p999_ms", "requests_per_broker", "lost", "duplicated", "reordered"):
        assert values[unknown] is None


def test_a_file_holds_the_last_record_and_all_runs(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.json"
    runs = [record(1).as_json(), record(2).as_json()]
    write_runs(path, runs, **runs[-1])
    values = json.loads(path.read_text())
    assert [run["run"] for run in values["runs"]] == [1, 2]
    assert {name: values[name] for name in FIELDS} == values["runs"][1]


def test_a_summary_holds_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_runs(path, [{**record().as_json(), "read_back": {"lost": 0}}])
    values = json.loads(path.read_text())
    assert list(values) == ["runs"]
    assert values["runs"][0]["read_back"] == {"lost": 0}
