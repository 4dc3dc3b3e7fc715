"""``kafkaclient configs``: what ``kafka-configs`` does for topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.admin import ConfigResource, ConfigSource
from kafkaclient.cli.admin import (
    AsJson,
    Bootstrap,
    CommandConfig,
    cluster,
    pairs,
    print_json,
    print_table,
    run_admin,
)
from kafkaclient.cli.run import stderr_console
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.admin import ConfigEntry

__all__ = ["app"]

app = typer.Typer(
    help="Configurations of topics and brokers of any Kafka cluster.\n\n"
    "Say which by `--topic NAME`, `--broker ID` or `--broker-defaults`, or as kafka-configs does "
    "by `--entity-type topics|brokers` with `--entity-name` or `--entity-default`.\n\n"
    "Examples: `kafkaclient configs describe --topic flights`, "
    "`kafkaclient configs alter --topic flights --add-config retention.ms=3600000`, "
    "`kafkaclient configs describe --broker 1 --all`.\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong use.",
    no_args_is_help=True,
)

Topic = Annotated[str | None, typer.Option(help="The topic.")]
Broker = Annotated[int | None, typer.Option(min=0, help="The broker's id.")]
Defaults = Annotated[
    bool, typer.Option("--broker-defaults", help="What holds for brokers without an own value.")
]
EntityType = Annotated[str | None, typer.Option(help="topics or brokers.")]
EntityName = Annotated[str | None, typer.Option(help="The topic's name, or the broker's id.")]
EntityDefault = Annotated[
    bool, typer.Option("--entity-default", help="With --entity-type brokers: their defaults.")
]

_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker, dynamic",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, dynamic",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's properties file",
    ConfigSource.DEFAULT_CONFIG: "default",
}


@app.command()
def describe(
    *,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    entity_type: EntityType = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Also what nobody has set: every key.")
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show what is set, and where it was set. Sensitive values are never told by brokers.

    Examples: `kafkaclient configs describe --topic flights --all`,
    `kafkaclient configs describe --entity-type brokers --entity-name 1`
    """
    resource = _resource(topic, broker, broker_defaults, entity_type, entity_name, entity_default)

    async def run() -> dict[str, ConfigEntry]:
        async with cluster(bootstrap_server, command_config) as admin:
            return await admin.describe_configs(resource())

    entries = run_admin(run())
    shown = {
        name: entry
        for name, entry in entries.items()
        if all_ or entry.source is not ConfigSource.DEFAULT_CONFIG
    }
    if as_json:
        print_json(
            {
                name: {
                    "value": entry.value,
                    "source": entry.source.name,
                    "read_only": entry.read_only,
                    "sensitive": entry.sensitive,
                }
                for name, entry in shown.items()
            }
        )
        return
    print_table(
        {"key": "", "value": "", "set by": ""},
        [(name, _shown(entry), _source(entry)) for name, entry in shown.items()],
        title=f"configuration of {resource()}",
    )


@app.command()
def alter(  # noqa: PLR0913 - the flags of Kafka's tool
    *,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    entity_type: EntityType = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Set a key; [a,b] for a value with commas. May be repeated."
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Bring a key's default back. May be repeated."),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Say whether it would be done; change nothing.")
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
) -> None:
    """Change some keys and leave the others alone: all changes or none.

    Examples: `kafkaclient configs alter --topic flights --add-config retention.ms=3600000
    --delete-config cleanup.policy`, `kafkaclient configs alter --broker-defaults --add-config
    log.cleaner.threads=2`
    """
    resource = _resource(topic, broker, broker_defaults, entity_type, entity_name, entity_default)

    async def run() -> None:
        async with cluster(bootstrap_server, command_config) as admin:
            await admin.alter_configs(
                resource(),
                pairs(add_config, "--add-config"),
                delete=[name for word in delete_config or () for name in word.split(",")],
                validate_only=validate_only,
            )

    run_admin(run())
    told = "would be changed" if validate_only else "is changed"
    stderr_console().print(f"the configuration of {resource()} {told}", markup=False)


def _resource(
    topic: str | None,
    broker: int | None,
    defaults: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
) -> Callable[[], ConfigResource]:
    """Gives the resource; what is wrong with the flags is told when it is asked for."""

    def resource() -> ConfigResource:
        found = []
        if topic is not None:
            found.append(ConfigResource.topic(topic))
        if broker is not None:
            found.append(ConfigResource.broker(broker))
        if defaults:
            found.append(ConfigResource.broker_defaults())
        if entity_type is not None:
            found.append(_entity(entity_type, entity_name, entity_default))
        if len(found) != 1:
            raise ConfigError(
                "give one of --topic, --broker, --broker-defaults, or --entity-type with "
                "--entity-name"
            )
        return found[0]

    return resource


def _entity(kind: str, name: str | None, default: bool) -> ConfigResource:
    if kind == "topics" and name is not None and not default:
        return ConfigResource.topic(name)
    if kind == "brokers" and default and name is None:
        return ConfigResource.broker_defaults()
    if kind == "brokers" and name is not None and name.isdecimal() and not default:
        return ConfigResource.broker(int(name))
    raise ConfigError(
        "--entity-type is topics with --entity-name NAME, or brokers with --entity-name ID or "
        "--entity-default"
    )


def _shown(entry: ConfigEntry) -> str:
    return "(hidden)" if entry.sensitive else entry.value or ""


def _source(entry: ConfigEntry) -> str:
    return _SOURCES.get(entry.source, entry.source.name.lower())
