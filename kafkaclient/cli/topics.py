"""``kafkaclient topics``: what ``kafka-topics`` does, on any cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kafkaclient.admin import ConfigSource
from kafkaclient.admin.limits import LIMITS_TOPIC
from kafkaclient.broker_errors import broker_error
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.connection import AsJson, IgnoreLimits, LimitsFile, ValidateOnly, Yes, given_of
from kafkaclient.cli.output import FAILED, joined, picked, print_json, print_message, print_table
from kafkaclient.cli.profile_file import comma_pairs
from kafkaclient.errors import (
    ConfigError,
    InvalidTopicError,
    KafkaError,
    TopicExistsError,
    UnknownTopicError,
)
from kafkaclient.topic_names import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkaclient.admin import Admin, TopicDescription
    from kafkaclient.wire.admin import ConfigEntry
    from kafkaclient.wire.api import PartitionView

app = typer.Typer(
    help="Topics of any Kafka cluster: create, list, describe, grow, delete.\n\n"
    "Only `create` creates topics, whatever the brokers' `auto.create.topics.enable` is.\n\n"
    "Exit status 3: partition limits, or a policy of the cluster, do not allow the change.",
    no_args_is_help=True,
)

Topic = Annotated[str, "The topic."]
OneTopic = Annotated[str | None, "The topic of this name only."]
Pattern = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", help="The topics whose whole names match the regular expression."
    ),
]
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
    """Create a topic, within the partition limits (`kafkaclient limits`) of the cluster if it has
    any.

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
    topic: OneTopic = None,
    pattern: Pattern = None,
    exclude_internal: ExcludeInternal = False,
    as_json: AsJson = False,
) -> None:
    """Print the names of the topics, one a line.

    Example:

    - `kafkaclient topics list -b localhost:9092`
    """
    wanted = _Wanted.parse(topic, pattern)
    async with connect() as admin:
        found = await wanted.described(admin, missing_ok=True)
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
    topic: OneTopic = None,
    pattern: Pattern = None,
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

    - `kafkaclient topics describe --topic flights`
    - `kafkaclient topics describe --pattern 'flights.*'`
    - `kafkaclient topics describe --under-replicated-partitions --json`
    """
    only_some = under_replicated_partitions or unavailable_partitions
    configs: dict[str, dict[str, ConfigEntry] | KafkaError] = {}
    wanted = _Wanted.parse(topic, pattern)
    async with connect() as admin:
        found = await wanted.described(
            admin, missing_ok=if_exists, left_out=lambda t: exclude_internal and t.internal
        )
        chosen = [t for t in found if not (exclude_internal and t.internal)]
        if not only_some:
            configs = await admin.describe_topic_configs(t.name for t in chosen)
    ignored = wanted.ignored_errors(if_exists)
    shown = []
    for each in chosen:
        entries = configs.get(each.name, {})
        behind = each.under_replicated if under_replicated_partitions else ()
        leaderless = each.unavailable if unavailable_partitions else ()
        partitions = tuple(sorted({*behind, *leaderless})) if only_some else each.partitions
        if not isinstance(entries, ignored) and (partitions or not only_some):
            shown.append((each, partitions, _own_configs(entries)))
    if as_json:
        print_json([_topic_json(*each) for each in shown])
    for described in () if as_json else shown:
        _print_topic(*described)
    _say_failed(each for each in configs.values() if not isinstance(each, ignored))


@app.command()
@on_cluster
async def delete(
    connect: Connect,
    *,
    topic: OneTopic = None,
    pattern: Pattern = None,
    if_exists: IfExists = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a topic, or with `--pattern` several, with all their records, after a confirmation.
    A pattern never matches Kafka's own topics, nor the topic of the partition limits.

    Examples:

    - `kafkaclient topics delete --topic flights --yes`
    - `kafkaclient topics delete --pattern 'test-[0-9]+'`
    """
    wanted = _Wanted.parse(topic, pattern)
    if wanted == _Wanted():
        raise ConfigError("no topic to delete: give --topic NAME or --pattern REGEX")
    async with connect() as admin:
        found = await wanted.described(
            admin, missing_ok=if_exists, left_out=lambda t: t.internal or t.name == LIMITS_TOPIC
        )
        names = [t.name for t in found]
        if names:
            total = sum(len(t.partitions) for t in found)
            shown = ", ".join(names[:10]) + " and others" * (len(names) > 10)
            what = f"topic {shown}" if len(names) == 1 else f"{len(names)} topics ({shown})"
            confirm(f"Delete {what} with {total} partitions and all their records?", yes=yes)
        results = await admin.delete_topics(names) if names else {}
    ignored = wanted.ignored_errors(if_exists)
    failed = [error for error in results.values() if error and not isinstance(error, ignored)]
    deleted = [name for name in names if results[name] is None]
    if as_json:
        errors = {name: str(error) for name, error in results.items() if error in failed}
        print_json({"deleted": deleted, "failed": errors})
    elif not names:
        typer.echo(f"there is no topic {topic or pattern} to delete; nothing was done", err=True)
    for name in () if as_json else deleted:
        typer.echo(f"deleted topic {name}", err=True)
    _say_failed(failed)


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


