"""``kafkaclient streams reset``: an application processes its input topics again."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.options import AsJson
from kafkaclient.cli.output import print_json, print_table
from kafkaclient.errors import ConfigError
from kafkaclient.streams.reset import BEGINNING, Position, ResetTo, carry_out, plan_reset

if TYPE_CHECKING:
    from kafkaclient.streams.reset import ResetPlan


@on_cluster
async def reset(  # noqa: PLR0913 - each option is a parameter
    connect: Connect,
    *,
    application_id: Annotated[
        str, typer.Option("--application-id", metavar="NAME", help="The application.id.")
    ],
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
    to_earliest: Annotated[bool, "Begin at the first offsets. This is the default."] = False,
    to_latest: Annotated[bool, "Begin at the end offsets."] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, help="Begin at this offset of each partition.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin at the first record that is not older, such as 2026-11-23T10:00:00 (UTC) "
            "or 2026-11-23T10:00:00+01:00.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Begin N offsets after the committed offset; -N before."),
    ] = None,
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

    - `kafkaclient streams reset --application-id words --dry-run -b localhost:9092`
    - `kafkaclient streams reset --application-id words --to-datetime 2026-11-23T10:00:00 --yes`
    """
    to = _target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        shift_by=shift_by,
    )
    async with connect() as admin:
        plan = await plan_reset(
            admin,
            application_id,
            to,
            input_topics=_names(input_topics),
            internal_topics=_names(internal_topics),
        )
        if not as_json:
            _print(plan)
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


def _target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
) -> ResetTo:
    given = []
    if to_earliest:
        given.append(BEGINNING)
    if to_latest:
        given.append(ResetTo(Position.LATEST))
    if to_offset is not None:
        given.append(ResetTo(Position.OFFSET, to_offset))
    if to_datetime is not None:
        given.append(ResetTo(Position.TIME, _milliseconds(to_datetime)))
    if shift_by is not None:
        given.append(ResetTo(Position.SHIFT, shift_by))
    if len(given) > 1:
        raise ConfigError(
            "--to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by: give one of "
            "them"
        )
    return given[0] if given else BEGINNING


def _milliseconds(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        since_1970 = int(found.timestamp() * 1000)
    except (ValueError, OverflowError):
        since_1970 = -1
    if since_1970 < 0:
        raise ConfigError(
            f"--to-datetime {text!r}: give a time since 1970 such as 2026-11-23T10:00:00"
        )
    return since_1970


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _remove_state(state_dir: Path, application_id: str) -> bool:
    try:
        directory = import_module("kafkaclient.streams.state.directory")
    except ImportError as error:
        raise ConfigError(
            f"--state-dir needs {error.name}, which is not installed: pip install "
            "'kafkaclient[streams]'. The rest is done"
        ) from error
    return bool(directory.remove_state(state_dir / application_id))


def _print(plan: ResetPlan) -> None:
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
