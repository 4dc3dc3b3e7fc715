"""``kafkaclient perf-test``: Kafka's ``kafka-producer-perf-test``: options, plan and profile."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import uuid4

import typer
from typer.core import TyperCommand

from kafkaclient.cli import perf_report
from kafkaclient.cli.connection import Connection, check_reachable, with_connection
from kafkaclient.cli.output import FAILED, run_blocking, run_command, stderr_console
from kafkaclient.cli.perf_report import run_shared
from kafkaclient.cli.profile_file import BOOTSTRAP
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import ConfigError
from kafkaclient.perf import traffic as payload
from kafkaclient.perf.clients import CLIENTS, KafkaclientClient, make_client
from kafkaclient.perf.load import Load, LoadSpec
from kafkaclient.perf.run import Labels, measure, write_runs
from kafkaclient.perf.shared_load import ProducerPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.perf.run import Run
    from kafkaclient.perf.traffic import KeyValue


# --- ``kafkaclient perf-test``: Kafka's ``kafka-producer-perf-test``, with tables on stderr. ---

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
    connection: Connection,
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
    producer: Annotated[str, f"Client to drive: {', '.join(CLIENTS)}."] = "kafkaclient",
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
    has the view of `kafkaclient top` above it. The other producers run
    with acks=all, enable.idempotence=true and linger.ms=5 as well, unless other values are given.

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

    async def main() -> list[Run]:
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


async def run_perf_test(plan: PerfTestPlan) -> list[Run]:
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


# --- What a ``perf-test`` will do: its options, checked before anything starts. ---

T = TypeVar("T")

_DEFAULT_LINGER_MS = 5.0
ID_PREFIX = "performance-producer-"  # of transactional ids, if none is given
DEFAULT_TRANSACTION_MS = 3000
# The setting is shown and written to files, so it must not contain credentials.
_MAYBE_SECRET = ("sasl.", "sasl_", "ssl.", "ssl_")
_NOT_IN_SETTING = frozenset({BOOTSTRAP, "client.id", "linger.ms", "telemetry", "transactional.id"})


@dataclass(frozen=True, slots=True)
class PerfTestPlan:
    """A checked command line."""

    load: ProducerPlan
    timeout_s: float | None
    print_metrics: bool
    json: Path | None
    repeat: int
    flame_graph: Path | None = None


def labels(config: Mapping[str, str], spec: LoadSpec) -> Labels:
    """The labels of the runs: the options that distinguish the load from others."""
    named = {
        name: value
        for name, value in config.items()
        if name not in _NOT_IN_SETTING and not name.startswith(_MAYBE_SECRET)
    }
    if spec.transaction_s is not None:
        named["transaction.duration.ms"] = f"{spec.transaction_s * 1000:.0f}"
    return Labels(
        setting=",".join(f"{name}={value}" for name, value in named.items()) or "default",
        linger_ms=float(config.get("linger.ms", _DEFAULT_LINGER_MS)),
    )


def transaction_length(
    config: dict[str, str], given_id: str | None, duration_ms: int | None
) -> int | None:
    """The length of transactions in ms; None: no transactions. Puts their id into ``config``."""
    if given_id is not None:
        config["transactional.id"] = given_id
    elif duration_ms is not None:
        config.setdefault("transactional.id", f"{ID_PREFIX}{uuid4()}")
    if "transactional.id" not in config:
        return None
    return duration_ms or DEFAULT_TRANSACTION_MS


def either(name: str, value: T | None, old_name: str, old_value: T | None) -> T | None:
    """The value of an option under its name or its old name. Raises ConfigError for both."""
    if value and old_value:
        raise ConfigError(f"{name} and {old_name} cannot be given together")
    return value or old_value


def check_client(name: str, config: Mapping[str, str]) -> None:
    """Raise ConfigError for an unknown client, and for options that this package's producer does
    not take."""
    if name not in CLIENTS:
        raise ConfigError(f"no client {name!r}; there are {', '.join(CLIENTS)}")
    if name == KafkaclientClient.name:
        ProducerConfig.build(config)


def load_spec(
    num_records: int, throughput: float, warmup: int, interval_ms: int, transaction_ms: int | None
) -> LoadSpec:
    """The load. Raises ConfigError for numbers that leave nothing to send or to measure."""
    if not (throughput > 0 or throughput == -1):
        raise ConfigError("--throughput must be a positive number, or -1 for no limit")
    if warmup < 0:
        raise ConfigError(f"--warmup-records must not be negative, not {warmup}")
    if warmup >= num_records:
        raise ConfigError(
            f"--warmup-records {warmup} leaves none of the --num-records {num_records} to measure"
        )
    return LoadSpec(
        num_records=num_records,
        rate=throughput if 0 < throughput < inf else None,
        warmup_records=warmup,
        reporting_interval_s=interval_ms / 1e3,
        transaction_s=None if transaction_ms is None else transaction_ms / 1e3,
    )


def records(
    record_size: int | None, file: Path | None, delimiter: str, monotonic: bool
) -> Callable[[], Iterator[KeyValue]]:
    """A function that gives the records of the load, the same at each call; can be pickled.

    Raises ConfigError unless exactly one source is given.
    """
    if (record_size is not None) + (file is not None) + monotonic != 1:
        raise ConfigError(
            "give exactly one of --record-size, --payload-file and --payload-monotonic"
        )
    if record_size is not None:
        return partial(payload.random_payloads, record_size)
    if file is None:
        return payload.monotonic_payloads
    if not delimiter:
        raise ConfigError("--payload-delimiter must not be empty")
    found = tuple(payload.read_payloads(file, "\n" if delimiter == "\\n" else delimiter))
    if not found:
        raise ConfigError(f"--payload-file {file} is empty")
    typer.echo(f"Number of records read from {file}: {len(found)}", err=True)
    return partial(payload.file_payloads, found)


# --- ``perf-test --flame-graph``: a flame graph of the load's process, by pyinstrument. ---

_INTERVAL_S = 0.001  # between two samples


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Sample the stack of this thread, and write a page, or for ``.json`` speedscope's file.

    Without a path nothing is done. Raises ConfigError if pyinstrument is not installed.
    """
    if path is None:
        yield
        return
    try:
        profiler = import_module("pyinstrument").Profiler(
            interval=_INTERVAL_S,
            async_mode="disabled",  # callbacks of the event loop belong to no task
        )
        renderers = import_module("pyinstrument.renderers")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "--flame-graph needs pyinstrument: pip install 'kafkaclient[profile]'"
        ) from error
    renderer = renderers.HTMLRenderer()
    if path.suffix == ".json":
        renderer = renderers.SpeedscopeRenderer()
    path.parent.mkdir(parents=True, exist_ok=True)
    with profiler:
        yield
    path.write_text(profiler.output(renderer), encoding="utf-8")
