"""Medians over repetitions, and their ratios to Java's producer with its defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from experiments.slow_broker.settings import BASELINE, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from experiments.slow_broker.results import Results
    from kafkaclient.perf.run import RunRecord

__all__ = ["Row", "curve_points", "rows", "slow_share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A setting at a rate: medians of its runs, sums of their errors; None: not known."""

    client: str
    setting: str
    rate: float
    linger_ms: float | None
    runs: int
    records_per_s: float
    mb_per_s: float
    avg_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None
    requests_per_s: float | None
    bytes_per_broker: tuple[int, ...]
    slow_share: float | None
    """Broker 0's share of the bytes, 0 to 1."""
    steady_avg_ms: float | None
    steady_p99_ms: float | None
    errors: int
    lost: int | None
    duplicated: int | None
    reordered: int | None
    avg_ratio: float | None = None
    """Ratio to the average of the baseline at the same rate."""
    p99_ratio: float | None = None
    requests_ratio: float | None = None

    @property
    def label(self) -> str:
        return f"{self.client}: {self.setting}"

    @property
    def is_baseline(self) -> bool:
        return (self.client, self.setting) == (BASELINE.client, BASELINE.name)


def rows(results: Results) -> dict[float, list[Row]]:
    """Rate -> rows in the order of the settings, ours first."""
    order = {
        (setting.client, setting.name): place
        for place, setting in enumerate(s for group in SETTINGS.values() for s in group)
    }
    groups: dict[float, dict[tuple[str, str], list[RunRecord]]] = {}
    for run in results.runs:
        by_setting = groups.setdefault(run.rate or 0.0, {})
        by_setting.setdefault((run.client, run.setting), []).append(run)
    found = {}
    for rate, by_setting in sorted(groups.items()):
        names = sorted(by_setting, key=lambda name: order.get(name, len(order)))
        made = [_row(by_setting[name], _steady(results, rate, name)) for name in names]
        baseline = next((row for row in made if row.is_baseline), None)
        found[rate] = [_with_ratios(row, baseline) for row in made]
    return found


def slow_share(bytes_per_broker: Sequence[int] | None) -> float | None:
    """Broker 0's share of the bytes, 0 to 1; None if nothing was sent."""
    if not bytes_per_broker or not sum(bytes_per_broker):
        return None
    return bytes_per_broker[0] / sum(bytes_per_broker)


def curve_points(results: Results, row: Row) -> list[tuple[float, float]]:
    """The row's distribution: the median of its runs at each percentile."""
    curves = [
        dict(latencies.points)
        for latencies in results.latencies
        if (latencies.client, latencies.setting, latencies.rate)
        == (row.client, row.setting, row.rate)
    ]
    shares = sorted(set[float]().union(*curves))
    return [(share, median(c[share] for c in curves if share in c)) for share in shares]


def _steady(results: Results, rate: float, name: tuple[str, str]) -> list[RunRecord]:
    return [
        run
        for run in results.steady_state
        if run.rate == rate and (run.client, run.setting) == name
    ]


def _row(runs: Sequence[RunRecord], steady: Sequence[RunRecord]) -> Row:
    first = runs[0]
    sent = [run.bytes_per_broker for run in runs if run.bytes_per_broker]
    return Row(
        client=first.client,
        setting=first.setting,
        rate=first.rate or 0.0,
        linger_ms=first.linger_ms,
        runs=len(runs),
        records_per_s=median(run.records_per_s for run in runs),
        mb_per_s=median(run.mb_per_s for run in runs),
        avg_ms=_median(run.avg_ms for run in runs),
        p50_ms=_median(run.p50_ms for run in runs),
        p95_ms=_median(run.p95_ms for run in runs),
        p99_ms=_median(run.p99_ms for run in runs),
        p999_ms=_median(run.p999_ms for run in runs),
        max_ms=_median(run.max_ms for run in runs),
        requests_per_s=_median(run.requests_per_s for run in runs),
        bytes_per_broker=tuple(round(median(broker)) for broker in zip(*sent, strict=True)),
        slow_share=_median(slow_share(run.bytes_per_broker) for run in runs),
        steady_avg_ms=_median(run.avg_ms for run in steady),
        steady_p99_ms=_median(run.p99_ms for run in steady),
        errors=sum(run.errors for run in runs),
        lost=_sum(run.lost for run in runs),
        duplicated=_sum(run.duplicated for run in runs),
        reordered=_sum(run.reordered for run in runs),
    )


def _with_ratios(row: Row, baseline: Row | None) -> Row:
    if baseline is None:
        return row
    return replace(
        row,
        avg_ratio=_ratio(row.avg_ms, baseline.avg_ms),
        p99_ratio=_ratio(row.p99_ms, baseline.p99_ms),
        requests_ratio=_ratio(row.requests_per_s, baseline.requests_per_s),
    )


def _ratio(value: float | None, to: float | None) -> float | None:
    return value / to if value is not None and to else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
