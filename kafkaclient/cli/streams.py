"""``kafkaclient streams``: which instance runs which task of a streams application, and a reset."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.admin.places import SHIFTED, Place
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.connection import AsJson
from kafkaclient.cli.output import FAILED, picked, print_json, print_table
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.streams.description import (
        ApplicationDescription,
        CopyDescription,
        MemberDescription,
    )
    from kafkaclient.streams.reset import ResetPlan
    from kafkaclient.types import TopicPartition


# --- ``kafkaclient streams``: which instance runs which task of a streams application -------------

UNBALANCED = 3  # exit status of --check if tasks are yet to move, or active nowhere

_REPEAT_EVERY_S = 0.5

_STATES = {"Empty": "no instance is running", "Dead": "there is no such group"}

ApplicationId = Annotated[str, typer.Argument(metavar="APPLICATION_ID", help="The application.id.")]

app = typer.Typer(
    help="Applications with state, of `kafkaclient.streams` and of Kafka Streams.",
    no_args_is_help=True,
)


@app.command()
@on_cluster
async def describe(
    connect: Connect,
    *,
    application_id: ApplicationId,
    wait: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds to wait at most while the group rebalances or a task is nowhere."
        ),
    ] = 5.0,
    check: Annotated[
        bool, "Exit with 3 if tasks are yet to move to another instance, or are active nowhere."
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which instance runs each task, which instances have copies, their lags, and when tasks
    move next.

    The lag of an active task is the number of records that it has not processed yet. The lag of a
    copy (a standby or warm-up task) is the number of changelog records that it has not restored
    yet, and its state is the restored share of the changelog. Instances of `kafkaclient.streams`
    publish this every second. Instances of Kafka Streams report positions only when they join the
    group, and without naming the changelogs. The lags of their copies are therefore known only if
    the application has one subtopology.

    Input partitions without an active task are named: no instance processes their records.

    Exit status: 1 also if no instance is running, 3 (`--check`) if tasks are yet to move or active
    nowhere.

    Examples:

    - `kafkaclient streams describe words -b localhost:9092`
    - `kafkaclient streams describe words --check --json -b localhost:9092`
    """
    from kafkaclient.streams.description import describe_application

    until = time.monotonic() + wait
    async with connect() as admin:
        found = await describe_application(admin, application_id)
        while (found.is_rebalancing or found.unassigned) and time.monotonic() < until:
            await asyncio.sleep(_REPEAT_EVERY_S)
            found = await describe_application(admin, application_id)
    if as_json:
        print_json(
            picked(found, "group", "state", "next_rebalance_ms")
            | {
                "balanced": found.is_balanced,
                "unassigned": _partitions(found.unassigned),
                "members": [_member_json(member) for member in found.members],
            }
        )
    else:
        _print(found)
    if not found.members:
        raise typer.Exit(FAILED)
    if check and not found.is_balanced:
        raise typer.Exit(UNBALANCED)


def _member_json(member: MemberDescription) -> dict[str, Any]:
    return picked(member, "member_id", "client_id", "host") | {
        "process_id": str(member.process_id),
        "tasks": [
            picked(copy, "position", "end", "lag")
            | {
                "task": str(copy.task),
                "role": copy.role.value,
                "partitions": _partitions(copy.partitions),
                "progress": None if copy.progress is None else round(copy.progress, 4),
            }
            for copy in member.copies
        ],
    }


def _partitions(found: Iterable[TopicPartition]) -> list[str]:
    return [f"{topic}-{number}" for topic, number in found]


def _print(found: ApplicationDescription) -> None:
    if not found.members:
        reason = _STATES.get(found.state, "the group is rebalancing, try again")
        typer.echo(f"{found.group}: {found.state}, {reason}")
        return
    print_table(
        ("process", "host", "task", "role", "lag", "state", "partitions"),
        (
            (*((member.process_id, member.host) if place == 0 else ("", "")), *_cells(copy))
            for member in found.members
            for place, copy in enumerate(member.copies or (None,))
        ),
        right=("lag", "state"),
        title=f"{found.group}: {found.state}",
    )
    if found.unassigned:
        typer.echo(f"active nowhere: the tasks of {', '.join(_partitions(found.unassigned))}")
    typer.echo(_outlook(found))


def _cells(copy: CopyDescription | None) -> tuple[str, ...]:
    if copy is None:
        return ("-", "nothing", "", "", "")
    return (
        str(copy.task),
        copy.role.value,
        "?" if copy.lag is None else f"{copy.lag:,}",
        "" if copy.progress is None else f"{copy.progress:.0%}",
        ", ".join(_partitions(copy.partitions)),
    )


def _outlook(found: ApplicationDescription) -> str:
    if found.is_balanced:
        return "balanced: no task is to move"
    if found.next_rebalance_ms is None:
        return "not balanced, and no rebalance is planned"
    warmups = sum(copy.role.name == "WARMUP" for member in found.members for copy in member.copies)
    seconds = found.next_rebalance_ms / 1000 - time.time()
    when = f"in {seconds:,.0f} s" if seconds > 0 else "now"
    return (
        f"not balanced: {warmups} tasks warm up; the next rebalance is when one of them has caught "
        f"up, or {when}"
    )


