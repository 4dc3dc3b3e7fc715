"""``kafkaclient topics``: what ``kafka-topics`` does, on any cluster."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.admin import ConfigResource, ConfigSource
from kafkaclient.broker_errors import broker_error
from kafkaclient.cli.admin import (
    EXIT_STATUS,
    AsJson,
    Bootstrap,
    CommandConfig,
    IgnoreLimits,
    LimitsFile,
    Yes,
    cluster,
    confirm,
    pairs,
    print_json,
    run_admin,
)
from kafkaclient.cli.run import FAILED, stderr_console
from kafkaclient.cli.topic_report import print_topic, topic_json
from kafkaclient.errors import ConfigError, KafkaError, TopicExistsError

if TYPE_CHECKING:
    from kafkaclient.admin import Admin, TopicDescription

__all__ = ["app"]

app = typer.Typer(
    help="Topics of any Kafka cluster: create, list, describe, grow, delete.\n\n"
    "Examples: `kafkaclient topics create --topic flights --partitions 6 --replication-factor 3 "
    "--config retention.ms=86400000 --bootstrap-server localhost:9092`, "
    "`kafkaclient topics describe --topic flights --bootstrap-server localhost:9092`.\n\n"
    f"No command creates a topic by asking for it. {EXIT_STATUS}",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Option(help="The topic.")]
Pattern = Annotated[
    str | None,
    typer.Option(help="A topic, or a regular expression that its whole name matches."),
]
Assignment = Annotated[
    str | None,
    typer.Option(
        metavar="0:1:2,1:2:0",
        help="Brokers of each partition, the preferred leader first; instead of numbers.",
    ),
]


@app.command()
def create(  # noqa: PLR0913 - the flags of Kafka's tool
    *,
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many; default: num.partitions of the cluster.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="Replicas of each; default: default.replication.factor."),
    ] = None,
    replica_assignment: Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A topic setting; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if it exists.")
    ] = False,
    validate_only: Annotated[
        bool,
        typer.Option("--validate-only", help="Say whether it would be created; change nothing."),
    ] = False,
    limits_file: LimitsFile = None,
    ignore_limits: IgnoreLimits = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic, within the partition limits of the cluster if it has any.

    Examples: `kafkaclient topics create --topic flights --partitions 6 --replication-factor 3`,
    `... --replica-assignment 0:1,1:2 --config cleanup.policy=compact`
    """

    async def run() -> dict[str, Any]:
        assignment = _assignment(replica_assignment)
        if assignment and (partitions is not None or replication_factor is not None):
            raise ConfigError(
                "--replica-assignment says how many partitions and replicas there are: leave out "
                "--partitions and --replication-factor"
            )
        async with cluster(
            bootstrap_server,
            command_config,
            limits_file=limits_file,
            ignore_limits=ignore_limits,
        ) as admin:
            try:
                await admin.create_topic(
                    topic,
                    partitions,
                    replication_factor,
                    replica_assignment=assignment,
                    configs=pairs(config, "--config"),
                    validate_only=validate_only,
                )
            except TopicExistsError:
                if not if_not_exists:
                    raise
                return {"topic": topic, "created": False, "exists": True}
            return {"topic": topic, "created": not validate_only, "exists": not validate_only}

    outcome = run_admin(run())
    if as_json:
        print_json(outcome)
    elif outcome["created"]:
        stderr_console().print(f"created topic {topic}", markup=False)
    elif outcome["exists"]:
        stderr_console().print(f"topic {topic} exists already; nothing was done", markup=False)
    else:
        stderr_console().print(f"topic {topic} would be created", markup=False)


