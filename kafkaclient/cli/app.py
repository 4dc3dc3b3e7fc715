"""The ``kafkaclient`` command and its sub-commands."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kafkaclient import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

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

CLOSED_PIPE = 141  # 128 + SIGPIPE, as shells report it
_USAGE_ERROR: Any = typer.BadParameter.__base__  # typer does not export it


@contextmanager
def _ended_by_reader() -> Iterator[None]:
    """End with the status of SIGPIPE, without a message, if the reader of stdout has ended, as in
    ``| head``. typer and rich would exit with 1, the status of a failure."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        seen = error.__context__ if isinstance(error, SystemExit) else error  # by rich
        if not isinstance(seen, BrokenPipeError):
            raise
        with suppress(OSError):  # what is still in the buffer cannot be written either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(CLOSED_PIPE) from None


@contextmanager
def _explained() -> Iterator[None]:
    """Say in the error of an unknown command or option what it is called here."""
    try:
        with _ended_by_reader():
            yield
    except _USAGE_ERROR as error:
        from kafkaclient.cli.other_names import explain_usage_error

        explain_usage_error(error)
        raise


class Commands(TyperGroup):
    """The commands. Each is imported when it is used: a command's start, and completion in a shell,
    need one of them, and the list of all needs none. Who writes them as Kafka's scripts is told how
    they are written here."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _explained():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _explained():
            return super().invoke(ctx)

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
    "Exit status: 0 done, 1 failed, 2 wrong use, 130 ended by Ctrl-C, 141 the reader of stdout has "
    "ended.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    **_STYLE,
)


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
