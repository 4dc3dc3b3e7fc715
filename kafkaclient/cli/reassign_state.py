"""``kafkaclient reassign verify``, ``cancel``, ``list``, ``watch``: moves that have begun."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.admin import ReassignmentPlan
from kafkaclient.cli import reassign_report as report
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.connection import AsJson, Yes, given_of
from kafkaclient.cli.output import FAILED, joined, picked, print_json, print_message
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.admin import Lifted, Progress, Verification
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment

IN_PROGRESS = 4  # exit status of `verify` while a move of the plan is in progress

PlanFile = Annotated[
    Path,
    typer.Option(
        *("--reassignment-json-file", "--plan"),
        help="The plan, in the format of Kafka's tool.",
        exists=True,
    ),
]
Preserve = Annotated[bool, "Remove no throttles."]


@on_cluster
async def verify(
    connect: Connect,
    *,
    reassignment_json_file: PlanFile,
    preserve_throttles: Preserve = False,
    all_throttles: Annotated[
        bool, "If nothing moves, also delete throttles of other tools, as Kafka's tool does."
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the cluster with a plan, and remove throttles that no move needs any more.

    Removes the throttles that `execute` set, also after it was killed. Can be run by cron. The exit
    status is 4 while a move of the plan is in progress, and 1 if a partition has other replicas
    than in the plan.

    Example:

    - `kafkaclient reassign verify --plan plan.json`
    """
    plan = read_plan(reassignment_json_file)
    given_of({"--preserve-throttles": preserve_throttles, "--all-throttles": all_throttles})
    async with connect() as admin:
        found = await admin.reassigner.verify(plan.replicas, preserve_throttles=preserve_throttles)
        lifted = found.lifted
        if all_throttles and found.idle:
            lifted = await admin.replication_quotas.clear(everyone=True)
    if as_json:
        print_json(
            {
                "completed": found.completed,
                "in_progress": found.in_progress,
                "partitions": [
                    {**each.partition._asdict(), **picked(each, "target", "replicas")}
                    | {"state": each.state.value}
                    for each in found.partitions
                ],
                "throttles": None if lifted is None else report.lifted_json(lifted),
            }
        )
    else:
        typer.echo("Status of partition reassignment:")
        for each in found.partitions:
            typer.echo(str(each))
        if lifted is not None:
            report.print_lifted(lifted)
        if not all_throttles:
            _hint_at_foreign(found)
    if found.in_progress:
        raise typer.Exit(IN_PROGRESS)
    if not found.completed or (lifted is not None and lifted.failures):
        raise typer.Exit(FAILED)


