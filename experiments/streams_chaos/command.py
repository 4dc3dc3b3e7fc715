"""``python -m experiments streams-chaos``: are counts exact while instances and brokers fail?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from experiments.command import (
    AsJson,
    Out,
    new_table,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.streams_chaos.experiment import Experiment
from experiments.streams_chaos.plan import Plan, check_streams
from experiments.streams_chaos.report import gap_figures, sentence, write_report

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from experiments.streams_chaos.results import Results

__all__ = ["streams_chaos"]


def streams_chaos(  # noqa: PLR0913 - an option for each field of the plan
    *,
    out: Out,
    seconds: Annotated[float, typer.Option(help="How long there are faults.")] = 60.0,
    seed: Annotated[
        int, typer.Option(help="Decides the faults: the same seed, the same faults.")
    ] = 1,
    instances: Annotated[int, typer.Option(help="Instances, each of which is a process.")] = 3,
    brokers: Annotated[int, typer.Option(help="How many brokers.")] = 3,
    tasks: Annotated[int, typer.Option(help="Tasks, each with a partition.")] = 6,
    rate: Annotated[float, typer.Option(help="Records per second.")] = 600.0,
    keys: Annotated[int, typer.Option(help="Different keys.")] = 5_000,
    instance_every: Annotated[
        float, typer.Option(help="Seconds between two faults of instances, on average.")
    ] = 10.0,
    broker_every: Annotated[
        float, typer.Option(help="Seconds between two faults of brokers; 0 for no such fault.")
    ] = 30.0,
    standbys: Annotated[int, typer.Option(help="num.standby.replicas.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Count records while instances and brokers fail; then compare every count.

    Starts its own brokers and instances on this machine. Instances are restarted, killed (also with
    the loss of their disk), paused by SIGSTOP and cut off from all brokers, for half a second to
    15 s; brokers are killed, restarted and paused, one at a time. Faults of instances overlap.
    Records are counted exactly once; another client's consumer reads all counts.

    An instance that ends by itself is started again, and reported. The exit status is 1 if a count
    is wrong.

    Examples: `python -m experiments streams-chaos --out build/streams-chaos --seconds 600`,
    `python -m experiments streams-chaos --out build/quick --seconds 30 --brokers 1
    --broker-every 0`
    """

    def plan() -> Plan:
        check_streams()
        return Plan(
            seconds=seconds,
            seed=seed,
            instances=instances,
            brokers=brokers,
            tasks=tasks,
            rate=rate,
            keys=keys,
            instance_every_s=instance_every,
            broker_every_s=broker_every,
            num_standby_replicas=standbys,
        )

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
