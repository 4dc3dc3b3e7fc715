"""``kafkaclient topics``: what ``kafka-topics`` does, on any cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.cli import topic_description, topic_offsets
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.chosen_topics import ChosenTopics, Pattern, Topics, say_failed
from kafkaclient.cli.connection import AsJson, IgnoreLimits, LimitsFile, ValidateOnly, Yes
from kafkaclient.cli.output import print_json, print_table
from kafkaclient.cli.profile_file import comma_pairs
from kafkaclient.cli.topic_description import ExcludeInternal, IfExists
from kafkaclient.errors import ConfigError, TopicExistsError, UnknownTopicError, counted
from kafkaclient.topic_names import check_topic_name
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.admin import TopicDescription
    from kafkaclient.wire.api import PartitionView

app = typer.Typer(
    help="Topics of any Kafka cluster: create, list, describe, grow, delete.\n\n"
    "Only `create` creates topics, whatever the brokers' `auto.create.topics.enable` is.\n\n"
    "Exit status 3: partition limits, or a policy of the cluster, do not allow the change.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Assignment = Annotated[
    str | None,
    typer.Option(
        metavar="0:1:2,1:2:0",
        help="The brokers of each new partition, the preferred leader first.",
    ),
]


@app.command()
@on_cluster
async def create(  # noqa: PLR0913 - the flags of Kafka's tool
    connect: Connect,
    *,
    topic: Topic,
    partitions: Annotated[
        int | None,
        typer.Option(
            *("--partitions", "-p"), min=1, help="How many; default: num.partitions of the brokers."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            *("--replication-factor", "-r"),
            min=1,
            help="Replicas of each; default: default.replication.factor.",
        ),
    ] = None,
    replica_assignment: Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", "-c", metavar="NAME=VALUE", help="A topic setting; may be repeated."
        ),
    ] = None,
    if_not_exists: Annotated[bool, "Do nothing if the topic exists."] = False,
    validate_only: ValidateOnly = False,
    limits_file: LimitsFile = None,
    ignore_limits: IgnoreLimits = False,
    as_json: AsJson = False,
) -> None:
    """Create a topic, within the partition limits (`kafkaclient limits`) of the cluster if it has
    any.

    Examples:

    - `kafkaclient topics create flights --partitions 6 --replication-factor 3`
    - `kafkaclient topics create flights --replica-assignment 0:1,1:2 --config
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
    names: Topics = None,
    pattern: Pattern = None,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """Print the names of the topics, one a line.

    Example:

    - `kafkaclient topics list -b localhost:9092`
    """
    wanted = ChosenTopics.parse(names, pattern)
    async with connect() as admin:
        found = await wanted.described(admin, missing_ok=not wanted.names)
    shown = [t.name for t in found if not (exclude_internal and t.internal)]
    if as_json:
        print_json(shown)
        return
    for name in shown:
        typer.echo(name)


app.command()(topic_description.describe)


@app.command()
@on_cluster
async def delete(
    connect: Connect,
    *,
    names: Topics = None,
    pattern: Pattern = None,
    if_exists: IfExists = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records, after a confirmation. A pattern never matches Kafka's
    own topics, nor the topic of the partition limits.

    Examples:

    - `kafkaclient topics delete flights --yes`
    - `kafkaclient topics delete --pattern 'test-[0-9]+'`
    """
    wanted = ChosenTopics.parse(names, pattern)
    if wanted == ChosenTopics():
        raise ConfigError("no topic to delete: give TOPIC or --pattern REGEX")
    async with connect() as admin:
        found = await wanted.described(
            admin, missing_ok=if_exists, left_out=lambda t: t.internal or t.name == LIMITS_TOPIC
        )
        chosen = [t.name for t in found]
        if chosen:
            total = counted(sum(len(t.partitions) for t in found), "partition")
            shown = ", ".join(chosen[:10]) + " and others" * (len(chosen) > 10)
            what = f"topic {shown}" if len(chosen) == 1 else f"{len(chosen)} topics ({shown})"
            confirm(f"Delete {what} with {total} and all their records?", yes=yes)
        results = await admin.delete_topics(chosen) if chosen else {}
    ignored = wanted.ignored_errors(if_exists)
    failed = [error for error in results.values() if error and not isinstance(error, ignored)]
    deleted = [name for name in chosen if results[name] is None]
    if as_json:
        errors = {name: str(error) for name, error in results.items() if error in failed}
        print_json({"deleted": deleted, "failed": errors})
    elif not chosen:
        typer.echo(f"there is no topic {wanted} to delete; nothing was done", err=True)
    for name in () if as_json else deleted:
        typer.echo(f"deleted topic {name}", err=True)
    say_failed(failed)


@app.command("add-partitions")
@on_cluster
async def add_partitions(
    connect: Connect,
    *,
    topic: Topic,
    partitions: Annotated[
        int,
        typer.Option(
            *("--partitions", "-p"),
            min=1,
            help="The number of partitions that the topic gets in total.",
        ),
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

    - `kafkaclient topics add-partitions flights --partitions 12`
    """
    check_topic_name(topic)
    assignment = _assignment(replica_assignment)
    exists = True
    async with connect(limits_file=limits_file, ignore_limits=ignore_limits) as admin:
        try:
            await admin.add_partitions(
                topic, partitions, replica_assignment=assignment, validate_only=validate_only
            )
        except UnknownTopicError:
            if not if_exists:
                raise
            exists = False
    if as_json:
        print_json({"topic": topic, "changed": exists and not validate_only})
    elif not exists:
        typer.echo(f"there is no topic {topic}; nothing was done", err=True)
    else:
        has = "would have" if validate_only else "has"
        typer.echo(f"topic {topic} {has} {partitions} partitions", err=True)


@app.command("elect-leaders")
@on_cluster
async def elect_leaders(
    connect: Connect,
    *,
    names: Topics = None,
    pattern: Pattern = None,
    all_: Annotated[bool, "All topics."] = False,
    unclean: Annotated[
        bool, "Where there is no leader, a replica that is not in sync. **Loses records.**"
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make the preferred replica of each partition its leader, as after a reassignment or when a
    broker has been restarted.

    Examples:

    - `kafkaclient topics elect-leaders flights`
    - `kafkaclient topics elect-leaders --all`
    """
    wanted = ChosenTopics.parse(names, pattern)
    if (wanted == ChosenTopics()) != all_:
        raise ConfigError("give TOPIC, --pattern REGEX or --all")
    async with connect() as admin:
        before = _to_elect(await wanted.described(admin, missing_ok=False), unclean=unclean)
        if before and unclean:
            question = "Records that only the lost leaders had are lost. Elect new leaders of "
            confirm(f"{question}{counted(len(before), 'partition')}?", yes=yes)
        kind: Literal["preferred", "unclean"] = "unclean" if unclean else "preferred"
        outcomes = await admin.elect_leaders(before, election_type=kind) if before else {}
    # Brokers may still have to learn of it. Whom an unclean election chose, they will tell.
    rows = [
        (*tp, None if view.leader < 0 else view.leader, None if unclean else view.replicas[0])
        for tp, view in before.items()
        if outcomes.get(tp) is None
    ]
    columns = ("topic", "partition", "before", "leader")
    if as_json:
        failed = {str(tp): str(error) for tp, error in outcomes.items() if error is not None}
        print_json(
            {"elected": [dict(zip(columns, r, strict=True)) for r in rows], "failed": failed}
        )
    elif not before:
        typer.echo("each partition has its leader; nothing was done", err=True)
    elif rows:
        shown = [["" if cell is None else cell for cell in row] for row in rows]
        print_table(columns, shown, right=columns[1:])
    say_failed(outcomes.values())


app.command("offsets")(topic_offsets.offsets)
app.command("delete-records")(topic_offsets.delete_records)


def _to_elect(
    topics: Iterable[TopicDescription], *, unclean: bool
) -> dict[TopicPartition, PartitionView]:
    """The partitions that need an election."""
    return {
        TopicPartition(topic.name, p.partition): p
        for topic in topics
        for p in topic.partitions
        if (p.leader < 0 if unclean else p.leader != p.replicas[0])
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