@app.command("list")
def list_(
    *,
    topic: Pattern = None,
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Leave out Kafka's own topics.")
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Print the names of the topics, one a line.

    Example: `kafkaclient topics list --bootstrap-server localhost:9092`
    """

    async def run() -> list[str]:
        async with cluster(bootstrap_server, command_config) as admin:
            found = await _matching(admin, topic, missing_ok=True)
        return [t.name for t in found.values() if not (exclude_internal and t.internal)]

    names = run_admin(run())
    if as_json:
        print_json(names)
        return
    for name in names:
        typer.echo(name)


@app.command()
def describe(
    *,
    topic: Pattern = None,
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Leave out Kafka's own topics.")
    ] = False,
    under_replicated_partitions: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only those with a replica behind."),
    ] = False,
    unavailable_partitions: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only those without a leader.")
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Print nothing if there is no such topic.")
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show topics: their partitions, where the replicas are, and the settings that differ from
    the cluster's.

    Examples: `kafkaclient topics describe --topic 'flights.*'`,
    `kafkaclient topics describe --under-replicated-partitions --json`
    """
    only_some = under_replicated_partitions or unavailable_partitions

    async def run() -> list[tuple[TopicDescription, dict[str, str]]]:
        async with cluster(bootstrap_server, command_config) as admin:
            found = await _matching(admin, topic, missing_ok=if_exists)
            chosen = [t for t in found.values() if not (exclude_internal and t.internal)]
            if only_some:
                return [(t, {}) for t in chosen]
            configs = await asyncio.gather(*(_own_configs(admin, t.name) for t in chosen))
            return list(zip(chosen, configs, strict=True))

    def chosen(topic: TopicDescription) -> tuple[Any, ...]:
        if not only_some:
            return topic.partitions
        behind = topic.under_replicated if under_replicated_partitions else ()
        leaderless = topic.unavailable if unavailable_partitions else ()
        return tuple(sorted({*behind, *leaderless}))

    found = run_admin(run())
    if as_json:
        shown = [
            topic_json(topic, chosen(topic), configs)
            for topic, configs in found
            if chosen(topic) or not only_some
        ]
        print_json(shown)
        return
    for described, configs in found:
        if chosen(described) or not only_some:
            print_topic(described, chosen(described), configs)


@app.command()
def delete(
    *,
    topic: Annotated[
        str, typer.Option(help="A topic, or a regular expression that its whole name matches.")
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do nothing if there is no such topic.")
    ] = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records, after asking. Kafka's own topics are left alone unless
    they are named in full.

    Example: `kafkaclient topics delete --topic flights --yes`
    """

    async def find() -> list[TopicDescription]:
        async with cluster(bootstrap_server, command_config) as admin:
            found = await _matching(admin, topic, missing_ok=if_exists)
        return [t for t in found.values() if not t.internal or t.name == topic]

    async def run(names: list[str]) -> dict[str, KafkaError | None]:
        async with cluster(bootstrap_server, command_config) as admin:
            return await admin.delete_topics(names)

    found = run_admin(find())
    names = [t.name for t in found]
    if not names:
        if as_json:
            print_json({"deleted": [], "failed": {}})
        else:
            stderr_console().print(f"there is no topic {topic}; nothing was done", markup=False)
        return

    async def ask() -> None:
        total = sum(len(t.partitions) for t in found)
        shown = ", ".join(names) if len(names) <= 10 else f"{', '.join(names[:10])} and others"
        what = f"topic {shown}" if len(names) == 1 else f"{len(names)} topics ({shown})"
        confirm(f"Delete {what} with {total} partitions and all their records?", yes=yes)

    run_admin(ask())
    results = run_admin(run(names))
    failed = {name: str(error) for name, error in results.items() if error is not None}
    deleted = [name for name in names if name not in failed]
    if as_json:
        print_json({"deleted": deleted, "failed": failed})
    else:
        console = stderr_console()
        for name in deleted:
            console.print(f"deleted topic {name}", markup=False)
        for error in failed.values():
            console.print(f"error: {error}", markup=False, soft_wrap=True)
    if failed:
        raise typer.Exit(FAILED)


@app.command("add-partitions")
def add_partitions(
    *,
    topic: Topic,
    partitions: Annotated[int, typer.Option(min=1, help="How many there shall be in all.")],
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="0:1:2,1:2:0", help="Brokers of each partition that is added."),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Say whether it would be done; change nothing.")
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do nothing if there is no such topic.")
    ] = False,
    limits_file: LimitsFile = None,
    ignore_limits: IgnoreLimits = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Let a topic have more partitions, within the partition limits of the cluster.

    Records with a key may go to another partition than before. Partitions cannot be taken away.

    Example: `kafkaclient topics add-partitions --topic flights --partitions 12`
    """

    async def run() -> bool:
        async with cluster(
            bootstrap_server,
            command_config,
            limits_file=limits_file,
            ignore_limits=ignore_limits,
        ) as admin:
            if if_exists and topic not in await admin.list_topics():
                return False
            await admin.add_partitions(
                topic,
                partitions,
                replica_assignment=_assignment(replica_assignment),
                validate_only=validate_only,
            )
            return True

    exists = run_admin(run())
    if as_json:
        print_json({"topic": topic, "changed": exists and not validate_only})
        return
    if not exists:
        told = f"there is no topic {topic}; nothing was done"
    elif validate_only:
        told = f"topic {topic} would have {partitions} partitions"
    else:
        told = f"topic {topic} has {partitions} partitions"
    stderr_console().print(told, markup=False)


# ------------------------------------------------------------------------------------------------


async def _matching(
    admin: Admin, pattern: str | None, *, missing_ok: bool
) -> dict[str, TopicDescription]:
    found = await admin.describe_topics()
    if pattern is None or pattern in found:
        return found if pattern is None else {pattern: found[pattern]}
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"--topic {pattern!r} is no regular expression: {error}") from error
    matching = {name: each for name, each in found.items() if expression.fullmatch(name)}
    if not matching and not missing_ok:
        raise broker_error(
            3,
            f"--topic {pattern}",
            advice="there is no such topic, or this client may not describe it",
        )
    return matching


async def _own_configs(admin: Admin, topic: str) -> dict[str, str]:
    entries = await admin.describe_configs(ConfigResource.topic(topic))
    return {
        name: entry.value or ""
        for name, entry in entries.items()
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def _assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    if text is None:
        return ()
    try:
        return tuple(
            tuple(int(broker) for broker in partition.split(":")) for partition in text.split(",")
        )
    except ValueError:
        raise ConfigError(
            f"--replica-assignment {text!r}: give brokers joined by colons, partitions by commas: "
            "0:1:2,1:2:0"
        ) from None
