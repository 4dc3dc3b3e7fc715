"""The ``kafkaclient`` command and its sub-commands."""

from __future__ import annotations

import platform
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from kafkaclient import __version__
from kafkaclient.cli import configs, limits, reassign, streams, throttle, topics
from kafkaclient.cli.describe import describe
from kafkaclient.cli.list_profiles import profiles
from kafkaclient.cli.perf_test import PerfTestCommand, perf_test
from kafkaclient.cli.report import report
from kafkaclient.cli.top import top
from kafkaclient.compiled_modules import why_not_native, why_pure_python

_ADMINISTER = "Administer a cluster"
_MEASURE = "Measure and watch"
_CONNECT = "Connect"
_LOCAL = "Run brokers on this machine"

app = typer.Typer(
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
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    slow, partly = why_pure_python(), why_not_native()
    compiled = f"no ({slow})" if slow else f"partly ({partly})" if partly else "yes"
    typer.echo(f"kafkaclient {__version__}")
    typer.echo(f"compiled: {compiled}")
    typer.echo(f"{platform.python_implementation()} {platform.python_version()}")
    typer.echo(f"kafka-python {version('kafka-python')}")
    raise typer.Exit


@app.callback()
def kafkaclient(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions, and whether the compiled modules are used.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Takes the options before the command."""


app.add_typer(topics.app, name="topics", rich_help_panel=_ADMINISTER)
app.add_typer(configs.app, name="configs", rich_help_panel=_ADMINISTER)
app.add_typer(limits.app, name="limits", rich_help_panel=_ADMINISTER)
app.add_typer(reassign.app, name="reassign", rich_help_panel=_ADMINISTER)
app.add_typer(throttle.app, name="throttle", rich_help_panel=_ADMINISTER)
app.add_typer(streams.app, name="streams", rich_help_panel=_ADMINISTER)
app.command("perf-test", cls=PerfTestCommand, rich_help_panel=_MEASURE)(perf_test)
app.command("top", rich_help_panel=_MEASURE)(top)
app.command("report", rich_help_panel=_MEASURE)(report)


def _cluster() -> typer.Typer:
    """``cluster``; if its libraries are missing, a group whose help says how to install them."""
    try:
        group: typer.Typer = import_module("kafkaclient.cli.cluster").app
    except ModuleNotFoundError as error:
        group = typer.Typer(
            help=f"Local brokers need {error.name}, which is not installed: pip install "
            "'kafkaclient[testing]'. `describe` works with any cluster.",
            no_args_is_help=True,
        )
        group.command("describe")(describe)
    return group


app.add_typer(_cluster(), name="cluster", rich_help_panel=_LOCAL)
app.command("profiles", rich_help_panel=_CONNECT)(profiles)
