"""``python -m experiments streams-chaos``: are counts exact while instances and brokers fail?"""

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
from experiments.streams_chaos.experiment import Experiment
from experiments.streams_chaos.plan import Plan
from experiments.streams_chaos.report import gap_figures, sentence, write_report

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from experiments.streams_chaos.results import Results

__all__ = ["streams_chaos"]


@of_plan(Plan)
def streams_chaos(*, out: Out, plan: Callable[..., Plan], as_json: AsJson = False) -> None:
    """Count records while instances and brokers fail; then compare every count.

    Starts its own brokers and instances on this machine. Instances are restarted, killed (also with
    the loss of their disk), paused by SIGSTOP and cut off from all brokers, for half a second to
    15 s; brokers are killed, restarted and paused, one at a time. Faults of instances overlap.
    Another client's consumer reads all counts. At least once, a count may be repeated or ahead, but
    no record may be missing.

    An instance that ends by itself is started again, and reported. The exit status is 1 if a count
    is wrong.

    Examples: `python -m experiments streams-chaos --out build/streams-chaos --seconds 600`,
    `python -m experiments streams-chaos --out build/quick --seconds 30 --brokers 1
    --broker-every 0`
    """

    run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)


def _show(console: Console, out: Path, results: Results) -> None:
    campaign = results.campaign
    assert campaign is not None
    table = new_table(None, ("fault",), ("how often", "longest gap s", "alone s"))
    for found in campaign.gaps:
        table.add_row(found.kind, *gap_figures(found))
    console.print(table)
    print_problems(console, [*campaign.examples, *campaign.ended])
    console.print(sentence(campaign), soft_wrap=True)
    print_files(console, out)
