"""The ``kafkaclient`` command and its sub-commands."""

from __future__ import annotations

from importlib import import_module

import typer

from kafkaclient.cli import configs, limits, reassign, streams, throttle, topics
from kafkaclient.cli.describe import describe
from kafkaclient.cli.perf_test import PerfTestCommand, perf_test
from kafkaclient.cli.report import report
from kafkaclient.cli.run import FAILED, stderr_console

__all__ = ["app"]

app = typer.Typer(
    help="An asyncio Kafka producer: its demonstration, its load test, its experiments, "
    "the report on its telemetry, local brokers, and what looks after a cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("perf-test", cls=PerfTestCommand)(perf_test)
app.command("report")(report)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(limits.app, name="limits")
app.add_typer(reassign.app, name="reassign")
app.add_typer(throttle.app, name="throttle")
app.add_typer(streams.app, name="streams")


def _mount_demo() -> None:
    app.command("demo")(import_module("kafkaclient.cli.demo").demo)


def _mount_cluster() -> None:
    app.add_typer(import_module("kafkaclient.cli.cluster").app, name="cluster")


def _mount_experiment() -> None:
    app.add_typer(import_module("kafkaclient.cli.experiment").app, name="experiment")


def _mount_hint(name: str, missing: str | None) -> None:
    """In place of a command whose libraries are not installed, one that says how to get them."""
    if name == "cluster":  # a part of it needs nothing more
        group = typer.Typer(
            help=f"Local brokers need {missing}, which is not installed: "
            "pip install 'kafkaclient[demo]'. Any cluster can be described.",
            no_args_is_help=True,
        )
        group.command("describe")(describe)
        app.add_typer(group, name=name)
        return

    @app.command(
        name,
        help=f"Not available: {missing} is not installed.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def hint() -> None:
        stderr_console().print(
            f"`kafkaclient {name}` needs {missing}, which is not installed: "
            "pip install 'kafkaclient[demo]'",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(FAILED)


for _name, _mount in (
    ("demo", _mount_demo),
    ("cluster", _mount_cluster),
    ("experiment", _mount_experiment),
):
    try:
        _mount()
    except ModuleNotFoundError as error:
        _mount_hint(_name, error.name)
