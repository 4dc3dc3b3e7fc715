"""The ``kafkaclient`` command and its sub-commands."""

from __future__ import annotations

from importlib import import_module

import typer

from kafkaclient.cli import configs, limits, reassign, streams, throttle, topics
from kafkaclient.cli.describe import describe
from kafkaclient.cli.perf_test import PerfTestCommand, perf_test
from kafkaclient.cli.report import report
from kafkaclient.cli.top import top

app = typer.Typer(
    help="An asyncio Kafka producer: its load test, a live view of its metrics, the report on its "
    "telemetry, local brokers, and the administration of a cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("perf-test", cls=PerfTestCommand)(perf_test)
app.command("report")(report)
app.command("top")(top)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(limits.app, name="limits")
app.add_typer(reassign.app, name="reassign")
app.add_typer(throttle.app, name="throttle")
app.add_typer(streams.app, name="streams")


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


app.add_typer(_cluster(), name="cluster")
