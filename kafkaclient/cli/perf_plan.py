"""What a ``perf-test`` will do: its options, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import typer

from kafkaclient.cli.properties import BOOTSTRAP, SERIALIZERS, pairs, read_properties
from kafkaclient.errors import ConfigError
from kafkaclient.perf.load import LoadSpec
from kafkaclient.perf.payload import (
    file_payloads,
    monotonic_payloads,
    random_payloads,
    read_payloads,
)
from kafkaclient.perf.run import Labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kafkaclient.perf.payload import KeyValue

__all__ = [
    "DEFAULT_TRANSACTION_MS",
    "ID_PREFIX",
    "PerfTestPlan",
    "client_config",
    "either",
    "load_spec",
    "payloads",
    "transaction_length",
]

T = TypeVar("T")

_CLIENT_ID = "perf-producer-client"
_DEFAULT_LINGER_MS = 5.0
ID_PREFIX = "performance-producer-"
"""What a transactional id begins with if none is given."""
DEFAULT_TRANSACTION_MS = 3000
# The setting is shown and written to files, so it must not contain credentials.
_MAYBE_SECRET = ("sasl.", "sasl_", "ssl.", "ssl_")
_NOT_IN_SETTING = frozenset({BOOTSTRAP, "client.id", "linger.ms", "telemetry", "transactional.id"})


@dataclass(frozen=True, slots=True)
class PerfTestPlan:
    """A checked command line."""

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
            name: value
            for name, value in self.config.items()
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
        """The records of the load, the same in every run."""
        if self.payloads is not None:
            return file_payloads(self.payloads)
        if self.record_size is not None:
            return random_payloads(self.record_size)
        return monotonic_payloads()


def client_config(
    bootstrap: str | None, words: list[str] | None, file: Path | None
) -> dict[str, str]:
    """The client's options: ``bootstrap`` overrides ``words``, and they override ``file``."""
    config = {"client.id": _CLIENT_ID}
    if file is not None:
        config |= read_properties(file)
    config |= pairs(words, "--command-property")
    if bootstrap is not None:
        config[BOOTSTRAP] = bootstrap
    if BOOTSTRAP not in config:
        raise ConfigError(
            "no brokers to connect to: give --bootstrap-server host:port, or bootstrap.servers "
            "by --command-property or --command-config"
        )
    return {name: value for name, value in config.items() if name not in SERIALIZERS}


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


def load_spec(
    num_records: int, throughput: float, warmup: int, interval_ms: int, transaction_ms: int | None
) -> LoadSpec:
    """The load. Raises ConfigError for numbers that leave nothing to send or to measure."""
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


def payloads(
    record_size: int | None, file: Path | None, delimiter: str, monotonic: bool
) -> tuple[bytes, ...] | None:
    """The payloads in the file; None without one. Raises ConfigError unless one source is given."""
    if (record_size is not None) + (file is not None) + monotonic != 1:
        raise ConfigError(
            "give exactly one of --record-size, --payload-file and --payload-monotonic"
        )
    if file is None:
        return None
    found = tuple(read_payloads(file, "\n" if delimiter == "\\n" else delimiter))
    if not found:
        raise ConfigError(f"--payload-file {file} is empty")
    typer.echo(f"Number of records read from {file}: {len(found)}", err=True)
    return found
