"""``kafkaclient topics offsets`` and ``delete-records``: where partitions begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.admin.places import HELP, Place, admin_ends, admin_offsets
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.connection import AsJson, Yes
from kafkaclient.cli.group_offsets import chosen_partitions, left_out, say_left_out
from kafkaclient.cli.output import print_json, print_table
from kafkaclient.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

Partitions = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC[:N,N]", help="The topics, or some partitions of them."),
]


@on_cluster
async def offsets(
    connect: Connect,
    *,
    topics: Partitions,
    at: Annotated[
        str | None,
        typer.Option("--at", "-o", metavar="PLACE", help=f"Also the offset of a place: {HELP}."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the first offset and the end of each partition, and how many offsets are between.

    Examples:

    - `kafkaclient topics offsets flights`
    - `kafkaclient topics offsets flights:0,1 --at 2026-11-28T15:00`
    """
    place = None if at is None else Place.parse(at, "--at")
    async with connect() as admin:
        wanted = await chosen_partitions(admin, topics, ())
        first, end = await admin_ends(admin, wanted, read_committed=False)
        found = [first, end]
        if place is not None:
            found.append(await admin_offsets(admin, place, first, end))
        # A partition may have lost its leader between two requests.
        known = sorted(each for each in wanted if all(each in offsets for offsets in found))
        causes = await left_out(admin, wanted, known)
    rows = [
        (
            *each,
            first[each],
            end[each],
            end[each] - first[each],
            *(more[each] for more in found[2:]),
        )
        for each in known
    ]
    _print(("topic", "partition", "first", "end", "offsets", *([at] if at else [])), rows, as_json)
    total = sum(end[each] - first[each] for each in known)
    typer.echo(f"{counted(total, 'offset')} in {counted(len(rows), 'partition')}", err=True)
    say_left_out(causes)


@on_cluster
async def delete_records(
    connect: Connect,
    *,
    topics: Partitions,
    before: Annotated[str, typer.Option("--before", "-o", metavar="PLACE", help=f"{HELP}.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the records before an offset or a time, after a confirmation.

    Examples:

    - `kafkaclient topics delete-records flights --before 7d`
    - `kafkaclient topics delete-records flights:0 --before 1200 --yes`
    """
    place = Place.parse(before, "--before")
    async with connect() as admin:
        wanted = await chosen_partitions(admin, topics, ())
        first, end = await admin_ends(admin, wanted, read_committed=False)
        new = await admin_offsets(admin, place, first, end)
        some = {each: at for each, at in new.items() if at > first[each]}
        if some:
            total = counted(sum(some.values()) - sum(first[each] for each in some), "offset")
            confirm(f"Delete the records of {total} in {counted(len(some), 'partition')}?", yes=yes)
            new |= await admin.delete_records(some)
        causes = await left_out(admin, wanted, new)
    rows = [(*each, first[each], at) for each, at in sorted(new.items())]
    _print(("topic", "partition", "before", "first"), rows, as_json)
    say_left_out(causes)


def _print(columns: tuple[str, ...], rows: Iterable[tuple[object, ...]], as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows, right=columns[1:])
