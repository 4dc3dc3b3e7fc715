"""``kafkaclient reassign verify``, ``cancel``, ``list``, ``watch``: moves that have begun."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.admin import ReassignmentPlan
from kafkaclient.cli import reassign_report as report
from kafkaclient.cli.admin import (
    AsJson,
    Bootstrap,
    CommandConfig,
    Yes,
    cluster,
    confirm,
    print_json,
    run_admin,
)
from kafkaclient.cli.run import FAILED, stderr_console, stdout_console
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.admin import Lifted, Progress, Verification
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment

__all__ = ["IN_PROGRESS", "PlanFile", "cancel", "end_with", "list_", "verify", "watch"]

IN_PROGRESS = 4
"""Exit status of ``verify`` while something of the plan is on its way."""

PlanFile = Annotated[
    Path,
    typer.Option("--reassignment-json-file", help="The plan, as Kafka's tool has it.", exists=True),
]
Preserve = Annotated[bool, typer.Option("--preserve-throttles", help="Remove no throttles.")]


def verify(
    *,
    reassignment_json_file: PlanFile,
    preserve_throttles: Preserve = False,
    all_throttles: Annotated[
        bool,
        typer.Option(
            "--all-throttles",
            help="When nothing moves, also delete throttles that others set, as Kafka's tool does.",
        ),
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Compare the cluster with a plan, and remove throttles that no move needs any more.

    Removed is what `execute` set, also what it left behind when it was killed. Safe to be run by
    cron. Exit status 4 while something of the plan is in progress, 1 when it ended elsewhere.

    Example: `kafkaclient reassign verify --reassignment-json-file plan.json`
    """

    async def run() -> tuple[Verification, Lifted | None]:
        plan = ReassignmentPlan.from_json(reassignment_json_file.read_bytes())
        if preserve_throttles and all_throttles:
            raise ConfigError("--preserve-throttles and --all-throttles: give one of them")
        async with cluster(bootstrap_server, command_config) as admin:
            told = await admin.reassigner.verify(
                plan.replicas, preserve_throttles=preserve_throttles
            )
            lifted = told.lifted
            if all_throttles and told.idle:
                lifted = await admin.replication_quotas.clear(everyone=True)
            return told, lifted

    told, lifted = run_admin(run())
    if as_json:
        print_json(
            {
                "completed": told.completed,
                "in_progress": told.in_progress,
                "partitions": [report.state_json(each) for each in told.partitions],
                "throttles": None if lifted is None else report.lifted_json(lifted),
            }
        )
    else:
        console = stdout_console()
        console.print("Status of partition reassignment:")
        for each in told.partitions:
            console.print(str(each), markup=False, soft_wrap=True)
        if lifted is not None:
            report.print_lifted(lifted)
        if not all_throttles:
            _hint_at_foreign(told)
    if told.in_progress:
        raise typer.Exit(IN_PROGRESS)
    if not told.completed or (lifted is not None and lifted.failures):
        raise typer.Exit(FAILED)


def cancel(
    *,
    reassignment_json_file: Annotated[
        Path | None, typer.Option(help="Cancel the moves of this plan.", exists=True)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Cancel all moves in the cluster.")] = False,
    preserve_throttles: Preserve = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Cancel moves that are under way: partitions keep the replicas that they had. Then remove
    the throttles that no other move needs.

    Example: `kafkaclient reassign cancel --reassignment-json-file plan.json`
    """

    async def run() -> dict[TopicPartition, KafkaError | None]:
        if (reassignment_json_file is None) != all_:
            raise ConfigError("give --reassignment-json-file, or --all")
        wanted = None
        if reassignment_json_file is not None:
            plan = ReassignmentPlan.from_json(reassignment_json_file.read_bytes())
            wanted = frozenset(plan.replicas)
        async with cluster(bootstrap_server, command_config) as admin:
            ongoing = await admin.list_partition_reassignments()
            count = sum(wanted is None or partition in wanted for partition in ongoing)
            if count:
                confirm(f"Cancel the moves of {count} partitions?", yes=yes)
            return await admin.reassigner.cancel(wanted, preserve_throttles=preserve_throttles)

    results = run_admin(run())
    failed = {partition: error for partition, error in results.items() if error is not None}
    cancelled = sorted(str(partition) for partition in results.keys() - failed.keys())
    if as_json:
        told = {str(partition): str(error) for partition, error in failed.items()}
        print_json({"cancelled": cancelled, "failed": told})
    elif cancelled:
        stdout_console().print(
            f"Successfully cancelled partition reassignments for: {','.join(cancelled)}",
            markup=False,
            soft_wrap=True,
        )
    elif not failed:
        stdout_console().print("None of the specified partition reassignments are active.")
    end_with(failed)


def list_(
    *,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the moves that are under way.

    Example: `kafkaclient reassign list --bootstrap-server localhost:9092`
    """

    async def run() -> dict[TopicPartition, OngoingReassignment]:
        async with cluster(bootstrap_server, command_config) as admin:
            return await admin.list_partition_reassignments()

    moves = run_admin(run())
    if as_json:
        print_json(
            [
                {
                    **partition._asdict(),
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for partition, move in sorted(moves.items())
            ]
        )
    else:
        report.print_ongoing(moves)


def watch(
    *,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Tell once, after an interval, and end.")
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Follow all moves under way, whoever began them, until they are over: how far each is, the
    rate beside the quota, the time left, and what is stuck and why. Changes nothing.

    With `--json` each look is a line.

    Examples: `kafkaclient reassign watch`, `kafkaclient reassign watch --once --json`
    """

    def tell(progress: Progress) -> None:
        print_json(report.progress_json(progress))

    async def run() -> Progress | None:
        async with cluster(bootstrap_server, command_config) as admin:
            looks = admin.reassigner.progress(every_s=interval)
            if not once:
                return await report.follow(looks, tell=tell if as_json else None)
            async with aclosing(looks):
                progress = await anext(looks)
                if not progress.finished:  # a rate takes two looks
                    progress = await anext(looks)
            if as_json:
                tell(progress)
            return progress

    last = run_admin(run())
    if last is None or as_json:
        return
    if not last.partitions:
        stdout_console().print("No partition reassignments found.")
    elif once:
        stdout_console().print(report.line(last), markup=False, soft_wrap=True)
        for each in last.stuck:
            stdout_console().print(f"{each.partition} is stuck: {each.stuck}", markup=False)


def end_with(failed: Mapping[TopicPartition, KafkaError]) -> None:
    """Tell what has failed, and end; nothing if nothing has."""
    if not failed:
        return
    console = stderr_console()
    console.print("[red]error:[/] reassigning partitions:")
    for partition, error in sorted(failed.items()):
        console.print(f"{partition}: {error}", markup=False, soft_wrap=True)
    raise typer.Exit(FAILED)


def _hint_at_foreign(told: Verification) -> None:
    topics = [name for name, now in told.throttles.topics.items() if now.any and not now.marked]
    brokers = [n for n, now in told.throttles.brokers.items() if now.rates and now.mark is None]
    cleared = set(told.lifted.topics) if told.lifted else set()
    freed = set(told.lifted.brokers) if told.lifted else set()
    names = [f"topic {name}" for name in topics if name not in cleared]
    names += [f"broker {node}" for node in brokers if node not in freed]
    if names and told.idle:
        stderr_console().print(
            f"throttles that kafkaclient did not set: {', '.join(names)}; --all-throttles deletes "
            "them",
            markup=False,
            soft_wrap=True,
        )
