"""``kafkaclient streams``: who runs what in a streams application."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.cli.admin import (
    AsJson,
    Bootstrap,
    CommandConfig,
    cluster,
    print_json,
    print_table,
    run_admin,
)
from kafkaclient.cli.run import FAILED, stdout_console
from kafkaclient.streams.description import Role, describe_application

if TYPE_CHECKING:
    from kafkaclient.streams.description import (
        ApplicationDescription,
        CopyDescription,
        MemberDescription,
    )

__all__ = ["app"]

UNBALANCED = 3
"""Exit status of ``--check`` when tasks are still on their way."""

_LOOK_AGAIN_S = 0.5

app = typer.Typer(
    help="Applications with state, of `kafkaclient.streams` and of Kafka Streams, seen from "
    "outside.\n\n"
    "Example: `kafkaclient streams describe words --bootstrap-server localhost:9092`",
    no_args_is_help=True,
)


@app.callback()
def streams() -> None:
    """Applications with state, seen from outside."""


@app.command()
def describe(
    *,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The application.id.")],
    wait: Annotated[
        float, typer.Option(help="Wait for so many seconds at most while the group rebalances.")
    ] = 5.0,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with 3 while tasks are on their way to where they go."),
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show who runs what, who has copies, how far behind they are, and when tasks move next.

    The lag of an active task is the number of records that it has not processed yet. The lag of a
    copy is what its changelog has beyond it, and its state the share of the changelog that it has.
    Instances of `kafkaclient.streams` publish this every second. Kafka Streams tells how far a copy
    was when its member joined the group last, and not which changelogs it has: its lag is known for
    applications with one subtopology.

    Exit status: 0 shown, 1 failed or nobody is there, 2 wrong use, 3 (`--check`) not balanced.

    Examples: `kafkaclient streams describe words --bootstrap-server localhost:9092`,
    `kafkaclient streams describe words --check --json --bootstrap-server localhost:9092`
    """

    async def run() -> ApplicationDescription:
        until = time.monotonic() + wait
        async with cluster(bootstrap_server, command_config) as admin:
            while True:
                found = await describe_application(admin, group)
                if not found.is_rebalancing or time.monotonic() >= until:
                    return found
                await asyncio.sleep(_LOOK_AGAIN_S)

    found = run_admin(run())
    if as_json:
        print_json(_json(found))
    else:
        _print(found)
    if not found.members:
        raise typer.Exit(FAILED)
    if check and not found.is_balanced:
        raise typer.Exit(UNBALANCED)


def _json(found: ApplicationDescription) -> dict[str, Any]:
    return {
        "group": found.group,
        "state": found.state,
        "balanced": found.is_balanced,
        "next_rebalance_ms": found.next_rebalance_ms,
        "members": [_member_json(member) for member in found.members],
    }


def _member_json(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "process_id": str(member.process_id),
        "tasks": [
            {
                "task": str(copy.task),
                "role": copy.role.value,
                "partitions": [f"{topic}-{number}" for topic, number in copy.partitions],
                "position": copy.position,
                "end": copy.end,
                "lag": copy.lag,
                "progress": None if copy.progress is None else round(copy.progress, 4),
            }
            for copy in member.copies
        ],
    }


def _print(found: ApplicationDescription) -> None:
    console = stdout_console()
    if not found.members:
        told = {
            "Empty": "no instance is running",
            "Dead": "there is no such group",
        }.get(found.state, "it rebalances, look again")
        console.print(f"{found.group}: {found.state}, {told}", markup=False, soft_wrap=True)
        return
    print_table(
        {
            "process": "",
            "host": "",
            "task": "",
            "role": "",
            "lag": "right",
            "state": "right",
            "partitions": "",
        },
        [
            (*((str(member.process_id), member.host) if place == 0 else ("", "")), *_cells(copy))
            for member in found.members
            for place, copy in enumerate(member.copies or (None,))
        ],
        title=f"{found.group}: {found.state}",
    )
    console.print(_outlook(found), markup=False, soft_wrap=True)


def _cells(copy: CopyDescription | None) -> tuple[str, ...]:
    if copy is None:
        return ("-", "nothing", "", "", "")
    return (
        str(copy.task),
        copy.role.value,
        "?" if copy.lag is None else f"{copy.lag:,}",
        "" if copy.progress is None else f"{copy.progress:.0%}",
        ", ".join(f"{topic}-{number}" for topic, number in copy.partitions),
    )


def _outlook(found: ApplicationDescription) -> str:
    if found.next_rebalance_ms is None:
        return "balanced: nothing is to move"
    warmups = sum(copy.role is Role.WARMUP for member in found.members for copy in member.copies)
    seconds = found.next_rebalance_ms / 1000 - time.time()
    when = f"in {seconds:,.0f} s" if seconds > 0 else "now"
    return (
        f"not balanced: {warmups} tasks warm up; the next rebalance is when one has caught up, or "
        f"{when}"
    )
