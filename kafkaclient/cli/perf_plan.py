"""What a ``perf-test`` will do: its options, checked before anything starts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import typer

from kafkaclient.cli.profile_file import BOOTSTRAP
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import ConfigError
from kafkaclient.perf import traffic as payload
from kafkaclient.perf.clients import KafkaclientClient, client_maker
from kafkaclient.perf.load import LoadSpec
from kafkaclient.perf.run import Labels
from kafkaclient.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kafkaclient.perf.run import ProducerPlan
    from kafkaclient.perf.traffic import KeyValue


# --- What a ``perf-test`` will do: its options, checked before anything starts --------------------

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
    client_maker(name)
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


# --- ``perf-test --flame-graph``: a flame graph of the load's process -----------------------------

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
    write_whole(path, profiler.output(renderer))
