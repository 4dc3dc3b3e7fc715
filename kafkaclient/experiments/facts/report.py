"""The findings as one HTML file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kafkaclient.experiments.facts.figures import parts, sent
from kafkaclient.experiments.figures import Curve, latency_ecdf, latency_tail, run_colour
from kafkaclient.experiments.page import cell, filled, write_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kafkaclient.experiments.facts.results import Findings
    from kafkaclient.spark.report.job import Judgement

__all__ = ["judged_by", "write_report"]

_MOST_PARTITIONS = 12
_POINTS = 400


def write_report(
    path: Path, found: Sequence[Findings], judgement: Judgement, made_with: str
) -> None:
    """Write the page; the folder is made when it is missing."""
    curves = [
        Curve(run.run, run_colour(place), _thinned(run.curve)) for place, run in enumerate(found)
    ]
    ecdf = latency_ecdf(curves)
    ecdf["layout"]["yaxis"]["title"]["text"] = "batches acknowledged, %"
    write_page(
        path,
        title="telemetry",
        body=filled(
            "facts.html",
            lead=_lead(found),
            runs="\n".join(_run(run, found) for run in found),
            failures="\n".join(_failures(run) for run in found if run.errors),
            legend="".join(
                f'<span><i style="background:{run_colour(place)}"></i>{escape(run.run)}</span>'
                for place, run in enumerate(found)
            ),
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
    """How decisions are judged, for readers."""
    return (
        "What the chosen broker took for the batch, from sending to acknowledgement, against what "
        f"the other brokers took on average for the batches sent within the same "
        f"{judgement.window_s * 1e3:g} ms. Regretted: it took more than {judgement.times:g} times "
        f"as long as the fastest other broker, and at least {judgement.least_s * 1e3:g} ms longer. "
        "Batches sent while no other broker was sent any are not judged. Where a key or the caller "
        "named the partition, there was nothing to decide: those are among “append”."
    )


def _lead(found: Sequence[Findings]) -> str:
    batches = sum(run.batches for run in found)
    records = sum(run.records for run in found)
    return (
        f"{batches:,} batches with {records:,} delivered records in {len(found)} "
        f"{'run' if len(found) == 1 else 'runs'}, as {sum(run.producers for run in found)} "
        "producers recorded them. The times of a run's producers count from when the first of them "
        "was started."
    )


def _run(run: Findings, all_runs: Sequence[Findings]) -> str:
    def marked(value: float | None, name: str, digits: int = 1) -> str:
        values = [v for other in all_runs if (v := other.part("whole").get(name)) is not None]
        best = len(all_runs) > 1 and value is not None and value <= min(values)
        return cell(_number(value, digits), "best" if best else "")

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
        cell("" if run is all_runs[0] else _number(run.against(all_runs[0]).get("p99_ms"), 2)),
        cell(_number(run.skew.get("broker_skew_p50"), 2)),
        cell(_number(run.skew.get("partition_skew_p50"), 2)),
        cell(_share(run.verdict.get("regretted"))),
    ]
    return f"<tr><th scope=row>{escape(run.run)}</th>{''.join(cells)}</tr>"


def _failures(run: Findings) -> str:
    kinds = ", ".join(f"{error} ({records:,})" for error, records in run.errors.items())
    return f"<p>Records of {escape(run.run)} that failed: {escape(kinds)}.</p>"


def _brokers(run: Findings) -> Iterator[str]:
    figures = {
        part: {row["broker"]: row for row in run.by("broker", part)}
        for part in ("deciding", "waiting", "broker", "whole")
    }
    for broker, whole in sorted(figures["whole"].items()):
        cells = [cell(f"{whole['batches']:,}")]
        for by_broker in figures.values():
            row = by_broker.get(broker, {})
            cells += [cell(_number(row.get(name), 1)) for name in ("p50_ms", "p99_ms")]
        cells.append(cell(_number(whole["max_ms"], 1)))
        yield _line(f"{run.run}, {broker}", cells)


def _decisions(run: Findings) -> Iterator[str]:
    if not run.decisions:
        yield _line(
            run.run, ["<td colspan=5>none: no two brokers were sent batches at a time</td>"]
        )
    for row in run.decisions:
        if row["broker"] is not None:
            name = f"broker {row['broker']}"
        else:
            name = "all" if row["bound_by"] is None else f"“{row['bound_by']}”"
        cells = [cell(f"{row['batches']:,}")]
        cells += [cell(_number(row[name], 2)) for name in ("took_ms", "others_ms", "best_ms")]
        yield _line(f"{run.run}, {name}", [*cells, cell(_share(row["regretted"]))])


def _partitions(run: Findings) -> Iterator[str]:
    slowest = sorted(run.by("partition"), key=lambda row: row["p99_ms"], reverse=True)
    for row in slowest[:_MOST_PARTITIONS]:
        cells = [cell(f"{row['batches']:,}")]
        cells += [
            cell(_number(row[name], 1))
            for name in ("avg_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms")
        ]
        yield _line(f"{run.run}, {row['topic']}-{row['partition']}", cells)


def _line(name: str, cells: Sequence[str]) -> str:
    return f"<tr><th scope=row>{escape(name)}</th>{''.join(cells)}</tr>"


def _thinned(points: Sequence[Any]) -> Sequence[Any]:
    """At most so many points as a picture can show; the last is kept."""
    step = max(1, len(points) // _POINTS)
    return points if step == 1 else [*points[:-1:step], points[-1]]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
