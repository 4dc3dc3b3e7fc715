"""The ``kafkaclient`` command and its sub-commands."""

from __future__ import annotations

import typer

from kafkaclient.cli.demo import demo
from kafkaclient.cli.perf_test import PerfTestCommand, perf_test

__all__ = ["app"]

app = typer.Typer(
    help="An asyncio Kafka producer: its demonstration, its load test, and local brokers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("perf-test", cls=PerfTestCommand)(perf_test)
app.command("demo")(demo)
