"""``kafkaclient groups``: what ``kafka-consumer-groups`` does, on any cluster."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.admin.places import SHIFTED, Place, admin_ends, admin_offsets
from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.connection import AsJson, Yes
from kafkaclient.cli.group_offsets import (
    Change,
    Lag,
    chosen_partitions,
    existing_group,
    lag_by_topic,
    lags_of,
    lags_of_all,
    lags_of_each,
    left_out,
    partitions_named,
    read_offsets,
    say_left_out,
    say_unknown,
)
from kafkaclient.cli.output import FAILED, picked, print_json, print_message, print_table
from kafkaclient.errors import ConfigError, ProtocolError, counted
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.wire.groups import DescribedMember

app = typer.Typer(
    help="Consumer groups of any Kafka cluster: list, describe, lag, and their offsets.",
    no_args_is_help=True,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
Groups = Annotated[list[str], typer.Argument(metavar="GROUP", help="The groups.")]
AnyGroups = Annotated[
    list[str] | None, typer.Argument(metavar="GROUP", help="The groups. Without: all of them.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:N,N]",
        help="Only this topic, or these partitions of it; may be repeated.",
    ),
]
_KINDS = {"": "classic", "consumer": "consumer (KIP-848)"}
_EMPTY = ("Empty", "Dead")
_NEW = " (--create with --topic makes it)"


@app.command("list")
@on_cluster
async def list_(connect: Connect, *, as_json: AsJson = False) -> None:
    """Show the groups, their states and kinds: classic, consumer (KIP-848), share, streams.

    Example:

    - `kafkaclient groups list -b localhost:9092`
    """
    async with connect() as admin:
        found = await admin.list_groups()
    rows = [(each.group_id, each.state, _kind(each.kind)) for each in found]
    if as_json:
        print_json([dict(zip(("group", "state", "kind"), row, strict=True)) for row in rows])
    else:
        print_table(("group", "state", "kind"), rows)


@app.command()
@on_cluster
async def describe(connect: Connect, *, group: Group, as_json: AsJson = False) -> None:
    """Show a group: its members, what they have, the committed offsets and the lag.

    Example:

    - `kafkaclient groups describe billing`
    """
    async with connect() as admin:
        found = await existing_group(admin, group)
        owners = _owners(found.members)
        lags = await lags_of(admin, group, owners)
    if as_json:
        print_json(
            {
                "group": found.group_id,
                "state": found.state,
                "kind": _kind(found.kind),
                "assignor": found.protocol,
                "members": [_member_json(member) for member in found.members],
                "partitions": [each.as_json() for each in lags],
            }
        )
        return
    words = [f"{found.group_id}: {found.state}", _kind(found.kind), found.protocol]
    typer.echo(", ".join(filter(None, words)))
    if found.members:
        print_table(
            ("member", "client", "host", "partitions"),
            (
                (
                    _name(member),
                    member.client_id,
                    member.host.lstrip("/"),
                    sum(owner is member for owner in owners.values()),
                )
                for member in found.members
            ),
            right=("partitions",),
        )
    if lags:
        _print_lags(lags, {where: _name(member) for where, member in owners.items()})


@app.command()
@on_cluster
async def lag(
    connect: Connect,
    *,
    groups: AnyGroups = None,
    watch: Annotated[
        float | None, typer.Option(min=0.1, help="Show it again every N seconds, until Ctrl-C.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how many records each group has not consumed yet, by topic, the most first.

    Examples:

    - `kafkaclient groups lag # all groups`
    - `kafkaclient groups lag billing audit --watch 5`
    """
    async with connect() as admin:
        while True:
            lags = await (lags_of_each(admin, groups) if groups else lags_of_all(admin))
            rows = [row for group, found in lags.items() for row in lag_by_topic(group, found)]
            rows.sort(key=lambda row: row[3], reverse=True)
            if as_json:
                names = ("group", "topic", "partitions", "lag")
                print_json([dict(zip(names, row, strict=True)) for row in rows])
            else:
                now = datetime.now().astimezone().isoformat(" ", "seconds")
                print_table(
                    ("group", "topic", "partitions", "lag"),
                    ((*row[:3], f"{row[3]:,}") for row in rows),
                    right=("partitions", "lag"),
                    title=None if watch is None else now,
                )
            say_unknown(each for found in lags.values() for each in found)
            if watch is None:
                return
            await asyncio.sleep(watch)


