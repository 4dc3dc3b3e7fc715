"""``kafkaclient streams``: which instance runs which task of a streams application, and a reset."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.cli.admin import Connect, on_cluster
from kafkaclient.cli.options import AsJson
from kafkaclient.cli.output import picked, print_json, print_table
from kafkaclient.cli.run import FAILED
from kafkaclient.cli.streams_reset import reset
from kafkaclient.streams.description import Role, describe_application

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.streams.description import (
        ApplicationDescription,
        CopyDescription,
        MemberDescription,
    )
    from kafkaclient.types import TopicPartition

UNBALANCED = 3  # exit status of --check if tasks are yet to move, or active nowhere

_REPEAT_EVERY_S = 0.5

_STATES = {"Empty": "no instance is running", "Dead": "there is no such group"}

app = typer.Typer(
    help="Applications with state, of `kafkaclient.streams` and of Kafka Streams.",
    no_args_is_help=True,
)


@app.command()
@on_cluster
async def describe(
    connect: Connect,
    *,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The application.id.")],
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
    until = time.monotonic() + wait
    async with connect() as admin:
        found = await describe_application(admin, group)
        while (found.is_rebalancing or found.unassigned) and time.monotonic() < until:
            await asyncio.sleep(_REPEAT_EVERY_S)
            found = await describe_application(admin, group)
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
    warmups = sum(copy.role is Role.WARMUP for member in found.members for copy in member.copies)
    seconds = found.next_rebalance_ms / 1000 - time.time()
    when = f"in {seconds:,.0f} s" if seconds > 0 else "now"
    return (
        f"not balanced: {warmups} tasks warm up; the next rebalance is when one of them has caught "
        f"up, or {when}"
    )


app.command()(reset)
