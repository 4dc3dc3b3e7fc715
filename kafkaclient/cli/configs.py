"""``kafkaclient configs``: what ``kafka-configs`` does for topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import kafkaclient.admin
from kafkaclient.cli.admin import Connect, on_cluster
from kafkaclient.cli.connection import AsJson, ValidateOnly, given_of
from kafkaclient.cli.output import joined, picked, print_json, print_table
from kafkaclient.cli.profile_file import comma_pairs
from kafkaclient.errors import ConfigError
from kafkaclient.topic_names import check_topic_name

if TYPE_CHECKING:
    from kafkaclient.admin import ConfigResource

app = typer.Typer(
    help="Configurations of topics and brokers of any Kafka cluster.\n\n"
    "The resource is a TOPIC, `--broker ID` or `--broker-defaults`.",
    no_args_is_help=True,
)

Topic = Annotated[
    str | None, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)
]
Broker = Annotated[int | None, typer.Option(min=0, help="The broker's id.")]
Defaults = Annotated[bool, "The dynamic defaults of all brokers."]

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker, dynamic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers, dynamic",
    "STATIC_BROKER_CONFIG": "broker's properties file",
    "DEFAULT_CONFIG": "default",
}


@app.command()
@on_cluster
async def describe(
    connect: Connect,
    *,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    all_: Annotated[bool, "Also the keys with default values."] = False,
    as_json: AsJson = False,
) -> None:
    """Show the configured values, and where each was set. Brokers never return sensitive values.

    Examples:

    - `kafkaclient configs describe flights`
    - `kafkaclient configs describe --broker 1 --all`
    """
    resource = _resource(topic, broker, broker_defaults)
    async with connect() as admin:
        entries = await admin.describe_configs(resource)
    shown = {
        name: entry
        for name, entry in entries.items()
        if all_ or entry.source.name != "DEFAULT_CONFIG"
    }
    if as_json:
        print_json(
            {
                name: picked(entry, "value", "read_only", "sensitive")
                | {"source": entry.source.name}
                for name, entry in shown.items()
            }
        )
        return
    print_table(
        ("key", "value", "set by"),
        (
            (
                name,
                "(hidden)" if entry.sensitive else entry.value or "",
                _SOURCES.get(entry.source.name, entry.source.name.lower()),
            )
            for name, entry in shown.items()
        ),
        title=f"configuration of {resource}",
    )


@app.command()
@on_cluster
async def alter(
    connect: Connect,
    *,
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            *("--add-config", "--set", "-s"),
            metavar="NAME=VALUE",
            help="Set a key; [a,b] for a value with commas. May be repeated.",
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            *("--delete-config", "--delete", "-d"),
            metavar="NAME",
            help="Reset a key to its default. May be repeated.",
        ),
    ] = None,
    validate_only: ValidateOnly = False,
    as_json: AsJson = False,
) -> None:
    """Change some keys and leave the others alone: all changes or none.

    Examples:

    - `kafkaclient configs alter flights --add-config retention.ms=3600000 --delete-config
      cleanup.policy`
    - `kafkaclient configs alter --broker-defaults --add-config log.cleaner.threads=2`
    """
    resource = _resource(topic, broker, broker_defaults)
    added = comma_pairs(add_config, "--add-config")
    deleted = [name for word in delete_config or () for name in word.split(",")]
    if not (added or deleted):
        raise ConfigError("no key to change: give --add-config NAME=VALUE or --delete-config NAME")
    async with connect() as admin:
        if deleted:  # brokers accept any name here
            known = await admin.describe_configs(resource, deleted)
            if unknown := [name for name in deleted if name not in known]:
                raise ConfigError(
                    f"--delete-config {joined(unknown)}: no such key in the configuration of "
                    f"{resource}; nothing was changed"
                )
        await admin.alter_configs(resource, added, delete=deleted, validate_only=validate_only)
    if as_json:
        changed = {"set": sorted(added), "deleted": sorted(deleted), "changed": not validate_only}
        print_json({"type": resource.kind.name.lower(), "name": resource.name} | changed)
        return
    outcome = "would be changed" if validate_only else "is changed"
    typer.echo(f"the configuration of {resource} {outcome}", err=True)


def _resource(topic: str | None, broker: int | None, defaults: bool) -> ConfigResource:
    flags = {"TOPIC": topic, "--broker": broker, "--broker-defaults": defaults}
    if not given_of(flags):
        raise ConfigError("whose configuration? Give TOPIC, --broker ID or --broker-defaults")
    of = kafkaclient.admin.ConfigResource
    if topic is not None:
        check_topic_name(topic)
        return of.topic(topic)
    return of.broker_defaults() if broker is None else of.broker(broker)
