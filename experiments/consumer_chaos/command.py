"""``python -m experiments consumer-chaos``: does a group consume every record under faults?"""

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
from experiments.consumer_chaos.experiment import Experiment
from experiments.consumer_chaos.plan import Plan
from experiments.consumer_chaos.report import sentence, write_report
from experiments.streams_chaos.report import gap_figures

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from experiments.consumer_chaos.results import Results

__all__ = ["consumer_chaos"]


@of_plan(Plan)
def consumer_chaos(*, out: Out, plan: Callable[..., Plan], as_json: AsJson = False) -> None:
    """Consume as a group while members, brokers and topics fail; then look for every record.

    Starts its own brokers and members on this machine. Members are restarted, killed, paused by
    SIGSTOP, cut off from all brokers, cancelled, and leave and join again; brokers are killed and
    paused, and the group's coordinator is killed and moved; topics grow, and are deleted and
    created again. Members write down each record before they step on. The commits are read from
    `__consumer_offsets`.

    A member that ends by itself is started again. The exit status is 1 if one did, if a record was
    lost, skipped, reordered, or repeated though it was committed, if a commit was too early, or if
    two members in their sessions had a partition at once.

    Examples: `python -m experiments consumer-chaos --out build/consumer-chaos --seconds 600`,
    `python -m experiments consumer-chaos --out build/quick --protocol classic --seconds 60`
    """
    run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)


def _show(console: Console, out: Path, results: Results) -> None:
    campaign = results.campaign
    assert campaign is not None
    table = new_table(None, ("fault",), ("how often", "longest gap s", "alone s"))
    for found in campaign.gaps:
        table.add_row(found.kind, *gap_figures(found))
    console.print(table)
    print_problems(console, [*campaign.verdict.examples, *campaign.ended])
    console.print(sentence(campaign), soft_wrap=True)
    print_files(console, out)
