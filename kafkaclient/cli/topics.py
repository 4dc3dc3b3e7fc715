"""``kafkaclient topics``: what ``kafka-topics`` does, on any cluster."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.admin import ConfigResource, ConfigSource
from kafkaclient.broker_errors import broker_error
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.options import AsJson, IgnoreLimits, LimitsFile, ValidateOnly, Yes
from kafkaclient.cli.output import joined, picked, print_json, print_table
from kafkaclient.cli.properties import comma_pairs
from kafkaclient.cli.run import FAILED
from kafkaclient.errors import ConfigError, TopicExistsError
from kafkaclient.topic_names import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.admin import Admin, TopicDescription
    from kafkaclient.wire.results import PartitionView

app = typer.Typer(
    help="Topics of any Kafka cluster: create, list, describe, grow, delete.\n\n"
    "Only `create` creates topics, whatever the brokers' `auto.create.topics.enable` is.\n\n"
    "Exit status 3: partition limits, or a policy of the cluster, do not allow the change.",
    no_args_is_help=True,
)

Topic = Annotated[str, "The topic."]
_PATTERN = "A topic, or a regular expression that matches whole names."
Pattern = Annotated[str | None, _PATTERN]
Assignment = Annotated[
    str | None,
    typer.Option(
        metavar="0:1:2,1:2:0",
        help="The brokers of each new partition, the preferred leader first.",
    ),
]
IfExists = Annotated[bool, "Do nothing if the topic does not exist."]
ExcludeInternal = Annotated[bool, "Leave out Kafka's own topics."]


@app.command()
@on_cluster
async def create(  # noqa: PLR0913 - the flags of Kafka's tool
    connect: Connect,
    *,
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many; default: num.partitions of the brokers.")
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
    if_not_exists: Annotated[bool, "Do nothing if the topic exists."] = False,
    validate_only: ValidateOnly = False,
    limits_file: LimitsFile = None,
    ignore_limits: IgnoreLimits = False,
    as_json: AsJson = False,
) -> None:
    """Create a topic, within the partition limits of the cluster if it has any.

    Examples:

    - `kafkaclient topics create --topic flights --partitions 6 --replication-factor 3`
    - `kafkaclient topics create --topic flights --replica-assignment 0:1,1:2 --config
      cleanup.policy=compact`
    """
    check_topic_name(topic)
    configs = comma_pairs(config, "--config")
    assignment = _assignment(replica_assignment)
    if assignment and (partitions is not None or replication_factor is not None):
        raise ConfigError(
            "--replica-assignment says how many partitions and replicas there are: leave out "
            "--partitions and --replication-factor"
        )
    exists = False
    async with connect(limits_file=limits_file, ignore_limits=ignore_limits) as admin:
        try:
            await admin.create_topic(
                topic,
                partitions,
                replication_factor,
                replica_assignment=assignment,
                configs=configs,
                validate_only=validate_only,
            )
        except TopicExistsError:
            if not if_not_exists:
                raise
            exists = True
    created = not exists and not validate_only
    if as_json:
        print_json({"topic": topic, "created": created, "exists": exists or created})
    elif exists:
        typer.echo(f"topic {topic} exists already; nothing was done", err=True)
    else:
        done = f"created topic {topic}" if created else f"topic {topic} would be created"
        typer.echo(done, err=True)


@app.command("list")
@on_cluster
async def list_(
    connect: Connect,
    *,
    topic: Pattern = None,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """Print the names of the topics, one a line.

    Example:

    - `kafkaclient topics list -b localhost:9092`
    """
    pattern = _pattern(topic)
    async with connect() as admin:
        found = await _matching(admin, topic, pattern, missing_ok=True)
    names = [t.name for t in found if not (exclude_internal and t.internal)]
    if as_json:
        print_json(names)
        return
    for name in names:
        typer.echo(name)


@app.command()
@on_cluster
async def describe(
    connect: Connect,
    *,
    topic: Pattern = None,
    exclude_internal: ExcludeInternal = False,
    under_replicated_partitions: Annotated[
        bool, "Only partitions with a replica that is not in sync."
    ] = False,
    unavailable_partitions: Annotated[bool, "Only partitions without a leader."] = False,
    if_exists: IfExists = False,
    as_json: AsJson = False,
) -> None:
    """Show topics: their partitions, their replicas, and the settings that differ from the
    cluster's.

    Examples:

    - `kafkaclient topics describe --topic 'flights.*'`
    - `kafkaclient topics describe --under-replicated-partitions --json`
    """
    only_some = under_replicated_partitions or unavailable_partitions
    configs: list[dict[str, str]] = []
    pattern = _pattern(topic)
    async with connect() as admin:
        found = await _matching(admin, topic, pattern, missing_ok=if_exists)
        chosen = [t for t in found if not (exclude_internal and t.internal)]
        if not only_some:
            configs = await asyncio.gather(*(_own_configs(admin, t.name) for t in chosen))
    shown = []
    for place, each in enumerate(chosen):
        if not only_some:
            shown.append((each, each.partitions, configs[place]))
            continue
        behind = each.under_replicated if under_replicated_partitions else ()
        leaderless = each.unavailable if unavailable_partitions else ()
        if partitions := tuple(sorted({*behind, *leaderless})):
            shown.append((each, partitions, {}))
    if as_json:
        print_json([_topic_json(*each) for each in shown])
        return
    for described in shown:
        _print_topic(*described)


@app.command()
@on_cluster
async def delete(
    connect: Connect,
    *,
    topic: Annotated[str, _PATTERN],
    if_exists: IfExists = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records, after a confirmation. A regular expression never
    matches Kafka's own topics.

    Example:

    - `kafkaclient topics delete --topic flights --yes`
    """
    pattern = _pattern(topic)
    async with connect() as admin:
        found = await _matching(admin, topic, pattern, missing_ok=if_exists)
        found = [t for t in found if not t.internal or t.name == topic]
        names = [t.name for t in found]
        if names:
            total = sum(len(t.partitions) for t in found)
            shown = ", ".join(names[:10]) + " and others" * (len(names) > 10)
            what = f"topic {shown}" if len(names) == 1 else f"{len(names)} topics ({shown})"
            confirm(f"Delete {what} with {total} partitions and all their records?", yes=yes)
        results = await admin.delete_topics(names) if names else {}
    failed = {name: str(error) for name, error in results.items() if error is not None}
    deleted = [name for name in names if name not in failed]
    if as_json:
        print_json({"deleted": deleted, "failed": failed})
    elif not names:
        typer.echo(f"there is no topic {topic}; nothing was done", err=True)
    else:
        for name in deleted:
            typer.echo(f"deleted topic {name}", err=True)
        for error in failed.values():
            typer.echo(f"error: {error}", err=True)
    if failed:
        raise typer.Exit(FAILED)


