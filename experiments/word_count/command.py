"""``python -m experiments word-count``: words per second, beside other stream processors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from experiments.command import (
    AsJson,
    Out,
    new_table,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.options import parse_peers
from experiments.word_count.experiment import Experiment
from experiments.word_count.plan import PEERS, Plan, check_streams
from experiments.word_count.report import figures, write_report

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.word_count.results import Results

__all__ = ["word_count"]


def word_count(  # noqa: PLR0913 - an option for each field of the plan
    *,
    out: Out,
    peers: Annotated[
        str,
        typer.Option(help=f"Processors beside ours: {', '.join(PEERS)}, joined by commas."),
    ] = "none",
    words: Annotated[int, typer.Option(help="Words to count.")] = 1_000_000,
    runs: Annotated[int, typer.Option(help="Runs of each processor, in turns.")] = 3,
    vocabulary: Annotated[int, typer.Option(help="Different words.")] = 10_000,
    words_per_line: Annotated[int, typer.Option(help="Words in a line.")] = 10,
    partitions: Annotated[int, typer.Option(help="Partitions of the topics.")] = 4,
    stall: Annotated[
        float, typer.Option(help="Give a run up after this many seconds without a commit.")
    ] = 60.0,
    quix_python: Annotated[
        Path, typer.Option(help="Python of the environment with Quix Streams.")
    ] = Path("build/quix/bin/python"),
    faust_python: Annotated[
        Path, typer.Option(help="Python of the environment with faust-streaming.")
    ] = Path("build/faust/bin/python"),
    as_json: AsJson = False,
) -> None:
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

    def plan() -> Plan:
        check_streams()
        return Plan(
            peers=parse_peers(peers, PEERS),
            words=words,
            runs=runs,
            vocabulary=vocabulary,
            words_per_line=words_per_line,
            partitions=partitions,
            stall_s=stall,
            quix_python=quix_python,
            faust_python=faust_python,
        )

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
