from __future__ import annotations

import pytest

from experiments.slow_broker.decisions import COLUMNS, decisions
from experiments.slow_broker.figures import decision_plots

Rows = list[tuple[object, ...]]


def columns(rows: Rows) -> dict[str, list[object]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(COLUMNS)}


@pytest.fixture
def found() -> Rows:
    """Ten seconds: broker 1 gets a batch every 10 ms, broker 0 one every 100 ms until half-time."""
    fast = [(1, 3000, 5 + place / 100, 0, 1, 5) for place in range(1000)]
    slow = [(0, 1000, 5 + place / 10, 2, 1, 1) for place in range(50)]
    return [*slow, *fast]


def test_a_brokers_gauges_and_share_over_time(found: Rows) -> None:
    run = decisions("default", columns(found))
    assert run.seconds[0] == pytest.approx(10 / 40 / 2, rel=0.01)
    assert len(run.seconds) == 40
    assert sorted(run.brokers) == [0, 1]
    slow, fast = run.brokers[0], run.brokers[1]
    assert set(fast.window) == {5.0}
    assert slow.window[:18] == [1.0] * 18
    assert slow.queued[:18] == [2.0] * 18
    for mine, others in zip(slow.share, fast.share, strict=True):
        assert mine is not None
        assert others is not None
        assert mine + others == pytest.approx(1)


def test_where_nothing_was_bound_nothing_was_seen(found: Rows) -> None:
    slow = decisions("default", columns(found)).brokers[0]
    assert slow.window[-1] is slow.queued[-1] is slow.in_flight[-1] is None
    assert slow.share[-1] == 0


def test_batches_never_bound_and_gauges_unknown_are_left_out() -> None:
    run = decisions(
        "kip794",
        columns([(None, 10, None, None, None, None), (0, 10, 1.0, 3, 0, None)]),
    )
    assert list(run.brokers) == [0]
    assert run.brokers[0].window == [None]
    assert run.brokers[0].queued == [3.0]
    assert decisions("none", columns([])).seconds == []


def test_arrows_columns_do_as_well(found: Rows) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({**columns(found), "topic": ["t"] * len(found)})
    read = decisions("default", table.select(list(COLUMNS)).to_pydict())
    assert read == decisions("default", columns(found))


def test_the_picture_has_a_row_per_run_and_a_column_per_gauge(found: Rows) -> None:
    run = decisions("default", columns(found))
    figure = decision_plots([run, run])
    assert len(figure["data"]) == 2 * 4 * 2
    assert figure["layout"]["grid"] == {"rows": 2, "columns": 4, "pattern": "independent"}
    assert [trace["showlegend"] for trace in figure["data"]].count(True) == 2
    assert figure["layout"]["yaxis4"]["range"] == [0, 1]
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["<b>default</b>"] * 2