class _Wanted(NamedTuple):
    """The topics of ``--topic`` or ``--pattern``; all topics without them."""

    topic: str | None = None
    pattern: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, topic: str | None, pattern: str | None) -> _Wanted:
        given_of({"--topic": topic, "--pattern": pattern})
        if topic is not None:
            try:
                check_topic_name(topic)
            except InvalidTopicError as error:
                raise ConfigError(f"{error}. A regular expression is given as --pattern") from error
        try:
            return cls(topic, None if pattern is None else re.compile(pattern))
        except re.error as error:
            raise ConfigError(f"--pattern {pattern!r} is no regular expression: {error}") from error

    def ignored_errors(self, if_exists: bool) -> tuple[type[KafkaError], ...]:
        """The errors to ignore: the topic was deleted meanwhile."""
        return (UnknownTopicError,) if if_exists or self.topic is None else ()

    async def described(
        self,
        admin: Admin,
        *,
        missing_ok: bool,
        left_out: Callable[[TopicDescription], bool] = lambda _: False,
    ) -> list[TopicDescription]:
        """The topics. A pattern does not match topics that are ``left_out``. Raises
        UnknownTopicError if there are none, unless ``missing_ok``."""
        if self.topic is not None:
            try:
                return [await admin.describe_topic(self.topic)]
            except UnknownTopicError:
                if missing_ok:
                    return []
                raise
        found = await admin.describe_topics()
        if self.pattern is None:
            return list(found.values())
        named = [each for name, each in found.items() if self.pattern.fullmatch(name)]
        matching = [each for each in named if not left_out(each)]
        if not matching and not missing_ok:
            advice = "no topic that this client may describe has such a name"
            if named:
                advice = f"{joined(each.name for each in named)}: Kafka's own topics are left out"
            raise broker_error(3, f"--pattern {self.pattern.pattern}", advice=advice)
        return matching


def _say_failed(outcomes: Iterable[object]) -> None:
    """Print the errors among these; exit with 1 if there are any."""
    failed = [each for each in outcomes if isinstance(each, KafkaError)]
    for error in failed:
        print_message("error", error)
    if failed:
        raise typer.Exit(FAILED)


def _own_configs(entries: Mapping[str, ConfigEntry] | KafkaError) -> dict[str, str] | None:
    """The topic's own configuration; None if it is not known."""
    if isinstance(entries, KafkaError):
        return None
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
    topic: TopicDescription,
    partitions: Iterable[PartitionView],
    configs: Mapping[str, str] | None,
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
    topic: TopicDescription,
    partitions: Iterable[PartitionView],
    configs: Mapping[str, str] | None,
) -> None:
    words = [
        f"{topic.name}: {len(topic.partitions)} partitions, "
        f"replication factor {topic.replication_factor}",
        *(["internal"] if topic.internal else []),
        *(f"{name}={value}" for name, value in (configs or {}).items()),
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
