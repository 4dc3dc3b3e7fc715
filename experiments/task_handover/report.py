"""The results of the experiment as one HTML file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from experiments.task_handover.plan import KIP441, QUIX, RESTORE_FIRST
from kafkaclient.pages import cell, filled, row, verdict, write_page

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.task_handover.results import Results, Run
    from kafkaclient.pages import Figure

__all__ = ["gaps_by_task", "write_report"]

_COLORS = {KIP441: "#e8743b", RESTORE_FIRST: "#8d99ae", QUIX: "#3b82f6"}


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    steps = list(dict.fromkeys(run.step for run in results.runs))
    write_page(
        folder / REPORT,
        title="task handover",
        body=filled(
            "experiments.task_handover",
            "report.html",
            lead=_lead(results),
            skipped="".join(
                verdict(f"{each.mode} was not measured: {each.reason}") for each in results.skipped
            ),
            rows="\n".join(map(_row, results.runs)),
            plots="\n".join(
                f'<h3>{escape(step)}</h3><div id="gap{place}" class="plot"></div>'
                for place, step in enumerate(steps)
            ),
        ),
        figures={f"gap{place}": gaps_by_task(results, step) for place, step in enumerate(steps)},
        machine=machine_sentence(results.machine) if results.machine else "",
    )


def gaps_by_task(results: Results, step: str) -> Figure:
    """The longest gap of each task in a step, with a color for each mode."""
    data: list[dict[str, Any]] = []
    for mode, steps in results.gaps.items():
        gaps = steps.get(step, [])
        data.append(
            {
                "type": "bar",
                "name": mode,
                "x": [f"0_{task}" for task in range(len(gaps))],
                "y": gaps,
                "marker": {"color": _COLORS[mode]},
                "hovertemplate": "%{y:.2f} s",
            }
        )
    return {
        "data": data,
        "layout": {
            "barmode": "group",
            "xaxis": {"title": {"text": "task"}, "type": "category"},
            "yaxis": {"title": {"text": "longest gap, s"}, "rangemode": "tozero"},
        },
    }


def _lead(results: Results) -> str:
    plan = results.plan
    return (
        f"{plan['keys']:,} keys with values of {plan['value_size']:,} bytes are the state of "
        f"{plan['tasks']} tasks; {plan['rate']:g} records a second are counted exactly once "
        f"while instances come and go. session.timeout.ms={plan['session_timeout_ms']}, "
        f"heartbeat.interval.ms={plan['heartbeat_interval_ms']}, "
        f"probing.rebalance.interval.ms={plan['probing_rebalance_interval_ms']}, "
        f"max.warmup.replicas={plan['max_warmup_replicas']}, "
        f"num.standby.replicas={plan['num_standby_replicas']}."
    )


def _row(run: Run) -> str:
    exact = cell("yes") if run.counts_exact else cell("no", "bad")
    return row(f"{run.mode}, {run.step}", [*map(cell, run.figures()), exact])