@on_cluster
async def cancel(
    connect: Connect,
    *,
    reassignment_json_file: Annotated[
        Path | None,
        typer.Option(
            *("--reassignment-json-file", "--plan"),
            help="Cancel the moves of this plan.",
            exists=True,
        ),
    ] = None,
    all_: Annotated[bool, "Cancel all moves in the cluster."] = False,
    preserve_throttles: Preserve = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel moves that are under way: partitions keep the replicas that they had. Then remove
    the throttles that no other move needs.

    Example:

    - `kafkaclient reassign cancel --plan plan.json`
    """
    if (reassignment_json_file is None) != all_:
        raise ConfigError("give --plan, or --all")
    wanted = None
    if reassignment_json_file is not None:
        wanted = frozenset(read_plan(reassignment_json_file).replicas)
    async with connect() as admin:
        ongoing = await admin.list_partition_reassignments()
        count = sum(wanted is None or partition in wanted for partition in ongoing)
        if count:
            confirm(f"Cancel the moves of {count} partitions?", yes=yes)
        lifted: list[Lifted] = []
        results = await admin.reassigner.cancel(
            wanted, preserve_throttles=preserve_throttles, on_lifted=lifted.append
        )
    failed = {partition: error for partition, error in results.items() if error is not None}
    cancelled = sorted(str(partition) for partition in results.keys() - failed.keys())
    reordered = [
        str(partition)
        for partition, move in sorted(ongoing.items())
        if str(partition) in cancelled and _may_be_reordered(move)
    ]
    if as_json:
        told = {"cancelled": cancelled, "failed": report.errors_json(failed)}
        told["may_be_reordered"] = reordered
        print_json(told | {"throttles": report.lifted_json(lifted[0]) if lifted else None})
    elif cancelled:
        typer.echo(f"Successfully cancelled partition reassignments for: {joined(cancelled)}")
    elif not failed:
        typer.echo("None of the specified partition reassignments are active.")
    if reordered and not as_json:
        print_message(
            "note",
            f"the replicas of {joined(reordered)} may be in another order than before the move, "
            "and the first one is the preferred leader: execute the plan of --rollback-file to "
            "restore the order",
        )
    for each in lifted:
        report.print_lifted(each)
    exit_if_failed(failed)
    if any(each.failures for each in lifted):
        raise typer.Exit(FAILED)


@on_cluster
async def list_(connect: Connect, *, as_json: AsJson = False) -> None:
    """Show the moves that are under way.

    Example:

    - `kafkaclient reassign list -b localhost:9092`
    """
    async with connect() as admin:
        moves = await admin.list_partition_reassignments()
    if as_json:
        print_json(
            [
                partition._asdict() | picked(move, "replicas", "adding", "removing")
                for partition, move in sorted(moves.items())
            ]
        )
    else:
        report.print_ongoing(moves)


@on_cluster
async def watch(
    connect: Connect,
    *,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two reports.")] = 1.0,
    once: Annotated[bool, "Report once, after an interval, and end."] = False,
    as_json: AsJson = False,
) -> None:
    """Follow all moves under way until they are over, also moves that other tools began: how far
    each is, the rate beside the quota, the time left, and what is stuck and why. Changes nothing.

    With `--json` each report is a line.

    Examples:

    - `kafkaclient reassign watch`
    - `kafkaclient reassign watch --once --json`
    """
    last: Progress | None = None
    async with connect() as admin:
        reports = admin.reassigner.progress(every_s=interval)
        if once:
            async with aclosing(reports):
                last = await anext(reports)
                if not last.finished:  # a rate takes two measurements
                    last = await anext(reports)
            if as_json:
                print_json(report.progress_json(last))
        elif as_json:
            async for progress in reports:
                print_json(report.progress_json(progress))
        else:
            last = await report.follow(reports)
    if last is None or as_json:
        return
    if not last.partitions:
        typer.echo("No partition reassignments found.")
    elif once:
        typer.echo(report.line(last))
        for each in last.stuck:
            typer.echo(f"{each.partition} is stuck: {each.stuck}")


def read_plan(file: Path) -> ReassignmentPlan:
    return ReassignmentPlan.from_json(file.read_bytes())


def exit_if_failed(failed: Mapping[TopicPartition, KafkaError]) -> None:
    """Print the failures and end with status 1; without failures do nothing."""
    if not failed:
        return
    print_message("error", "reassigning partitions:")
    for partition, error in sorted(failed.items()):
        typer.echo(f"{partition}: {error}", err=True)
    raise typer.Exit(FAILED)


def _may_be_reordered(move: OngoingReassignment) -> bool:
    """Whether a cancel may leave the earlier replicas in another order. While they move, the
    controller lists those that stay first, and it keeps this order."""
    earlier = set(move.replicas) - set(move.adding)
    return len(earlier) > 1 and not earlier <= set(move.removing)


def _hint_at_foreign(found: Verification) -> None:
    """Name the throttles of other tools that are left when nothing moves."""
    topics, brokers = found.throttles.topics.items(), found.throttles.brokers.items()
    cleared = set(found.lifted.topics) if found.lifted else set()
    freed = set(found.lifted.brokers) if found.lifted else set()
    names = [f"topic {t}" for t, now in topics if now.any and not now.marked and t not in cleared]
    names += [f"broker {n}" for n, now in brokers if now.rates and not now.mark and n not in freed]
    names += ["the broker defaults"] * bool(found.throttles.defaults)
    if names and found.idle:
        typer.echo(
            f"throttles that kafkaclient did not set: {', '.join(names)}; --all-throttles deletes "
            "them",
            err=True,
        )
