"""``kafkaclient perf-test``: Kafka's ``kafka-producer-perf-test``, with more to see on stderr."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import uuid4

import typer
from typer.core import TyperCommand

from kafkaclient.cli.perf_fleet import run_fleet
from kafkaclient.cli.perf_report import progress_shown, show_run
from kafkaclient.cli.properties import read_properties, split_pairs
from kafkaclient.cli.run import FAILED, run_blocking, run_command, stderr_console
from kafkaclient.errors import ConfigError
from kafkaclient.experiments.clients import CLIENTS, make_client
from kafkaclient.experiments.load import Load, LoadSpec
from kafkaclient.experiments.payload import (
    file_payloads,
    monotonic_payloads,
    random_payloads,
    read_payloads,
)
from kafkaclient.experiments.record import write_records
from kafkaclient.experiments.run import Labels, Run, measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkaclient.experiments.payload import KeyValue

T = TypeVar("T")

__all__ = ["PerfTestCommand", "PerfTestPlan", "perf_test"]

_CLIENT_ID = "perf-producer-client"
_DEFAULT_LINGER_MS = 5.0
_ID_PREFIX = "performance-producer-"
_DEFAULT_TRANSACTION_MS = 3000
# Setting and results are shown and kept; credentials must not be.
_MAYBE_SECRET = ("sasl.", "sasl_", "ssl.", "ssl_")
_NOT_IN_SETTING = frozenset(
    {"bootstrap.servers", "client.id", "linger.ms", "telemetry", "transactional.id"}
)
_SERIALIZERS = frozenset({"key.serializer", "value.serializer"})
_MANY_WORDS = ("--producer-props", "--command-property")


class PerfTestCommand(TyperCommand):
    """Lets one flag take several words, as Kafka's tool does: ``--command-property a=1 b=2``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(repeat_flags(args)))


def repeat_flags(args: list[str]) -> Iterator[str]:
    """The words with the flag before each further value of a flag that takes many."""
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


@dataclass(frozen=True, slots=True)
class PerfTestPlan:
    """The command line, understood and checked."""

    producer: str
    topic: str
    config: Mapping[str, str]
    spec: LoadSpec
    record_size: int | None
    payloads: tuple[bytes, ...] | None
    print_metrics: bool
    json: Path | None
    repeat: int

    @property
    def labels(self) -> Labels:
        named = {
            name: self.config[name]
            for name in self.config
            if name not in _NOT_IN_SETTING and not name.startswith(_MAYBE_SECRET)
        }
        if self.spec.transaction_s is not None:
            named["transaction.duration.ms"] = f"{self.spec.transaction_s * 1000:.0f}"
        linger = self.config.get("linger.ms", str(_DEFAULT_LINGER_MS))
        return Labels(
            setting=",".join(f"{name}={value}" for name, value in named.items()) or "default",
            linger_ms=float(linger),
        )

    def records(self) -> Iterator[KeyValue]:
        """The load's records, the same in every run."""
        if self.payloads is not None:
            return file_payloads(self.payloads)
        if self.record_size is not None:
            return random_payloads(self.record_size)
        return monotonic_payloads()


