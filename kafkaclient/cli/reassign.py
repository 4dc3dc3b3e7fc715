"""``kafkaclient reassign``: what ``kafka-reassign-partitions`` does, within a safe quota."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.admin import ReassignmentPlan
from kafkaclient.admin.reassign.estimate import shown
from kafkaclient.admin.reassign.plan import parse_broker_list, parse_topics
from kafkaclient.cli import reassign_report as report
from kafkaclient.cli.admin import (
    AsJson,
    Bootstrap,
    CommandConfig,
    IgnoreLimits,
    LimitsFile,
    Yes,
    check_directory,
    cluster,
    confirm,
    print_json,
    run_admin,
    write_file,
)
from kafkaclient.cli.reassign_state import PlanFile, cancel, end_with, list_, verify, watch
from kafkaclient.cli.run import stderr_console, stdout_console
from kafkaclient.errors import ConfigError, ReassignmentError

if TYPE_CHECKING:
    from kafkaclient.admin import Begun, Estimate

__all__ = ["app"]

app = typer.Typer(
    help="Give partitions other replicas, within a quota of bandwidth (KIP-73).\n\n"
    "Plans are the JSON of `kafka-reassign-partitions`, whose plans can be verified and cancelled "
    "here, and the other way round. `execute` stays until the moves are over, and removes its "
    "throttles then; Ctrl-C cancels the moves. After a crash `verify`, or `kafkaclient throttle "
    "clear`, finds and removes what was left.\n\n"
    "Examples: `kafkaclient reassign generate --topics flights --broker-list 3,4 --out plan.json`, "
    "`kafkaclient reassign execute --reassignment-json-file plan.json --replication-quota "
    "20000000`.\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong use (or a quota that is not safe), 3 partition limits, "
    "4 (`verify`) still in progress.",
    no_args_is_help=True,
)

TopicsFile = Annotated[
    Path | None,
    typer.Option(help='As Kafka\'s tool has it: {"topics":[{"topic":"foo"}]}.', exists=True),
]
OutFile = Annotated[
    Path | None,
    typer.Option(help="Write the proposed plan here, too.", callback=check_directory),
]
RollbackFile = Annotated[
    Path | None,
    typer.Option(help="Write the way back here: the present replicas.", callback=check_directory),
]
Quota = Annotated[
    int | None,
    typer.Option(
        "--replication-quota",
        "--throttle",
        min=0,
        help="Bytes per second that each broker sends, and takes, of what moves.",
    ),
]
Network = Annotated[
    int | None,
    typer.Option(min=1, help="N: bytes per second that a broker's network carries."),
]
Measure = Annotated[
    float, typer.Option("--measure", min=0, help="Seconds to measure what comes into brokers for.")
]


@app.command()
def generate(  # noqa: PLR0913 - the flags of Kafka's tool, and some more
    *,
    topics_to_move_json_file: TopicsFile = None,
    topics: Annotated[str | None, typer.Option(help="Their names, joined by commas.")] = None,
    broker_list: Annotated[
        str | None, typer.Option(help="Brokers to place replicas on, as in 0,1,2; default: all.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="Keep the replicas, and add or take away as many as it needs."),
    ] = None,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Disregard racks.")
    ] = False,
    out: OutFile = None,
    replication_quota: Quota = None,
    network_bandwidth: Network = None,
    measure: Measure = 2.0,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Propose a plan, and say how much it moves: MoveRatio, and with a quota the time. Changes
    nothing.

    Replicas are placed as by Kafka's tool, from a random start and wherever they are now.

    Example: `kafkaclient reassign generate --topics flights,orders --broker-list 3,4,5`
    """

    async def run() -> tuple[ReassignmentPlan, ReassignmentPlan, Estimate]:
        names = _topics(topics_to_move_json_file, topics)
        brokers = None if broker_list is None else parse_broker_list(broker_list)
        async with cluster(bootstrap_server, command_config) as admin:
            present, proposed = await admin.reassigner.generate(
                names,
                brokers,
                rack_aware=not disable_rack_aware,
                replication_factor=replication_factor,
            )
            found = await admin.reassigner.estimate(proposed.replicas, measure_s=measure)
        if out is not None:
            write_file(out, proposed.to_json() + "\n")
        return present, proposed, found

    present, proposed, found = run_admin(run())
    if as_json:
        told = report.estimate_json(found, replication_quota, network_bandwidth)
        print_json({"current": present.as_dict(), "proposed": proposed.as_dict(), **told})
        return
    console = stdout_console()
    for title, plan in (
        ("Current partition replica assignment", present),
        ("Proposed partition reassignment configuration", proposed),
    ):
        console.print(title)
        typer.echo(plan.to_json() + "\n")
    report.print_estimate(found, replication_quota, network_bandwidth)
    safe = found.safe_range(network_bandwidth)
    if safe.is_empty:
        stderr_console().print(f"[yellow]warning:[/] {safe.why_empty()}", soft_wrap=True)