@app.command("add-partitions")
@on_cluster
async def add_partitions(
    connect: Connect,
    *,
    topic: Topic,
    partitions: Annotated[
        int, typer.Option(min=1, help="The number of partitions that the topic gets in total.")
    ],
    replica_assignment: Assignment = None,
    validate_only: ValidateOnly = False,
    if_exists: IfExists = False,
    limits_file: LimitsFile = None,
    ignore_limits: IgnoreLimits = False,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic, within the partition limits of the cluster.

    Records with a key may go to another partition than before. Partitions cannot be removed.

    Example:

    - `kafkaclient topics add-partitions --topic flights --partitions 12`
    """
    check_topic_name(topic)
    assignment = _assignment(replica_assignment)
    async with connect(limits_file=limits_file, ignore_limits=ignore_limits) as admin:
        exists = not if_exists or topic in await admin.list_topics()
        if exists:
            await admin.add_partitions(
                topic, partitions, replica_assignment=assignment, validate_only=validate_only
            )
    if as_json:
        print_json({"topic": topic, "changed": exists and not validate_only})
    elif not exists:
        typer.echo(f"there is no topic {topic}; nothing was done", err=True)
    else:
        has = "would have" if validate_only else "has"
        typer.echo(f"topic {topic} {has} {partitions} partitions", err=True)


def _pattern(topic: str | None) -> re.Pattern[str]:
    """What names have to match; without ``--topic``, anything."""
    try:
        return re.compile(".*" if topic is None else topic)
    except re.error as error:
        raise ConfigError(f"--topic {topic!r} is no regular expression: {error}") from error


async def _matching(
    admin: Admin, topic: str | None, pattern: re.Pattern[str], *, missing_ok: bool
) -> list[TopicDescription]:
    """The topic of this name, or else those that match the pattern."""
    found = await admin.describe_topics()
    if topic in found:
        return [found[topic]]
    matching = [each for name, each in found.items() if pattern.fullmatch(name)]
    if not matching and topic is not None and not missing_ok:
        raise broker_error(
            3,
            f"--topic {topic}",
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


def _topic_json(
    topic: TopicDescription, partitions: Iterable[PartitionView], configs: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "internal": topic.internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": configs,
        "partitions": [picked(p, "partition", "leader", "replicas", "isr") for p in partitions],
    }


def _print_topic(
    topic: TopicDescription, partitions: Iterable[PartitionView], configs: Mapping[str, str]
) -> None:
    words = [
        f"{topic.name}: {len(topic.partitions)} partitions, "
        f"replication factor {topic.replication_factor}",
        *(["internal"] if topic.internal else []),
        *(f"{name}={value}" for name, value in configs.items()),
    ]
    rows = []
    for p in partitions:
        behind = joined(sorted(set(p.replicas) - set(p.isr)))
        state = "no leader" if p.leader < 0 else f"behind: {behind}" if behind else ""
        leader = "none" if p.leader < 0 else p.leader
        rows.append((p.partition, leader, joined(p.replicas), joined(p.isr), state))
    print_table(
        ("partition", "leader", "replicas", "in sync", "state"),
        rows,
        right=("partition", "leader"),
        title=", ".join(words),
    )
