"""Counts of tasks, added up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafkaclient.spark.report import counting
from kafkaclient.spark.report.counting import COUNTS, PACKED_COUNTS, add_up, pack

CHOICES = {"append": 0, "chosen": 0, "chosen_s": 0.0}
PLACE = {"run": 1, "topic": "t", "partition": 2, "broker": 0}


def applied(kind: str, *tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [
        {"kind": kind, "run": 1, "slice": 0, "counts": pack(pa.Table.from_pylist(task))}
        for task in tasks
    ]
    key = (pa.scalar(kind), pa.scalar(1), pa.scalar(0))
    table = add_up(key, pa.Table.from_pylist(rows, PACKED_COUNTS), 2.0, 0.001)
    assert table.schema == COUNTS
    return [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]


@pytest.mark.parametrize("unsummed", [1, 10**6])
def test_sums_and_bounds(monkeypatch: pytest.MonkeyPatch, unsummed: int) -> None:
    monkeypatch.setattr(counting, "_MAX_UNSUMMED_ROWS", unsummed)

    def row(second: int, batches: int, first_s: float) -> dict[str, Any]:
        sums = {"batches": batches, "records": 10 * batches, "bytes": 7, "retried": 0}
        times = {"first_s": first_s, "last_s": first_s + 1}
        return {**PLACE, "error": "E", "second": second, **sums, **CHOICES, **times}

    first = [row(5, 1, 5.5), row(6, 2, 6.5)]
    found = applied("seconds", first, [row(5, 3, 5.25)], [row(5, 4, 9.0)])
    assert sorted(found, key=lambda row: row["second"]) == [
        {
            "kind": "seconds",
            **PLACE,
            "error": "E",
            "second": 5,
            "batches": 8,
            "records": 80,
            "bytes": 21,
            "retried": 0,
            **CHOICES,
            "first_s": 5.25,
            "last_s": 10.0,
        },
        {
            "kind": "seconds",
            **PLACE,
            "error": "E",
            "second": 6,
            "batches": 2,
            "records": 20,
            "bytes": 7,
            "retried": 0,
            **CHOICES,
            "first_s": 6.5,
            "last_s": 7.5,
        },
    ]


def test_cells_become_decisions() -> None:
    def cell(broker: int, total_s: float) -> dict[str, Any]:
        key = {"run": 1, "broker": broker, "bound_by": "late", "moment": 3, "bucket": 4}
        return {**key, "is_chosen": True, "batches": 2, "total_s": total_s}

    found = applied("cells", [cell(0, 1.0)], [cell(1, 0.25), cell(0, 2.0)])
    assert sorted(found, key=lambda row: row["broker"]) == [
        {
            "kind": "decisions",
            "run": 1,
            "broker": 0,
            "bound_by": "late",
            "is_chosen": True,
            "batches": 4,
            "total_s": 3.0,
            "others_s": 0.5,
            "best_s": 0.5,
            "regretted": 4,
        },
        {
            "kind": "decisions",
            "run": 1,
            "broker": 1,
            "bound_by": "late",
            "is_chosen": True,
            "batches": 2,
            "total_s": 0.25,
            "others_s": 1.5,
            "best_s": 1.5,
            "regretted": 0,
        },
    ]
