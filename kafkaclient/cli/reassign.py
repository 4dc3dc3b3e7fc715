"""``kafkaclient reassign``: what ``kafka-reassign-partitions`` does, within a safe quota."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.admin import ReassignmentPlan
from kafkaclient.admin.reassign.estimate import shown
from kafkaclient.admin.reassign.plan import parse_broker_list, parse_topics
from kafkaclient.cli import reassign_report as report
from kafkaclient.cli import reassign_state as state
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.chosen_topics import Topics
from kafkaclient.cli.connection import AsJson, IgnoreLimits, LimitsFile, Yes, output_file
from kafkaclient.cli.output import joined, print_json, print_message
from kafkaclient.cli.reassign_state import PlanFile
from kafkaclient.errors import ConfigError
from kafkaclient.whole_file import write_whole

if TYPE_CHECKING:
    from kafkaclient.admin import Begun, Estimate

app = typer.Typer(
    help="Give partitions other replicas, within a quota of bandwidth (KIP-73).\n\n"
    "Plans are the JSON of `kafka-reassign-partitions`, whose plans can be verified and cancelled "
    "here, and the other way round. `execute` waits until the moves are over, and then removes its "
    "throttles; Ctrl-C cancels the moves. After a crash `verify`, or `kafkaclient throttle "
    "clear`, finds and removes the throttles that were not removed.\n\n"
    "Exit status: 1 also if only a part of the plan was executed, 2 also for a quota that is not "
    "safe, 3 if partition limits do not allow the plan, 4 (`verify`) if a move is in progress.",
    no_args_is_help=True,
)

Quota = Annotated[
    int | None,
    typer.Option(
        "--replication-quota",
        "--throttle",
        min=0,
        help="Bytes per second of moving replicas that each broker sends, and receives.",
    ),
]
Network = Annotated[
    int | None, typer.Option(min=1, help="N: a broker's network bandwidth in bytes per second.")
]
Measure = Annotated[
    float, typer.Option(min=0, help="Seconds for which the brokers' inbound bytes are measured.")
]


@app.command()
@on_cluster
async def generate(  # noqa: PLR0913 - the flags of Kafka's tool, and some more
    connect: Connect,
    *,
    topics_to_move_json_file: Annotated[
        Path | None,
        typer.Option(
            help='The topics as Kafka\'s tool takes them: {"topics":[{"topic":"foo"}]}.',
            exists=True,
        ),
    ] = None,
    topics: Topics = None,
    broker_list: Annotated[
        str | None,
        typer.Option(
            *("--broker-list", "--brokers"),
            help="Brokers to place replicas on, as in 0,1,2; default: all.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="Keep the replicas, and add or remove only as many as needed."),
    ] = None,
    disable_rack_aware: Annotated[bool, "Ignore racks."] = False,
    out: Annotated[
        Path | None, typer.Option(help="File for the proposed plan.", callback=output_file)
    ] = None,
    replication_quota: Quota = None,
    network_bandwidth: Network = None,
    measure: Measure = 2.0,
    as_json: AsJson = False,
) -> None:
    """Propose a plan, and estimate how much it moves: MoveRatio, and with a quota the time. Changes
    nothing.

    Replicas are placed as by Kafka's tool, from a random start, whatever the current replicas are.
    Each partition keeps its replication factor.

    Example:

    - `kafkaclient reassign generate flights orders --broker-list 3,4,5 --out
      plan.json`
    """
    names = _topics(topics_to_move_json_file, topics)
    brokers = None if broker_list is None else parse_broker_list(broker_list)
    async with connect() as admin:
        present, proposed = await admin.reassigner.generate(
            names,
            brokers,
            rack_aware=not disable_rack_aware,
            replication_factor=replication_factor,
        )
        found = await admin.reassigner.estimate(proposed.replicas, measure_s=measure)
    if out is not None:
        write_whole(out, proposed.to_json() + "\n")
    if as_json:
        estimate = report.estimate_json(found, replication_quota, network_bandwidth)
        print_json({"current": present.as_dict(), "proposed": proposed.as_dict(), **estimate})
        return
    typer.echo(f"Current partition replica assignment\n{present.to_json()}\n")
    typer.echo(f"Proposed partition reassignment configuration\n{proposed.to_json()}\n")
    report.print_estimate(found, replication_quota, network_bandwidth)
    safe = found.safe_range(network_bandwidth)
    if safe.is_empty:
        print_message("warning", safe.why_empty())


@app.command()
@on_cluster
async def execute(  # noqa: PLR0913 - the flags of Kafka's tool, and some more
    connect: Connect,
    *,
    reassignment_json_file: PlanFile,
    replication_quota: Quota = None,
    network_bandwidth: Network = None,
    measure: Measure = 2.0,
    allow_unsafe_quota: Annotated[bool, "Accept a quota outside the safe range."] = False,
    additional: Annotated[bool, "Begin even if other moves are under way."] = False,
    skip_dead: Annotated[bool, "Leave out moves that need a broker that is down."] = False,
    allow_fewer_in_sync: Annotated[
        bool, "Accept moves that remove in-sync replicas and keep dead or lagging replicas."
    ] = False,
    no_wait: Annotated[bool, "Return at once; `verify` removes the throttles."] = False,
    rollback_file: Annotated[
        Path | None,
        typer.Option(
            help="File for a plan that restores the current replicas.", callback=output_file
        ),
    ] = None,
    limits_file: LimitsFile = None,
    ignore_limits: IgnoreLimits = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Execute a plan, show its progress, and remove the throttles at the end.

    Ctrl-C (and SIGTERM) cancels the moves that are not complete, and removes the throttles. With
    `--no-wait` the moves continue without this command: run `verify` until it reports that they
    are complete.

    Example:

    - `kafkaclient reassign execute --reassignment-json-file plan.json --throttle 20000000
      --network-bandwidth 125000000`
    """
    plan = state.read_plan(reassignment_json_file)
    plan.check()
    if rollback_file is not None and rollback_file.is_file():
        raise ConfigError(
            f"{rollback_file} exists: it may be the rollback plan of an earlier try; give another "
            "--rollback-file"
        )
    told: dict[str, Any] = {}  # the JSON object, as soon as anything may have changed

    def save_rollback(present: ReassignmentPlan) -> None:
        """Called before anything is changed, as Kafka's tool does."""
        if rollback_file is not None:
            write_whole(rollback_file, present.to_json() + "\n")
        told.update(done=False, started=[], failed={}, rollback=present.as_dict())
        typer.echo(
            f"Current partition replica assignment\n\n{present.to_json()}\n\n"
            "Save this to use as the --reassignment-json-file option during rollback",
            err=as_json,
        )
        if as_json:  # raises if nothing can be printed there
            typer.echo(" ", nl=False)

    async with connect(limits_file=limits_file, ignore_limits=ignore_limits) as admin:
        measured = measure if replication_quota is not None else 0.0
        found = await admin.reassigner.estimate(
            plan.replicas, measure_s=measured, skip_dead=skip_dead
        )
        if not as_json:
            report.print_estimate(found, replication_quota, network_bandwidth)
        _check_range(found, replication_quota, network_bandwidth, allowed=allow_unsafe_quota)
        limit = "no quota" if replication_quota is None else f"{shown(replication_quota)}/s"
        confirm(
            f"Reassign {len(plan.replicas) - len(found.skipped)} partitions, copying "
            f"{shown(found.bytes_to_move)} with {limit} on each broker?",
            yes=yes,
        )
        options: dict[str, Any] = {
            "bytes_per_second": replication_quota,
            "additional": additional,
            "skip_dead": skip_dead,
            "allow_fewer_in_sync": allow_fewer_in_sync,
            "on_rollback": save_rollback,
        }
        with report.printed_at_end(told, as_json=as_json):
            if no_wait:
                begun = await admin.reassigner.begin(plan.replicas, **options)
                _tell_begun(begun, told, no_wait=no_wait)
            else:
                moves = admin.throttled(plan.replicas, **options)
                try:
                    async with moves:
                        begun = moves.begun
                        _tell_begun(begun, told, no_wait=no_wait)
                        await report.follow(moves.progress())
                finally:
                    told.get("failed", {}).update(report.errors_json(moves.left))
            told["done"] = not no_wait
    state.exit_if_failed(begun.failed)


