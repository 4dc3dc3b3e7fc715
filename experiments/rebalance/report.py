"""The results of the experiment as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from kafkaclient.pages import cell, filled, row, verdict, write_page

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.rebalance.results import Results

__all__ = ["write_report"]


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    plan = results.plan
    assert results.joined is not None
    write_page(
        folder / REPORT,
        title="rebalance of 1,000 tasks",
        body=filled(
            "experiments.rebalance",
            "report.html",
            lead=(
                f"{plan['instances']} instances, each a process, run {plan['tasks']:,} tasks with "
                f"{plan['keys']:,} keys each; one more joins, while {plan['rate']:g} records a "
                f"second are counted exactly once. "
                f"max.warmup.replicas={plan['max_warmup_replicas']}, no standbys."
            ),
            wrong="".join(map(verdict, results.joined.examples)),
            rows="\n".join(row(name, [cell(figure)]) for name, figure in results.figures()),
        ),
        figures={},
        machine=machine_sentence(results.machine) if results.machine else "",
    )
