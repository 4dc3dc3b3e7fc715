"""The command line of the experiments."""

from __future__ import annotations

import typer

from experiments.chaos.command import chaos
from experiments.consumer_chaos.command import consumer_chaos
from experiments.dashboard.command import dashboard
from experiments.demo.command import demo
from experiments.partition_limits.command import partition_limits
from experiments.rebalance.command import rebalance_1000
from experiments.replication_quota.command import replication_quota
from experiments.slow_broker.command import object_store, pictures, report, slow_broker
from experiments.spark_chaos.command import spark_chaos
from experiments.streams_chaos.command import streams_chaos
from experiments.task_handover.command import task_handover
from experiments.word_count.command import word_count

__all__ = ["app"]

app = typer.Typer(
    help="Measurements on real brokers, against other Kafka clients.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for _command in (
    demo,
    slow_broker,
    object_store,
    chaos,
    partition_limits,
    replication_quota,
    task_handover,
    word_count,
    streams_chaos,
    consumer_chaos,
    spark_chaos,
    rebalance_1000,
    report,
    pictures,
    dashboard,
):
    app.command(_command.__name__.replace("_", "-"))(_command)
