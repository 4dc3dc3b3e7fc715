from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from experiments.slow_broker.compare import curve_points, rows, slow_share

if TYPE_CHECKING:
    from experiments.slow_broker.results import Results


def test_rows_are_medians_in_the_order_of_the_settings(results: Results) -> None:
    found = rows(results)[2048.0]
    assert [row.label for row in found] == [
        "kafkaclient: default",
        "kafkaclient: kip794 adaptive linger 0",
        "java: adaptive linger 0",
        "java: adaptive linger 5",
    ]
    default = found[0]
    assert (default.runs, default.avg_ms, default.p99_ms) == (2, 9.0, 36.0)
    assert default.bytes_per_broker == (250_000, 375_000, 375_000)
    assert default.slow_share == 0.25
    assert default.steady_avg_ms == 4.5
    assert (default.errors, default.lost, found[-1].lost) == (0, 0, None)


def test_ratios_are_to_javas_default(results: Results) -> None:
    default, *_, java = rows(results)[2048.0]
    assert (java.avg_ratio, java.p99_ratio, java.requests_ratio) == (1, 1, 1)
    assert default.avg_ratio == pytest.approx(9 / 30)
    assert default.requests_ratio == pytest.approx(250 / 200)


def test_without_javas_default_there_are_no_ratios(results: Results) -> None:
    results.runs = [run for run in results.runs if run.setting != "adaptive linger 5"]
    assert {row.avg_ratio for row in rows(results)[2048.0]} == {None}


def test_a_distribution_is_the_median_of_its_runs(results: Results) -> None:
    default = rows(results)[2048.0][0]
    assert dict(curve_points(results, default)) == pytest.approx(
        {1.0: 0.18, 50.0: 9.0, 90.0: 16.2, 99.0: 17.82}
    )


def test_no_bytes_have_no_share() -> None:
    assert slow_share(None) is None
    assert slow_share((0, 0, 0)) is None
    assert slow_share((1, 3)) == 0.25
