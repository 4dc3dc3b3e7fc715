"""The report on telemetry as one HTML file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kafkaclient.pages.figures import Curve, latency_ecdf, latency_tail, run_color
from kafkaclient.pages.page import cell, filled, legend, number, row, write_page
from kafkaclient.spark.report.figures import parts, sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kafkaclient.spark.report.findings import Findings
    from kafkaclient.spark.report.job import Judgement

__all__ = ["judged_by", "write_report"]

_MOST_PARTITIONS = 12
_POINTS = 400


def write_report(
    path: Path, found: Sequence[Findings], judgement: Judgement, made_with: str
) -> None:
    """Write the report on telemetry to ``path``; its folder is made when it is missing."""
    curves = [
        Curve(run.run, run_color(place), _thinned(run.curve)) for place, run in enumerate(found)
    ]
    ecdf = latency_ecdf(curves)
    ecdf["layout"]["yaxis"]["title"]["text"] = "batches acknowledged, %"
    write_page(
        path,
        title="telemetry",
        body=filled(
            "kafkaclient.spark.report",
            "report.html",
            lead=_lead(found),
            runs="\n".join(_run(run, found) for run in found),
            failures="\n".join(_failures(run) for run in found if run.errors),
            legend=legend(curves),
            brokers="\n".join(row for run in found for row in _brokers(run)),
            judgement=judged_by(judgement),
            decisions="\n".join(row for run in found for row in _decisions(run)),
            partitions="\n".join(row for run in found for row in _partitions(run)),
            most=str(_MOST_PARTITIONS),
            parts_height=str(130 + 40 * len(found)),
            sent_height=str(100 + 220 * len(found)),
        ),
        figures={
            "ecdf": ecdf,
            "tail": latency_tail(curves),
            "parts": parts(found),
            "sent": sent(found),
        },
        machine=made_with,
    )


def judged_by(judgement: Judgement) -> str:
    """How decisions are judged, in sentences for the report."""
    return (
        "The time from sending to acknowledgement on the chosen broker, beside the average time on "
        f"the other brokers for the batches sent within the same {judgement.window_s * 1e3:g} ms. "
        f"Regretted: the chosen broker took more than {judgement.times:g} times as long as the "
        f"fastest other broker, and at least {judgement.least_s * 1e3:g} ms longer. A batch is not "
        "judged if no other broker got a batch in that time. A batch whose partition was named by "
        "a key or by the caller counts as “append”."
    )


def _lead(found: Sequence[Findings]) -> str:
    batches = sum(run.batches for run in found)
    records = sum(run.records for run in found)
    return (
        f"{batches:,} batches with {records:,} delivered records in {len(found)} "
        f"{'run' if len(found) == 1 else 'runs'}, as {sum(run.producers for run in found)} "
        "producers recorded them. Times of a run count from the start of its first producer."
    )


def _run(run: Findings, all_runs: Sequence[Findings]) -> str:
    def marked(value: float | None, name: str, digits: int = 1) -> str:
        values = [v for other in all_runs if (v := other.part("whole").get(name)) is not None]
        best = len(all_runs) > 1 and value is not None and value <= min(values)
        return cell(number(value, digits), "best" if best else "")

    whole = run.part("whole")
    cells = [
        cell(f"{run.producers:,}"),
        cell(f"{run.batches:,}"),
        cell(f"{run.records_per_s:,.0f}"),
        cell(f"{run.mb_per_s:,.2f}"),
        cell(f"{run.failed_records:,}", "bad" if run.failed_records else ""),
        *(
            marked(whole.get(name), name)
            for name in ("avg_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")
        ),
        cell("" if run is all_runs[0] else number(run.against(all_runs[0]).get("p99_ms"), 2)),
        cell(number(run.skew.get("broker_skew_p50"), 2)),
        cell(number(run.skew.get("partition_skew_p50"), 2)),
        cell(_share(run.verdict.get("regretted"))),
    ]
    return row(run.run, cells)


def _failures(run: Findings) -> str:
    kinds = ", ".join(f"{error} ({records:,})" for error, records in run.errors.items())
    return f"<p>Records of {escape(run.run)} that failed: {escape(kinds)}.</p>"


def _brokers(run: Findings) -> Iterator[str]:
    figures = {
        part: {of_broker["broker"]: of_broker for of_broker in run.by("broker", part)}
        for part in ("deciding", "waiting", "broker", "whole")
    }
    for broker, whole in sorted(figures["whole"].items()):
        cells = [cell(f"{whole['batches']:,}")]
        for by_broker in figures.values():
            figure = by_broker.get(broker, {})
            cells += [cell(number(figure.get(name), 1)) for name in ("p50_ms", "p99_ms")]
        cells.append(cell(number(whole["max_ms"], 1)))
        yield row(f"{run.run}, {broker}", cells)


def _decisions(run: Findings) -> Iterator[str]:
    if not run.decisions:
        yield row(run.run, ["<td colspan=5>none: no two brokers got batches at the same time</td>"])
    for judged in run.decisions:
        if judged["broker"] is not None:
            name = f"broker {judged['broker']}"
        else:
            name = "all" if judged["bound_by"] is None else f"“{judged['bound_by']}”"
        cells = [cell(f"{judged['batches']:,}")]
        cells += [cell(number(judged[name], 2)) for name in ("took_ms", "others_ms", "best_ms")]
        yield row(f"{run.run}, {name}", [*cells, cell(_share(judged["regretted"]))])


def _partitions(run: Findings) -> Iterator[str]:
    slowest = sorted(run.by("partition"), key=lambda figures: figures["p99_ms"], reverse=True)
    for figures in slowest[:_MOST_PARTITIONS]:
        cells = [cell(f"{figures['batches']:,}")]
        cells += [
            cell(number(figures[name], 1))
            for name in ("avg_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")
        ]
        yield row(f"{run.run}, {figures['topic']}-{figures['partition']}", cells)


def _thinned(points: Sequence[Any]) -> Sequence[Any]:
    """About :data:`_POINTS` of the points at most, with the last point."""
    step = max(1, len(points) // _POINTS)
    return points if step == 1 else [*points[:-1:step], points[-1]]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
