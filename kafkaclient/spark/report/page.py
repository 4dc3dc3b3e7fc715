"""The report on telemetry as one HTML file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kafkaclient.pages import (
    Column,
    Curve,
    broker_color,
    cell,
    filled,
    latency_ecdf,
    latency_tail,
    legend,
    number,
    panels,
    row,
    run_color,
    write_page,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from kafkaclient.pages import Figure
    from kafkaclient.spark.report.findings import Findings, Row
    from kafkaclient.spark.report.job import Judgement

_MAX_PARTITIONS = 12
_MAX_POINTS = 400  # of a curve, about
_LATENCIES = ("avg_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")
_PART_COLORS = {"deciding": "#a46ede", "waiting": "#e8743b", "answering": "#3b82f6"}
_NOTHING_JUDGED = "none: no partition was chosen, or in each hour a broker got no such batch"
_SKEW_COLOR = "#7a8699"
_MB = 1024.0 * 1024.0


def write_report(
    path: Path, found: Sequence[Findings], judgement: Judgement, made_with: str
) -> None:
    """Write the report to ``path``, and create its folder if it is missing."""
    curves = [
        Curve(run.run, run_color(place), _thinned(run.curve)) for place, run in enumerate(found)
    ]
    ecdf = latency_ecdf(curves)
    ecdf["layout"]["yaxis"]["title"]["text"] = "batches acknowledged, %"

    def rows(of_run: Callable[[Findings], Iterable[str]]) -> str:
        return "\n".join(line for run in found for line in of_run(run))

    write_page(
        path,
        title="telemetry",
        body=filled(
            "kafkaclient.spark.report",
            "report.html",
            lead=_lead(found),
            runs=rows(lambda run: [_run(run, found)]),
            failures=rows(_failures),
            legend=legend(curves),
            brokers=rows(_brokers),
            window_ms=f"{judgement.window_s * 1e3:g}",
            times=f"{judgement.times:g}",
            least_ms=f"{judgement.least_s * 1e3:g}",
            decisions=rows(_decisions),
            savings=rows(_saving),
            exclusions=rows(_exclusions),
            partitions=rows(_partitions),
            most=str(_MAX_PARTITIONS),
            parts_height=str(130 + 40 * len(found)),
            sent_height=str(100 + 220 * len(found)),
        ),
        figures={
            "ecdf": ecdf,
            "tail": latency_tail(curves),
            "parts": _parts_figure(found),
            "sent": _sent_figure(found),
        },
        machine=made_with,
    )


def _lead(found: Sequence[Findings]) -> str:
    batches = sum(run.batches for run in found)
    records = sum(run.records for run in found)
    return (
        f"{batches:,} batches with {records:,} delivered records in {len(found)} "
        f"{'run' if len(found) == 1 else 'runs'}, as {sum(run.producers for run in found)} "
        "producers recorded them. Plots over time begin with the first second of each run."
    )


def _run(run: Findings, all_runs: Sequence[Findings]) -> str:
    def latency(name: str) -> str:
        """The cell is marked if no other run has a lower value."""
        value = run.part("whole").get(name)
        values = [v for other in all_runs if (v := other.part("whole").get(name)) is not None]
        best = len(all_runs) > 1 and value is not None and value <= min(values)
        return cell(number(value, 1), "best" if best else "")

    cells = [
        cell(f"{run.producers:,}"),
        cell(f"{run.batches:,}"),
        cell(f"{run.records_per_s:,.0f}"),
        cell(f"{run.mb_per_s:,.2f}"),
        cell(f"{run.failed_records:,}", "bad" if run.failed_records else ""),
        *map(latency, _LATENCIES),
        cell("" if run is all_runs[0] else number(run.against(all_runs[0]).get("p99_ms"), 2)),
        cell(number(run.skew.get("broker_skew_p50"), 2)),
        cell(number(run.skew.get("partition_skew_p50"), 2)),
        cell(_percent(run.verdict.get("regretted"))),
    ]
    return row(run.run, cells)


def _failures(run: Findings) -> Iterator[str]:
    if run.errors:
        kinds = ", ".join(f"{error} ({records:,})" for error, records in run.errors.items())
        yield f"<p>Records of {escape(run.run)} that failed: {escape(kinds)}.</p>"


def _brokers(run: Findings) -> Iterator[str]:
    figures = {
        part: {of_broker["broker"]: of_broker for of_broker in run.by("broker", part)}
        for part in (*_PART_COLORS, "whole")
    }
    for broker, whole in sorted(figures["whole"].items()):
        cells = [cell(f"{whole['batches']:,}")]
        for by_broker in figures.values():
            cells += _numbers(by_broker.get(broker, {}), ("p50_ms", "p99_ms"))
        yield row(f"{run.run}, {broker}", [*cells, *_numbers(whole, ["max_ms"])])


def _decisions(run: Findings) -> Iterator[str]:
    if not run.decisions:
        yield row(run.run, ["<td colspan=5>none: no two brokers got batches at the same time</td>"])
    for judged in run.decisions:
        if judged["broker"] is not None:
            name = f"broker {judged['broker']}"
        else:
            name = "all choices" if judged["bound_by"] is None else f"“{judged['bound_by']}”"
        cells = [cell(f"{judged['batches']:,}")]
        cells += _numbers(judged, ("took_ms", "others_ms", "best_ms"), 2)
        yield row(f"{run.run}, {name}", [*cells, cell(_percent(judged["regretted"]))])


def _saving(run: Findings) -> Iterator[str]:
    saved = run.saving
    if not saved:
        yield row(run.run, [f"<td colspan=6>{_NOTHING_JUDGED}</td>"])
        return
    cells = [
        *_numbers(saved, ["batches"], 0),
        *_numbers(saved, ("actual_ms", "saved_ms"), 2),
        cell(f"{saved['low_ms']:,.2f} to {saved['high_ms']:,.2f}"),
        cell(_percent(saved["assumed"])),
        *_numbers(saved, ["unjudged"], 0),
    ]
    yield row(run.run, cells)


def _exclusions(run: Findings) -> Iterator[str]:
    for found in run.exclusions:
        name = f"{run.run}, broker {found['broker']}"
        yield row(name, [cell(escape(found["reason"]), "text"), cell(f"{found['times']:,}")])


def _partitions(run: Findings) -> Iterator[str]:
    slowest = sorted(run.by("partition"), key=lambda figures: figures["p99_ms"], reverse=True)
    for figures in slowest[:_MAX_PARTITIONS]:
        cells = [cell(f"{figures['batches']:,}"), *_numbers(figures, _LATENCIES)]
        yield row(f"{run.run}, {figures['topic']}-{figures['partition']}", cells)


def _numbers(figures: Row, names: Iterable[str], decimals: int = 1) -> list[str]:
    return [cell(number(figures.get(name), decimals)) for name in names]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _thinned(points: Sequence[Any]) -> Sequence[Any]:
    """Points at equal steps, and the last point."""
    step = max(1, len(points) // _MAX_POINTS)
    return points if step == 1 else [*points[:-1:step], points[-1]]


def _parts_figure(found: Sequence[Findings]) -> Figure:
    """The parts of the average latency: one bar for each run."""
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": part,
                "x": [run.part(part).get("avg_ms") for run in found],
                "y": [run.run for run in found],
                "marker": {"color": color},
                "hovertemplate": "%{x:.2f} ms",
            }
            for part, color in _PART_COLORS.items()
        ],
        "layout": {
            "barmode": "stack",
            "bargap": 0.35,
            "legend": {"traceorder": "normal"},
            "xaxis": {"title": {"text": "ms on average"}},
            "yaxis": {"autorange": "reversed", "ticksuffix": "  "},
        },
    }


def _sent_figure(found: Sequence[Findings]) -> Figure:
    """Bytes and records per second to each broker, and the skew of brokers: one row for each
    run."""

    def cells(series: Sequence[Row]) -> tuple[Iterable[Row], ...]:
        return _lines(series, "bytes", _MB), _lines(series, "records", 1.0), _skew(series)

    columns = [Column(title, matched=True) for title in ("MB/s", "records/s", "skew")]
    return panels(columns, [(run.run, cells(run.series)) for run in found])


def _lines(series: Sequence[Row], name: str, unit: float) -> Iterator[Row]:
    for broker in sorted({bin_["broker"] for bin_ in series}):
        bins = [bin_ for bin_ in series if bin_["broker"] == broker]
        width = bins[0]["bin_s"]
        values = {bin_["bin"]: bin_[name] / width / unit for bin_ in bins}
        points = [(place, values.get(place, 0.0)) for place in range(max(values) + 1)]
        yield {
            "name": f"broker {broker}",
            "legendgroup": str(broker),
            **_line(points, width, broker_color(broker)),
            "hovertemplate": "%{y:,.2f}",
        }


def _skew(series: Sequence[Row]) -> Iterator[Row]:
    """The skew of brokers in each bin with records, among the brokers that the run sent to."""
    brokers = len({bin_["broker"] for bin_ in series})
    within: dict[int, list[int]] = {}
    for bin_ in series:
        within.setdefault(bin_["bin"], []).append(bin_["bytes"])
    sizes = [(place, sent) for place, sent in sorted(within.items()) if any(sent)]
    points = [(place, max(sent) * brokers / sum(sent)) for place, sent in sizes]
    if points:
        line = _line(points, series[0]["bin_s"], _SKEW_COLOR)
        yield {"name": "skew", **line, "hovertemplate": "%{y:.2f}"}


def _line(points: Sequence[tuple[int, float]], bin_s: float, color: str) -> Row:
    return {
        "x": [round((place + 0.5) * bin_s, 2) for place, _ in points],
        "y": [round(value, 3) for _, value in points],
        "line": {"color": color, "width": 1.6},
    }