app.command()(state.verify)
app.command()(state.cancel)
app.command("list")(state.list_)
app.command()(state.watch)


def _topics(file: Path | None, names: list[str] | None) -> list[str]:
    if (file is None) == (not names):
        raise ConfigError("give TOPIC, or --topics-to-move-json-file FILE")
    return list(names or ()) if file is None else parse_topics(file.read_bytes())


def _check_range(found: Estimate, quota: int | None, network: int | None, *, allowed: bool) -> None:
    if quota is None or not found.partitions:
        return
    problem = found.safe_range(network).problem(quota)
    if problem is None:
        return
    if not allowed:
        raise ConfigError(
            f"{problem}. Nothing was done; --allow-unsafe-quota accepts the quota anyway"
        )
    print_message("warning", problem)


def _tell_begun(begun: Begun, told: dict[str, Any], *, no_wait: bool) -> None:
    names = sorted(map(str, begun.started))
    told.update(started=names, failed=report.errors_json(begun.failed))
    for node, error in begun.unthrottled.items():
        print_message("warning", f"broker {node} has no quota yet: {error}")
    if names:
        started = f"Successfully started partition reassignments for {joined(names)}"
        typer.echo(started, err=True)
    if no_wait:
        typer.echo(
            "the moves continue, and their throttles stay until `kafkaclient reassign verify` "
            "finds the moves complete",
            err=True,
        )
