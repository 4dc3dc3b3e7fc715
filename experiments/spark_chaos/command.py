"""``python -m experiments spark-chaos``: are rows copied as promised while Spark fails?"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING

from experiments.command import (
    AsJson,
    Out,
    new_table,
    of_plan,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.spark_chaos.experiment import Experiment
from experiments.spark_chaos.plan import Plan
from experiments.spark_chaos.report import FIGURES, figures, problems, sentence, write_report

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from experiments.spark_chaos.results import Results

__all__ = ["spark_chaos"]


@of_plan(Plan)
def spark_chaos(*, out: Out, plan: Callable[..., Plan], as_json: AsJson = False) -> None:
    """Copy rows from topic to topic with Spark while it and brokers fail; then compare every row.

    Each run has brokers and a standalone Spark cluster of its own on this machine, and one of a few
    combinations of settings, in which every two settings meet: exactly or at least once,
    transactions v1 or v2, PySpark 4.2 or 4.3 (`make spark-chaos` installs them), with and without
    Connect, speculation and AQE. Executors, the driver, brokers and the coordinator of the
    transactions are killed and paused, leaders are moved, partitions are added.

    A driver that ends by itself is started again, and reported. The exit status is 1 if a row is
    missing, out of order, or, exactly once, repeated.

    Example: `python -m experiments spark-chaos --out build/spark-chaos --seconds 60 --runs 1`
    """

    run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)


def _show(console: Console, out: Path, results: Results) -> None:
    table = new_table(None, ("settings",), FIGURES)
    for run in results.runs:
        table.add_row(str(run.combination), *figures(run))
    console.print(table)
    print_problems(console, problems(results))
    print_problems(console, (text for run in results.runs for text in run.ended), "yellow")
    console.print(sentence(results), soft_wrap=True)
    print_files(console, out)