@app.command("reset-offsets")
@on_cluster
async def reset_offsets(
    connect: Connect,
    *,
    group: Group,
    to: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help=f"The new offsets: {SHIFTED}."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="The new offsets, as `groups describe --json` or this command print them.",
        ),
    ] = None,
    topic: Topics = None,
    create: Annotated[bool, "Make the group, with offsets of --topic, if there is none."] = False,
    execute: Annotated[bool, "Set them. Without, only show what would change."] = False,
    as_json: AsJson = False,
) -> None:
    """Set where a group without members goes on. Shows the old and the new offsets, and sets them
    with `--execute`.

    Examples:

    - `kafkaclient groups reset-offsets billing --to earliest`
    - `kafkaclient groups reset-offsets billing --to 2h --topic orders:0,1 --execute`
    - `kafkaclient groups reset-offsets billing --to +100 --execute # leave out 100 records`
    - `kafkaclient groups reset-offsets audit --to latest --topic orders --create --execute`
    """
    if (to is None) == (from_file is None):
        raise ConfigError("--to and --from-file: give one of them")
    new = None if from_file is None else read_offsets(from_file)
    # The offsets of a file, as they are: committed ones that are not moved.
    place = Place(shift=0) if to is None else Place.parse(to, "--to", shifts=True)
    async with connect() as admin:
        describing = admin.describe_group(group) if create else existing_group(admin, group, _NEW)
        found = await describing
        before = await admin.committed_offsets(group)
        wanted = await chosen_partitions(admin, topic, new or before)
        if not wanted:
            raise ConfigError(f"group {group} has committed nothing: name topics with --topic")
        ends = await admin_ends(admin, wanted, read_committed=False)
        after = await admin_offsets(admin, place, *ends, new or before)
        rows = [Change(each, before.get(each), at) for each, at in sorted(after.items())]
        if found.state not in _EMPTY and found.members:
            raise broker_error(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group}",
                advice=f"it has {counted(len(found.members), 'member')}: stop them first; nothing "
                "was changed",
            )
        if execute and rows:
            await admin.alter_offsets(group, after)
        causes = await left_out(admin, wanted, after)
        if to is None or place.shift is not None:
            source = f"nothing is committed, and --to {to} counts from there"
            why = source if new is None else f"it is not in {from_file}"
            causes |= {each: why for each in causes if each not in (new or before)}
    if as_json:
        print_json({"group": group, "done": execute, "partitions": [r.as_json() for r in rows]})
    else:
        print_table(
            ("topic", "partition", "committed", "new"),
            ((*r.partition, "none" if r.before is None else r.before, r.after) for r in rows),
            right=("partition", "committed", "new"),
        )
        done = f"set the offsets of group {group}"
        typer.echo(done if execute else "nothing was changed: --execute sets them", err=True)
    say_left_out(causes)


