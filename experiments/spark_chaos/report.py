"""The results of the runs as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from kafkaclient.pages import cell, filled, row, verdict, write_page

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.spark_chaos.results import Results, Run

__all__ = ["FIGURES", "figures", "problems", "sentence", "write_report"]

FIGURES = (
    "faults",
    "rows",
    "missing",
    "repeated",
    "reordered",
    "batches",
    "drivers",
    "ended by themselves",
)
"""The headings of :func:`figures`."""


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    plan = results.plan
    write_page(
        folder / REPORT,
        title="Spark chaos",
        body=filled(
            "experiments.spark_chaos",
            "report.html",
            lead=(
                "A query on a standalone Spark cluster with two workers copies "
                f"{plan['rate']:g} rows a second from topic to topic, on three brokers, for "
                f"{plan['seconds']:g} s under faults in each run. Another client's consumer "
                f"compares every row. Seed {plan['seed']}."
            ),
            verdict="".join(map(verdict, [sentence(results), *problems(results)])),
            rows="\n".join(
                row(str(run.combination), [*map(cell, figures(run))]) for run in results.runs
            ),
        ),
        figures={},
        machine=machine_sentence(results.machine) if results.machine else "",
    )


def sentence(results: Results) -> str:
    """All runs in a sentence."""
    runs = results.runs
    wrong = sum(run.wrong for run in runs)
    right = "every row as promised" if not wrong else f"{wrong:,} rows wrong"
    failed = f"; {len(results.failed)} runs failed" if results.failed else ""
    return (
        f"{len(runs)} runs, {sum(run.rows for run in runs):,} rows, {right}; "
        f"{sum(len(run.struck) for run in runs)} faults{failed}"
    )


def problems(results: Results) -> list[str]:
    """What is wrong, and which runs failed."""
    found = [f"{run.combination}: {text}" for run in results.runs for text in run.examples]
    found += [
        f"{run.combination}: {run.left_open} transactions were left open"
        for run in results.runs
        if run.left_open
    ]
    return [*found, *(f"{name}: {why}" for name, why in results.failed.items())]


def figures(run: Run) -> tuple[str, ...]:
    """The numbers of the run, for a table."""
    numbers = (len(run.struck), run.rows, run.missing, run.repeated, run.reordered, run.batches)
    return (*(f"{each:,}" for each in numbers), str(run.driver_starts), str(len(run.ended)))
