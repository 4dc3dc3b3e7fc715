"""``python -m experiments word-count``: words per second, beside other stream processors."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING

from rich.text import Text

from experiments.command import (
    AsJson,
    Out,
    new_table,
    of_plan,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.word_count.experiment import Experiment
from experiments.word_count.plan import Plan
from experiments.word_count.report import figures, write_report

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from experiments.word_count.results import Results

__all__ = ["word_count"]


@of_plan(Plan)
def word_count(*, out: Out, plan: Callable[..., Plan], as_json: AsJson = False) -> None:
    """Count words: lines are split, the words are grouped and counted, the counts kept.

    Starts its own broker on this machine and writes the lines. Then each stream processor counts
    them in one process: `kafkaclient` (ours), `quixstreams` and `kafka-streams` (Java) exactly
    once; `faust` at least once, with its table in memory, and `faust-rocksdb` with its table on
    disk. All have a changelog. `make peers` makes the environments of the Python peers; the jars
    of Kafka Streams are fetched. Another client's consumer reads the changelogs and compares every
    count.

    The exit status is 1 if a run failed, or if a count of ours is wrong.

    Examples: `python -m experiments word-count --out build/words --words 100000 --runs 1`,
    `python -m experiments word-count --out build/words --words 10000000
    --peers quixstreams,faust,kafka-streams`
    """

    run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)


def _show(console: Console, out: Path, results: Results) -> None:
    table = new_table(
        None,
        ("client",),
        ("words/s", "ours is", "CPU us/word", "start s", "MB", "changes", "wrong counts"),
    )
    for found in results.medians():
        *cells, wrong = figures(found)
        table.add_row(found.client, *cells, Text(wrong, "bold red") if found.wrong else wrong)
    console.print(table)
    print_problems(
        console,
        [
            *(f"{run.client}, run {run.run}: {e}" for run in results.runs for e in run.examples),
            *(f"{each.client}, run {each.run}: {each.reason}" for each in results.skipped),
        ],
    )
    print_files(console, out)
