"""``kafkaclient perf-test``: Kafka's ``kafka-producer-perf-test``, with tables on stderr."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kafkaclient.cli import perf_report
from kafkaclient.cli.connection import ConnectionOptions, check_reachable, with_connection
from kafkaclient.cli.output import FAILED, run_blocking, run_command, stderr_console
from kafkaclient.cli.perf_plan import (
    DEFAULT_TRANSACTION_MS,
    ID_PREFIX,
    PerfTestPlan,
    check_client,
    either,
    labels,
    load_spec,
    profiled,
    records,
    transaction_length,
)
from kafkaclient.cli.perf_report import run_shared
from kafkaclient.perf.clients import make_client
from kafkaclient.perf.load import Load
from kafkaclient.perf.run import ProducerPlan, measure, write_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.perf.run import LoadRun


# --- ``kafkaclient perf-test``: Kafka's ``kafka-producer-perf-test`` ------------------------------

_MANY_WORDS = ("--producer-props", "--command-property")


class PerfTestCommand(TyperCommand):
    """A command in which a flag takes several words: ``--command-property a=1 b=2``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(repeat_flags(args)))


COMMAND_CLASS = PerfTestCommand


def repeat_flags(args: list[str]) -> Iterator[str]:
    """The words, with a flag that takes many values repeated before each of them."""
    flag = None
    for word in args:
        if word.startswith("-"):
            name = word.partition("=")[0]
            flag = name if name in _MANY_WORDS else None
            first = word == flag
            yield word
        elif flag is None or first:
            first = False
            yield word
        else:
            yield from (flag, word)


@with_connection
def perf_test(  # noqa: PLR0913 - the flags of Kafka's tool
    connection: ConnectionOptions,
    *,
    topic: Annotated[str, "Produce records to this topic."],
    num_records: Annotated[int, typer.Option(min=1, help="Number of records to produce.")],
    throughput: Annotated[float, "Records per second to hold on average; -1 for no limit."],
    record_size: Annotated[int | None, typer.Option(min=1, help="Record size in bytes.")] = None,
    payload_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="File to draw payloads from."),
    ] = None,
    payload_monotonic: Annotated[bool, "Payloads are the numbers from 0."] = False,
    payload_delimiter: Annotated[str, "What separates the payloads in --payload-file."] = "\\n",
    command_property: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE...", help="Producer options; they override --command-config."
        ),
    ] = None,
    producer_props: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE...", help="(Deprecated) use --command-property."),
    ] = None,
    producer_config: Annotated[
        Path | None, typer.Option("--producer.config", help="(Deprecated) use --command-config.")
    ] = None,
    print_metrics: Annotated[bool, "Print the producer's metrics at the end."] = False,
    warmup_records: Annotated[
        int, "Number of first records that the steady-state summary leaves out."
    ] = 0,
    reporting_interval: Annotated[
        int, typer.Option(min=1, help="Milliseconds between progress lines.")
    ] = 5000,
    transactional_id: Annotated[
        str | None,
        "Send in transactions under this id; overrides transactional.id. "
        f"[default: {ID_PREFIX} and a random UUID, if only --transaction-duration-ms is given]",
    ] = None,
    transaction_duration_ms: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Milliseconds after which a transaction is committed. "
            f"[default: {DEFAULT_TRANSACTION_MS}, if there is a transactional id]",
        ),
    ] = None,
    producer: Annotated[
        str, "Client to drive. A clone of the repository has aiokafka and confluent as well."
    ] = "kafkaclient",
    json: Annotated[Path | None, "Write the run's record to this file."] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs, one after the other.")] = 1,
    spark_master: Annotated[
        str | None,
        "Run each producer in a task of this Spark master: 'local[4]', ... "
        "[default: in a process of its own on this machine]",
    ] = None,
    producers: Annotated[
        int, typer.Option(min=1, help="Number of producers, which share records and rate.")
    ] = 1,
    flame_graph: Annotated[
        Path | None,
        "Write a flame graph of the run: a page for a browser, or, if the name ends with .json, "
        "a file for https://www.speedscope.app. Needs 'kafkaclient[profile]'; slows the load down.",
    ] = None,
) -> None:
    """Send records to a topic at a given rate and report throughput and latency.

    Takes the flags of Kafka's kafka-producer-perf-test. Prints only that tool's lines on stdout; on
    stderr a progress bar and, at the end, tables of brokers and partitions. On a terminal, the bar
    has the view of `kafkaclient top` above it.

    Exit status 1: a record could not be delivered, or the test failed.

    Example, four producers as one:

    - `kafkaclient perf-test --topic load --num-records 1000000 --record-size 100 --throughput -1
      --producers 4 -b localhost:9092`
    """

    def planned() -> PerfTestPlan:
        file = either(
            "--command-config", connection.command_config, "--producer.config", producer_config
        )
        words = either("--command-property", command_property, "--producer-props", producer_props)
        config, timeout_s = replace(connection, command_config=file).options(
            "perf-producer-client", words
        )
        check_client(producer, config)
        transaction_ms = transaction_length(config, transactional_id, transaction_duration_ms)
        spec = load_spec(
            num_records, throughput, warmup_records, reporting_interval, transaction_ms
        )
        made = records(record_size, payload_file, payload_delimiter, payload_monotonic)
        load = ProducerPlan(producer, topic, config, spec, labels(config, spec), made)
        return PerfTestPlan(load, timeout_s, print_metrics, json, repeat, flame_graph)

    async def main() -> list[LoadRun]:
        plan = planned()
        with profiled(plan.flame_graph):
            await check_reachable(plan.load.config, plan.timeout_s)
            return await run_perf_test(plan)

    if spark_master is None and producers == 1:
        runs = run_command(main())
    else:
        runs = run_blocking(lambda: run_shared(planned(), spark_master, producers))
    if any(run.outcome.errors for run in runs):
        raise typer.Exit(FAILED)


async def run_perf_test(plan: PerfTestPlan) -> list[LoadRun]:
    """The runs of the load, each with a new client."""
    console = stderr_console()
    runs = []
    for number in range(1, plan.repeat + 1):
        view = perf_report.producer_view(console, plan.load.client)
        observer = None if view is None else view.metrics
        client = make_client(plan.load.client, plan.load.config, plan.load.topic, observer)
        load = Load(
            client,
            plan.load.spec,
            on_window=lambda window: perf_report.print_line(window.line()),
            on_steady_state=lambda: console.print("In steady state."),
        )
        async with perf_report.progress_shown(console, load, plan, number, view):
            labeled = replace(plan.load.labels, run=number)
            run = await measure(client, load, plan.load.records(), labeled)
        runs.append(run)
        perf_report.print_summary(run)
        if plan.print_metrics and (metrics := client.metrics()) is not None:
            perf_report.print_line(perf_report.metrics_lines(metrics))
        perf_report.show_run(console, run)
    if plan.json is not None:
        values = [run.record.as_json() for run in runs]
        write_runs(plan.json, values, **values[-1])
    return runs
