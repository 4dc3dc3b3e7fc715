"""The ``kafkaclient`` command and its sub-commands."""

from __future__ import annotations

import platform
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafkaclient import __version__

_RECORDS = "Records"
_ADMINISTER = "Administer a cluster"
_MEASURE = "Measure and watch"
_LOCAL = "Run brokers on this machine"
_CONNECT = "Connect"

# By name: the module, which has a group in ``app`` or else one command in a function of the
# module's name; the panel of the help.
_COMMANDS = {
    "produce": ("produce", _RECORDS),
    "consume": ("consume", _RECORDS),
    "topics": ("topics", _ADMINISTER),
    "configs": ("configs", _ADMINISTER),
    "groups": ("groups", _ADMINISTER),
    "limits": ("limits", _ADMINISTER),
    "reassign": ("reassign", _ADMINISTER),
    "throttle": ("throttle", _ADMINISTER),
    "streams": ("streams", _ADMINISTER),
    "perf-test": ("perf_test", _MEASURE),
    "top": ("top", _MEASURE),
    "report": ("report", _MEASURE),
    "cluster": ("cluster", _LOCAL),
    "profiles": ("profiles", _CONNECT),
}


class Commands(TyperGroup):
    """The commands. Each is imported when it is used: a command's start, and completion in a shell,
    need one of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _command(cmd_name)
        return super().get_command(ctx, cmd_name)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
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
    help="Kafka from the command line: administer a cluster, measure and watch producers, run "
    "brokers on this machine.\n\n"
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


def _command(name: str) -> Any:
    module_name, panel = _COMMANDS[name]
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