# --- ``kafkaclient streams reset``: an application processes its input topics again ---------------


@on_cluster
async def reset(
    connect: Connect,
    *,
    application_id: ApplicationId,
    input_topics: Annotated[
        str | None,
        typer.Option(
            metavar="TOPICS",
            help="Input topics, joined by commas. [default: all for which the application has "
            "committed offsets]",
        ),
    ] = None,
    internal_topics: Annotated[
        str | None,
        typer.Option(
            metavar="TOPICS",
            help="All internal topics to delete. Needed if some can belong to another application. "
            "[default: all]",
        ),
    ] = None,
    to: Annotated[
        str, typer.Option(metavar="PLACE", help=f"Where it begins in them: {SHIFTED}.")
    ] = "earliest",
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Also remove the application's state in this state.dir, here."
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove members from the group first, such as instances that were killed. Also "
            "reset a group of which nothing tells that it is a streams application, and input "
            "topics for which it has no committed offsets.",
        ),
    ] = False,
    dry_run: Annotated[bool, "Show what would be done; change nothing."] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let an application process its input topics again, as it did the first time.

    Stop all its instances before. The command sets the committed offsets of the input topics, and
    deletes the changelogs, the repartition topics, and the groups with the positions of standbys.
    It aborts transactions that killed instances have left open. The output topics keep their
    records.

    Each instance also has state on its disk. An instance does not use the state of a deleted
    changelog. `--state-dir`, or `app.clean_up()` before `app.run()`, removes it.

    Examples:

    - `kafkaclient streams reset words --dry-run -b localhost:9092`
    - `kafkaclient streams reset words --to 2026-11-23T10:00 --yes`
    """
    from kafkaclient.streams.reset import carry_out, plan_reset

    place = Place.parse(to, "--to", shifts=True)
    async with connect() as admin:
        plan = await plan_reset(
            admin,
            application_id,
            place,
            input_topics=_names(input_topics),
            internal_topics=_names(internal_topics),
        )
        if not as_json:
            _print_reset(plan)
        elif dry_run:
            print_json(_json(plan) | {"done": False, "state_removed": False})
        plan.check(force=force)
        if not dry_run:
            confirm(f"Reset application {application_id}?", yes=yes)
            await carry_out(admin, plan, force=force)
    removed = False if dry_run or state_dir is None else _remove_state(state_dir, application_id)
    if dry_run:
        if not as_json:
            typer.echo("nothing was done", err=True)
    elif as_json:
        print_json(_json(plan) | {"done": True, "state_removed": removed})
    else:
        deleted = [*plan.internal_topics, *plan.positions_groups]
        typer.echo(f"deleted: {', '.join(deleted) or 'nothing'}", err=True)
        typer.echo(f"application {application_id} is reset", err=True)
        if removed:
            typer.echo(f"removed the state in {state_dir}", err=True)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _remove_state(state_dir: Path, application_id: str) -> bool:
    try:
        directory = import_module("kafkaclient.streams.state_directory")
    except ImportError as error:
        raise ConfigError(
            f"--state-dir needs {error.name}, which is not installed: pip install "
            "'kafkaclient[streams]'. The rest is done"
        ) from error
    return bool(directory.remove_state(state_dir / application_id))


def _print_reset(plan: ResetPlan) -> None:
    rows = [
        (
            f"{c.partition.topic}-{c.partition.partition}",
            "none" if c.before is None else c.before,
            c.after,
        )
        for c in plan.offsets
    ]
    if rows:
        print_table(
            ("input", "committed", "new"),
            rows,
            right=("committed", "new"),
            title=f"{plan.application_id}: offsets",
        )
    deleted = [("topic", name) for name in plan.internal_topics]
    deleted += [("group", name) for name in plan.positions_groups]
    if deleted:
        print_table(("kind", "name"), deleted, title=f"{plan.application_id}: to delete")
    if plan.ambiguous_topics:
        print_table(
            ("topic",),
            ((name,) for name in plan.ambiguous_topics),
            title=f"{plan.application_id}, or another application: ambiguous",
        )
    if plan.members:
        typer.echo(f"{plan.application_id} has {len(plan.members)} members")


def _json(plan: ResetPlan) -> dict[str, object]:
    return {
        "application_id": plan.application_id,
        "members": [member.member_id for member in plan.members],
        "offsets": [
            {
                "topic": change.partition.topic,
                "partition": change.partition.partition,
                "before": change.before,
                "after": change.after,
            }
            for change in plan.offsets
        ],
        "deleted_topics": list(plan.internal_topics),
        "deleted_groups": list(plan.positions_groups),
        "ambiguous_topics": list(plan.ambiguous_topics),
    }


app.command()(reset)