def perf_test(  # noqa: PLR0913 - the flags of Kafka's tool
    *,
    topic: Annotated[str, typer.Option(help="Produce records to this topic.")],
    num_records: Annotated[int, typer.Option(min=1, help="Number of records to produce.")],
    throughput: Annotated[
        float, typer.Option(help="Records per second to hold on average; -1 for no limit.")
    ],
    bootstrap_server: Annotated[
        str | None,
        typer.Option(help="host:port[,host:port...]; goes before bootstrap.servers elsewhere."),
    ] = None,
    record_size: Annotated[int | None, typer.Option(min=1, help="Record size in bytes.")] = None,
    payload_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="UTF-8 file to draw payloads from."),
    ] = None,
    payload_monotonic: Annotated[
        bool, typer.Option("--payload-monotonic", help="Payloads are the numbers from 0.")
    ] = False,
    payload_delimiter: Annotated[
        str, typer.Option(help="What separates the payloads in --payload-file.")
    ] = "\\n",
    command_property: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE...", help="Producer options; before --command-config."),
    ] = None,
    producer_props: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE...", help="(Deprecated) use --command-property."),
    ] = None,
    command_config: Annotated[
        Path | None, typer.Option(help="Properties file with producer options.")
    ] = None,
    producer_config: Annotated[
        Path | None, typer.Option("--producer.config", help="(Deprecated) use --command-config.")
    ] = None,
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="Print the producer's metrics at the end.")
    ] = False,
    warmup_records: Annotated[
        int, typer.Option(help="First records, left out of a steady-state summary line.")
    ] = 0,
    reporting_interval: Annotated[
        int, typer.Option(min=1, help="Milliseconds between progress lines.")
    ] = 5000,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            help="Send in transactions under this id; goes before transactional.id elsewhere. "
            f"[default: {_ID_PREFIX} and a random UUID, if only --transaction-duration-ms is given]"
        ),
    ] = None,
    transaction_duration_ms: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Commit the transaction after so many milliseconds. "
            f"[default: {_DEFAULT_TRANSACTION_MS}, if there is a transactional id]",
        ),
    ] = None,
    producer: Annotated[
        str, typer.Option(help=f"Client to drive: {', '.join(CLIENTS)}.")
    ] = "kafkaclient",
    json: Annotated[Path | None, typer.Option(help="Write the run's record to this file.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs, one after the other.")] = 1,
    spark_master: Annotated[
        str | None,
        typer.Option(help="Run in tasks of this Spark master, one producer each: 'local[4]', ..."),
    ] = None,
    producers: Annotated[
        int, typer.Option(min=1, help="How many, started together; they share records and rate.")
    ] = 1,
) -> None:
    """Send records to a topic at a given rate and report throughput and latency.

    Takes the flags of Kafka's kafka-producer-perf-test and prints its lines on stdout, and nothing
    else there; on stderr a progress bar and, at the end, what went to each broker and partition.
    The other producers run with acks=all, enable.idempotence=true and linger.ms=5 as well, unless
    told otherwise.

    Example, four producers as one: kafkaclient perf-test --topic load --num-records 1000000
    --record-size 100 --throughput -1 --bootstrap-server localhost:9092 --spark-master 'local[4]'
    --producers 4
    """

    def planned() -> PerfTestPlan:
        config = _config(
            bootstrap_server,
            _one_of("--command-property", command_property, "--producer-props", producer_props),
            _one_of("--command-config", command_config, "--producer.config", producer_config),
        )
        transaction_ms = _transactions(config, transactional_id, transaction_duration_ms)
        return PerfTestPlan(
            producer=producer,
            topic=topic,
            config=config,
            spec=_spec(num_records, throughput, warmup_records, reporting_interval, transaction_ms),
            record_size=record_size,
            payloads=_payloads(record_size, payload_file, payload_delimiter, payload_monotonic),
            print_metrics=print_metrics,
            json=json,
            repeat=repeat,
        )

    async def main() -> list[Run]:
        if producers > 1:
            raise ConfigError(
                f"--producers {producers} run in Spark's tasks: give --spark-master, for example "
                f"'local[{producers}]'"
            )
        return await run_perf_test(planned())

    if spark_master is None:
        runs = run_command(main())
    else:
        master = spark_master
        runs = run_blocking(lambda: run_fleet(planned(), master, producers))
    if any(run.outcome.errors for run in runs):
        raise typer.Exit(FAILED)