@app.command()
@on_cluster
async def delete(
    connect: Connect, *, groups: Groups, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete groups without members, with their committed offsets, after a confirmation.

    Example:

    - `kafkaclient groups delete billing --yes`
    """
    async with connect() as admin:
        confirm(f"Delete {counted(len(groups), 'group')} with their offsets?", yes=yes)
        results = await admin.delete_groups(groups)
    failed = {name: error for name, error in results.items() if error is not None}
    deleted = [name for name in groups if name not in failed]
    if as_json:
        print_json({"deleted": deleted, "failed": {n: str(e) for n, e in failed.items()}})
    for name in () if as_json else deleted:
        typer.echo(f"deleted group {name}", err=True)
    for error in failed.values():
        print_message("error", error)
    if failed:
        raise typer.Exit(FAILED)


@app.command("delete-offsets")
@on_cluster
async def delete_offsets(
    connect: Connect,
    *,
    group: Group,
    topic: Topics = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the committed offsets of topics that the group does not consume now, after a
    confirmation.

    Example:

    - `kafkaclient groups delete-offsets billing --topic orders --yes`
    """
    if not topic:
        raise ConfigError("no offsets to delete: give --topic")
    async with connect() as admin:
        committed = await admin.committed_offsets(group)
        chosen = partitions_named(topic, committed)
        if not chosen:
            raise ConfigError(f"group {group} has no committed offsets of {', '.join(topic)}")
        confirm(f"Delete {counted(len(chosen), 'offset')} of group {group}?", yes=yes)
        await admin.delete_offsets(group, chosen)
    if as_json:
        print_json({"group": group, "deleted": [each._asdict() for each in chosen]})
    else:
        typer.echo(f"deleted {counted(len(chosen), 'offset')} of group {group}", err=True)


@app.command("remove-members")
@on_cluster
async def remove_members(
    connect: Connect,
    *,
    group: Group,
    member: Annotated[
        list[str] | None,
        typer.Option(help="Its member.id or group.instance.id; may be repeated. [default: all]"),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove members from a group, such as static ones that were killed. A member that runs joins
    again.

    Example:

    - `kafkaclient groups remove-members billing --member worker-3 --yes`
    """
    async with connect() as admin:
        found = await existing_group(admin, group)
        names = set(member or ())
        chosen = [
            each
            for each in found.members
            if not names or names & {each.member_id, each.group_instance_id}
        ]
        missing = names - {n for each in chosen for n in (each.member_id, each.group_instance_id)}
        if missing:
            raise ConfigError(f"group {group} has no member {', '.join(sorted(missing))}")
        if chosen:
            confirm(f"Remove {counted(len(chosen), 'member')} from group {group}?", yes=yes)
            await admin.remove_members(group, chosen, reason="kafkaclient groups remove-members")
    if as_json:
        print_json({"group": group, "removed": [_name(each) for each in chosen]})
    else:
        typer.echo(f"removed {counted(len(chosen), 'member')} from group {group}", err=True)


# --- what is printed ------------------------------------------------------------------------------


def _print_lags(lags: Iterable[Lag], owners: Mapping[TopicPartition, str]) -> None:
    rows = [
        (
            *each.partition,
            "none" if each.committed is None else each.committed,
            ("deleted" if each.is_deleted else "no leader") if each.end is None else each.end,
            "" if each.lag is None else f"{each.lag:,}",
            owners.get(each.partition, ""),
        )
        for each in lags
    ]
    columns = ("topic", "partition", "committed", "end", "lag", "member")
    print_table(columns, rows, right=columns[1:5])


def _kind(kind: str) -> str:
    return _KINDS.get(kind.lower(), kind.lower())


def _name(member: DescribedMember) -> str:
    return member.group_instance_id or member.member_id


def _owners(members: Iterable[DescribedMember]) -> dict[TopicPartition, DescribedMember]:
    from kafkaclient.wire.groups import assignment_in

    owners: dict[TopicPartition, DescribedMember] = {}
    for member in members:
        try:
            partitions = assignment_in(member.assignment).partitions
        except ProtocolError:  # of an assignor that is none of a consumer's
            continue
        owners |= dict.fromkeys(partitions, member)
    return owners


def _member_json(member: DescribedMember) -> dict[str, Any]:
    return picked(member, "member_id", "group_instance_id", "client_id", "host") | {
        "partitions": [each._asdict() for each in sorted(_owners([member]))],
    }
