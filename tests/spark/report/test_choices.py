"""What the choice of brokers saved: against figures by hand, and against a simulated truth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkaclient.spark.report import choices
from kafkaclient.spark.report.choices import blocks, saving


def windows(*rows: tuple[int, int, float, float]) -> pa.Table:
    names = ("second", "broker", "chosen", "chosen_s")
    return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))


def row(table: pa.Table) -> dict[str, Any]:
    (found,) = table.to_pylist()
    return found


def test_a_second_by_hand() -> None:
    """30 batches of 10 ms to broker 0, 10 of 50 ms to broker 1, which leads as many partitions."""
    found = row(blocks(4, windows((20, 0, 30.0, 0.3), (20, 1, 10.0, 0.5)), {0: 3, 1: 3}))
    assert (found["run"], found["block"]) == (4, 2)
    assert found["batches"] == 40
    assert found["actual_s"] == pytest.approx(0.8)
    assert found["uniform_s"] == pytest.approx(40 * (0.010 + 0.050) / 2)
    assert found["assumed"] == 0


def test_a_second_without_a_batch_has_the_broker_s_latest_time() -> None:
    found = blocks(
        0,
        windows((0, 0, 1.0, 0.1), (0, 1, 1.0, 0.3), (1, 0, 8.0, 0.8)),
        {0: 1, 1: 1},
        block_s=1,
    ).to_pylist()
    assert [each["assumed"] for each in found] == [0, 8]
    assert found[1]["uniform_s"] == pytest.approx(8 * (0.1 + 0.3) / 2)


def test_partitions_weigh_brokers() -> None:
    found = row(blocks(0, windows((0, 0, 1.0, 0.1), (0, 1, 1.0, 0.3)), {0: 3, 1: 1}))
    assert found["uniform_s"] == pytest.approx(2 * (0.1 * 3 + 0.3) / 4)


def test_batches_beside_a_broker_that_was_never_chosen_are_not_judged() -> None:
    unjudged = blocks(0, windows((0, 0, 7.0, 0.1)), {0: 1, 1: 1})
    assert saving(unjudged) is None
    judged = blocks(0, windows((20, 0, 1.0, 0.1), (20, 1, 1.0, 0.3)), {0: 1, 1: 1})
    found = saving(pa.concat_tables([unjudged, judged]))
    alone = saving(judged)
    assert found is not None
    assert alone is not None
    assert found == replace(alone, unjudged=7.0)


def test_the_interval_has_the_truth_in_most_runs() -> None:
    """A slow broker gets a tenth of its share. Its times are known, so the saving is, too."""
    means = np.array([0.020, 0.002, 0.002])
    share = np.array([0.1, 1.0, 1.0]) / 2.1
    truth_ms = 1e3 * (means.mean() - share @ means)
    inside = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = []
        for second in range(600):
            for broker, batches in enumerate(rng.multinomial(100, share)):
                if batches:
                    took_s = rng.gamma(8.0, means[broker] / 8, batches).sum()
                    rows.append((second, broker, float(batches), took_s))
        found = saving(blocks(0, windows(*rows), {0: 4, 1: 4, 2: 4}))
        assert found is not None
        inside += found.low_ms <= truth_ms <= found.high_ms
        assert found.saved_ms == pytest.approx(truth_ms, rel=0.05)
        assert found == saving(blocks(0, windows(*rows), {0: 4, 1: 4, 2: 4})), "reproducible"
    assert inside >= 34, "95 % on average"
    assert choices.BLOCK_S == 10
