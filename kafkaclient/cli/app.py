"""The ``kafkaclient`` command and its sub-commands."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kafkaclient import __version__

_RECORDS = "Records"
_ADMINISTER = "Administer a cluster"
_MEASURE = "Measure and watch"
_LOCAL = "Run brokers on this machine"
_CONNECT = "Connect"

# By name: the module, which has a group in ``app`` or else one command in a function of the
# module's name; the panel of the help; what its own help begins with.
_COMMANDS = {
    "produce": (
        "produce",
        _RECORDS,
        "Send records to a topic. A line on stderr says how many were written.",
    ),
    "consume": ("consume", _RECORDS, "Print the records of topics, those to come as well."),
    "topics": (
        "topics",
        _ADMINISTER,
        "Topics of any Kafka cluster: create, list, describe, grow, delete.",
    ),
    "configs": (
        "configs",
        _ADMINISTER,
        "Configurations of topics and brokers of any Kafka cluster.",
    ),
    "groups": (
        "groups",
        _ADMINISTER,
        "Consumer groups of any Kafka cluster: list, describe, lag, and their offsets.",
    ),
    "limits": (
        "limits",
        _ADMINISTER,
        "Limits for the number of partitions (KIP-578), which brokers themselves do not have.",
    ),
    "reassign": (
        "reassign",
        _ADMINISTER,
        "Give partitions other replicas, within a quota of bandwidth (KIP-73).",
    ),
    "throttle": (
        "throttle",
        _ADMINISTER,
        "Quotas for the replication between brokers (KIP-73).",
    ),
    "streams": (
        "streams",
        _ADMINISTER,
        "Applications with state, of `kafkaclient.streams` and of Kafka Streams.",
    ),
    "perf-test": (
        "perf_test",
        _MEASURE,
        "Send records to a topic at a given rate and report throughput and latency.",
    ),
    "top": (
        "top",
        _MEASURE,
        "Show what producers do, per broker: queue, requests in flight, share, latency, "
        "exclusions; and what consumers do: records per second, lag, rebalances, the partitions "
        "furthest behind.",
    ),
    "report": (
        "report",
        _MEASURE,
        "Report on the batches that producers recorded with the option telemetry.",
    ),
    "cluster": (
        "cluster",
        _LOCAL,
        "Real Kafka brokers on this machine, without Docker; `describe` is for any cluster.",
    ),
    "profiles": (
        "profiles",
        _CONNECT,
        "List the profiles: named connections, for `--profile NAME` and `KAFKACLIENT_PROFILE`.",
    ),
}

# What Kafka's scripts are here.
_SCRIPTS = {
    "kafka-topics": "topics",
    "kafka-configs": "configs",
    "kafka-consumer-groups": "groups",
    "kafka-console-producer": "produce",
    "kafka-console-consumer": "consume",
    "kafka-reassign-partitions": "reassign",
    "kafka-leader-election": "topics elect-leaders",
    "kafka-get-offsets": "topics offsets",
    "kafka-delete-records": "topics delete-records",
    "kafka-producer-perf-test": "perf-test",
    "kafka-streams-application-reset": "streams reset",
}
_NAMES = {"topic", "topics", "group", "application-id", "entity-name", "entity-type"}
"""Options of Kafka's scripts for names, which are arguments here."""
_USAGE_ERROR: Any = typer.BadParameter.__base__  # typer does not export it


class Commands(TyperGroup):
    """The commands. Each is imported when it is used: a command's start, and completion in a shell,
    need one of them, and the list of all needs none. Who writes them as Kafka's scripts is told how
    they are written here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = get_close_matches(name, _COMMANDS, 1)
            meant = _SCRIPTS.get(name.removesuffix(".sh"), near[0] if near else None)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {meant!r}?" if meant else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _USAGE_ERROR as error:
            option = getattr(error, "option_name", None)  # the option is unknown
            if isinstance(option, str) and (usage := _without_dashes(error.ctx, option)):
                error.message += f". It is given without dashes: {usage}"
                error.possibilities = None
            raise

    _lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._lists:
            _, panel, text = _COMMANDS[cmd_name]
            return TyperCommand(cmd_name, help=text, rich_help_panel=panel)
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _command(cmd_name)
        return super().get_command(ctx, cmd_name)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    import platform  # both are seldom needed, and take a tenth of a start
    from importlib.metadata import version

    typer.echo(f"kafkaclient {__version__}")
    typer.echo(f"{platform.python_implementation()} {platform.python_version()}")
    typer.echo(f"kafka-python {version('kafka-python')}")
    raise typer.Exit


def kafkaclient(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Takes the options before the command."""


_STYLE: dict[str, Any] = {"rich_markup_mode": "markdown", "callback": kafkaclient}

app = typer.Typer(
    cls=Commands,
    help="Kafka from the command line: send and read records, administer a cluster, measure and "
    "watch clients, run brokers on this machine.\n\n"
    "Start with:\n\n"
    "- `kafkaclient cluster up` for brokers on this machine\n"
    "- `kafkaclient topics list -b localhost:9092`; or name the brokers once, in "
    "`KAFKACLIENT_BOOTSTRAP` or in a profile (`kafkaclient profiles --help`)\n"
    "- `kafkaclient --install-completion` for completion in your shell\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong use, 130 ended by Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    **_STYLE,
)


def _without_dashes(ctx: Any, option: str) -> str | None:
    """The usage that an option of Kafka's scripts stands for, such as ``topics --list``."""
    name = option.lstrip("-")
    if isinstance(ctx.command, TyperGroup):
        command = ctx.command.get_command(ctx, name)
        path = f"{ctx.command_path} {name}"
    else:
        command = ctx.command if name in _NAMES else None
        path = ctx.command_path
    return None if command is None else " ".join([path, *command.collect_usage_pieces(ctx)])


def _command(name: str) -> Any:
    module_name, panel, _ = _COMMANDS[name]
    holder = typer.Typer(**_STYLE)
    try:
        module: Any = import_module(f"kafkaclient.cli.{module_name}")
    except ModuleNotFoundError as error:
        if name != "cluster":
            raise
        holder.add_typer(_without_local_brokers(error.name), name=name, rich_help_panel=panel)
    else:
        group = getattr(module, "app", None)
        if group is not None:
            holder.add_typer(group, name=name, rich_help_panel=panel)
        else:
            cls = getattr(module, "COMMAND_CLASS", None)
            add = holder.command(name, cls=cls, rich_help_panel=panel)
            add(getattr(module, module_name))
    made: Any = typer.main.get_command(holder)
    return made.commands[name]


def _without_local_brokers(missing: str | None) -> typer.Typer:
    """``cluster`` if its libraries are missing: its help says how to install them."""
    group = typer.Typer(
        help=f"Local brokers need {missing}, which is not installed: pip install "
        "'kafkaclient[testing]'. `describe` works with any cluster.",
        no_args_is_help=True,
    )
    group.command("describe")(import_module("kafkaclient.cli.admin").describe)
    return group