async def run_perf_test(plan: PerfTestPlan) -> list[Run]:
    """Run the load as often as asked, each time with a new client."""
    console = stderr_console()
    runs = []
    for number in range(1, plan.repeat + 1):
        client = make_client(plan.producer, plan.config, plan.topic)
        load = Load(
            client,
            plan.spec,
            on_window=lambda window: _tell(window.line()),
            on_steady_state=lambda: console.print("In steady state."),
        )
        async with progress_shown(console, load, plan, number):
            run = await measure(client, load, plan.records(), replace(plan.labels, run=number))
        runs.append(run)
        _tell(run.outcome.summary.line())
        if run.outcome.steady_state is not None:
            _tell(run.outcome.steady_state.line(steady_state=True))
        if plan.print_metrics:
            _tell(metrics_lines(client.metrics()))
        show_run(console, run)
    if plan.json is not None:
        write_records(plan.json, [run.record for run in runs])
    return runs


def _tell(line: str) -> None:
    # Not typer.echo: it would write past the progress display that guards a terminal's stdout.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def metrics_lines(metrics: Mapping[str, object]) -> str:
    """Metrics as Kafka's tools print them (Java: ``ToolsUtils.printMetrics``)."""
    flat = dict(sorted(_flattened(metrics, "")))
    width = max((len(name) for name in flat), default=0)
    lines = (
        f"{name:<{width}} : {f'{value:.3f}' if isinstance(value, int | float) else value}"
        for name, value in flat.items()
    )
    return "\n".join(chain(["", f"{'Metric Name':<{width}}   Value"], lines))


def _flattened(metrics: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in metrics.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}:")
        else:
            yield f"{prefix}{name}", value


def _config(bootstrap: str | None, words: list[str] | None, file: Path | None) -> dict[str, str]:
    config = {"client.id": _CLIENT_ID}
    if file is not None:
        config |= read_properties(file)
    config |= split_pairs(words or ())
    if bootstrap is not None:
        config["bootstrap.servers"] = bootstrap
    if "bootstrap.servers" not in config:
        raise ConfigError(
            "no brokers to connect to: give --bootstrap-server host:port, or bootstrap.servers "
            "by --command-property or --command-config"
        )
    # Kafka's tool sets its own, too, so files made for it may name Java classes here.
    return {name: value for name, value in config.items() if name not in _SERIALIZERS}


def _transactions(
    config: dict[str, str], given_id: str | None, duration_ms: int | None
) -> int | None:
    """The length of a transaction, with its id put into ``config``; None without transactions."""
    if given_id is not None:
        config["transactional.id"] = given_id
    elif duration_ms is not None:
        config.setdefault("transactional.id", f"{_ID_PREFIX}{uuid4()}")
    if "transactional.id" not in config:
        return None
    return duration_ms or _DEFAULT_TRANSACTION_MS


def _one_of(name: str, value: T | None, old_name: str, old_value: T | None) -> T | None:
    if value and old_value:
        raise ConfigError(f"{name} and {old_name} cannot be given together")
    return value or old_value


def _spec(
    num_records: int, throughput: float, warmup: int, interval_ms: int, transaction_ms: int | None
) -> LoadSpec:
    if not throughput:
        raise ConfigError("--throughput must be a positive number, or -1 for no limit")
    if warmup >= num_records:
        raise ConfigError(
            f"--warmup-records {warmup} leaves none of the --num-records {num_records} to measure"
        )
    return LoadSpec(
        num_records=num_records,
        rate=throughput if throughput > 0 else None,
        warmup_records=max(warmup, 0),
        reporting_interval_s=interval_ms / 1e3,
        transaction_s=None if transaction_ms is None else transaction_ms / 1e3,
    )


def _payloads(
    record_size: int | None, file: Path | None, delimiter: str, monotonic: bool
) -> tuple[bytes, ...] | None:
    if (record_size is not None) + (file is not None) + monotonic != 1:
        raise ConfigError(
            "give exactly one of --record-size, --payload-file and --payload-monotonic"
        )
    if file is None:
        return None
    payloads = tuple(read_payloads(file, "\n" if delimiter == "\\n" else delimiter))
    if not payloads:
        raise ConfigError(f"--payload-file {file} is empty")
    stderr_console().print(f"Number of records read from {file}: {len(payloads)}")
    return payloads
