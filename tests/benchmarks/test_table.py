from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.produce.picture import draw
from benchmarks.produce.table import number, runs_table, targets_table
from benchmarks.produce.targets import judge

if TYPE_CHECKING:
    from pathlib import Path

RUNS: list[dict[str, Any]] = [
    {
        "client": "kafkaclient",
        "setting": "send_nowait",
        "records_per_s": 3_000_000.0,
        "cpu_us_per_record": 0.25,
    },
    {
        "client": "confluent",
        "setting": "produce",
        "records_per_s": 1_000_000.0,
        "cpu_us_per_record": 0.9,
    },
    {"client": "kafkaclient", "setting": "send_many", "unavailable": "no send_many yet"},
    {"client": "aiokafka", "setting": "send", "failed": "3 records are missing"},
]


def shown(table: Any) -> str:
    console = Console(file=StringIO(), width=200, color_system=None)
    console.print(table)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_every_entry_has_a_line() -> None:
    text = shown(runs_table(RUNS))
    assert "3,000,000" in text
    assert "0.25" in text
    assert "not available: no send_many yet" in text
    assert "0 of 1" in text


def test_targets_say_whether_they_are_met() -> None:
    lines = shown(targets_table(judge(RUNS))).splitlines()
    (first,) = [line for line in lines if "1.5 x confluent: produce" in line]
    assert first.split()[1:3] == ["3,000,000", "1,000,000"]
    assert first.rstrip().endswith("yes")


def test_numbers_keep_what_matters() -> None:
    told = [number(value) for value in (None, 0, 0.1234, 12.34, 1234567.8)]
    assert told == ["-", "0", "0.123", "12.3", "1,234,568"]


def test_the_picture_has_the_entries_that_sent(tmp_path: Path) -> None:
    assert draw(tmp_path / "produce.svg", RUNS)
    text = (tmp_path / "produce.svg").read_text()
    assert "kafkaclient: send_nowait" in text
    assert "send_many" not in text
    assert not draw(tmp_path / "none.svg", [])
