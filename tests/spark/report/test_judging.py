"""Decisions, against the same judged one cell at a time."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.spark.report.counting import judge_decisions

CELLS = st.lists(
    st.tuples(
        st.integers(0, 3),  # moment
        st.integers(0, 3),  # broker
        st.sampled_from(["late", "append"]),
        st.integers(1, 5),  # batches
        st.integers(1, 64),  # 128ths of a second that each took
    ),
    min_size=1,
    max_size=30,
    unique_by=itemgetter(0, 1, 2, 4),
)
TIMES, LEAST_S = 2.0, 0.125


def by_hand(
    cells: list[tuple[int, int, str, int, int]],
) -> dict[tuple[int, str, bool], dict[str, Any]]:
    found: dict[tuple[int, str, bool], dict[str, Any]] = {}
    for moment, broker, bound_by, batches, took in cells:
        others = [c for c in cells if c[0] == moment and c[1] != broker]
        if not others:
            continue
        took_s = took / 128

        def mean_s(some: list[tuple[int, int, str, int, int]]) -> float:
            return sum(c[3] * c[4] / 128 for c in some) / sum(c[3] for c in some)

        best_s = min(
            mean_s([c for c in others if c[1] == rival]) for rival in {c[1] for c in others}
        )
        row = found.setdefault((broker, bound_by, bound_by == "late"), dict.fromkeys(FIGURES, 0))
        row["batches"] += batches
        row["total_s"] += took_s * batches
        row["others_s"] += mean_s(others) * batches
        row["best_s"] += best_s * batches
        if took_s > TIMES * best_s and took_s > best_s + LEAST_S:
            row["regretted"] += batches
    return found


FIGURES = ("batches", "total_s", "others_s", "best_s", "regretted")


def test_nothing_to_judge() -> None:
    names = ("run", "moment", "broker", "batches")
    none = {name: pa.array([], pa.int64()) for name in names}
    table = pa.table(
        {
            **none,
            "bound_by": pa.array([], pa.string()),
            "is_chosen": pa.array([], pa.bool_()),
            "total_s": pa.array([], pa.float64()),
        }
    )
    assert len(judge_decisions(table, TIMES, LEAST_S)) == 0


@given(CELLS)
def test_decisions_are_judged_as_by_hand(cells: list[tuple[int, int, str, int, int]]) -> None:
    table = pa.Table.from_pylist(
        [
            {
                "run": 7,
                "moment": moment,
                "broker": broker,
                "bound_by": bound_by,
                "is_chosen": bound_by == "late",
                "bucket": took,
                "batches": batches,
                "total_s": batches * took / 128,
            }
            for moment, broker, bound_by, batches, took in cells
        ]
    )
    found = {}
    for row in judge_decisions(table, TIMES, LEAST_S).to_pylist():
        assert row.pop("run") == 7
        found[row.pop("broker"), row.pop("bound_by"), row.pop("is_chosen")] = row
    expected = by_hand(cells)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key] == pytest.approx(row)