@app.command()
def execute(  # noqa: PLR0913 - the flags of Kafka's tool, and some more
    *,
    reassignment_json_file: PlanFile,
    replication_quota: Quota = None,
    network_bandwidth: Network = None,
    measure: Measure = 2.0,
    allow_unsafe_quota: Annotated[
        bool, typer.Option("--allow-unsafe-quota", help="Also with a quota outside the safe range.")
    ] = False,
    additional: Annotated[
        bool, typer.Option("--additional", help="Also while other moves are under way.")
    ] = False,
    skip_dead: Annotated[
        bool, typer.Option("--skip-dead", help="Leave out what needs a broker that is down.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Begin, and leave the rest to `verify`.")
    ] = False,
    rollback_file: RollbackFile = None,
    limits_file: LimitsFile = None,
    ignore_limits: IgnoreLimits = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Carry out a plan, show how far it is, and remove the throttles at the end.

    Ctrl-C (and SIGTERM) cancels what has not arrived and removes the throttles. With `--no-wait`
    the moves go on by themselves: run `verify` until it says that they are over.

    Example: `kafkaclient reassign execute --reassignment-json-file plan.json --throttle 20000000
    --network-bandwidth 125000000`
    """

    async def run() -> Begun:
        plan = ReassignmentPlan.from_json(reassignment_json_file.read_bytes())
        plan.check()
        async with cluster(
            bootstrap_server,
            command_config,
            limits_file=limits_file,
            ignore_limits=ignore_limits,
        ) as admin:
            measured = measure if replication_quota is not None else 0.0
            found = await admin.reassigner.estimate(plan.replicas, measure_s=measured)
            if not as_json:
                report.print_estimate(found, replication_quota, network_bandwidth)
            _check_range(found, replication_quota, network_bandwidth, allowed=allow_unsafe_quota)
            limit = "no quota" if replication_quota is None else f"{shown(replication_quota)}/s"
            confirm(
                f"Reassign {len(plan.replicas)} partitions, copying {shown(found.bytes_to_move)} "
                f"with {limit} on each broker?",
                yes=yes,
            )

            def way_back(present: ReassignmentPlan) -> None:
                _tell_way_back(present, rollback_file, as_json=as_json)

            if no_wait:
                begun = await admin.reassigner.begin(
                    plan.replicas,
                    replication_quota,
                    additional=additional,
                    skip_dead=skip_dead,
                    on_rollback=way_back,
                )
                _tell_begun(begun)
                return begun
            moves = admin.throttled(
                plan.replicas,
                bytes_per_second=replication_quota,
                additional=additional,
                skip_dead=skip_dead,
                on_rollback=way_back,
            )
            try:
                async with moves:
                    _tell_begun(moves.begun)
                    await report.follow(moves.progress())
            except ReassignmentError as error:
                if not error.failures:
                    raise
                return replace(moves.begun, failed=error.failures)
            return moves.begun

    begun = run_admin(run())
    if as_json:
        print_json(
            {
                "done": not no_wait and not begun.failed,
                "started": sorted(map(str, begun.started)),
                "failed": {str(p): str(error) for p, error in sorted(begun.failed.items())},
                "rollback": ReassignmentPlan(begun.before).as_dict(),
            }
        )
    end_with(begun.failed)
    if no_wait:
        stderr_console().print(
            "the moves go on by themselves, and their throttles stay, until `kafkaclient reassign "
            "verify` finds them over",
            soft_wrap=True,
        )


app.command()(verify)
app.command()(cancel)
app.command("list")(list_)
app.command()(watch)


# ------------------------------------------------------------------------------------------------


def _topics(file: Path | None, names: str | None) -> list[str]:
    if (file is None) == (names is None):
        raise ConfigError("give --topics NAMES, or --topics-to-move-json-file FILE")
    if file is not None:
        return parse_topics(file.read_bytes())
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _check_range(found: Estimate, quota: int | None, network: int | None, *, allowed: bool) -> None:
    if quota is None or not found.partitions:
        return
    problem = found.safe_range(network).problem(quota)
    if problem is None:
        return
    if not allowed:
        raise ConfigError(f"{problem}. Nothing was done; --allow-unsafe-quota does it all the same")
    stderr_console().print(f"[yellow]warning:[/] {problem}", soft_wrap=True)


def _tell_way_back(present: ReassignmentPlan, rollback_file: Path | None, *, as_json: bool) -> None:
    """Before anything is changed, as Kafka's tool does."""
    way_back = present.to_json()
    if rollback_file is not None:
        write_file(rollback_file, way_back + "\n")
    if not as_json:
        stdout_console().print("Current partition replica assignment")
        typer.echo(f"\n{way_back}\n")
        stdout_console().print(
            "Save this to use as the --reassignment-json-file option during rollback"
        )


def _tell_begun(begun: Begun) -> None:
    console = stderr_console()
    for node, error in begun.unthrottled.items():
        console.print(f"[yellow]warning:[/] broker {node} has no quota yet: {error}")
    if begun.started:
        names = ",".join(sorted(map(str, begun.started)))
        console.print(
            f"Successfully started partition reassignments for {names}",
            markup=False,
            soft_wrap=True,
        )
