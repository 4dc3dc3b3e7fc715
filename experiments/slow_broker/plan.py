"""The options of the experiment, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from experiments.clients import FRANZ, JAVA, OURS, client_config
from experiments.franz import franz_program
from experiments.options import Listed, check_positive, check_record_size, words
from experiments.slow_broker.rules import with_rule
from experiments.slow_broker.settings import (
    Setting,  # noqa: TC001 - options are made of the annotations
)
from kafkaclient.errors import ConfigError
from kafkaclient.perf.clients import make_client
from kafkaclient.perf.load import LoadSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Plan", "PlannedRun", "parse_rates", "refusal"]

_SMALLEST_RECORD = 16
_LONGEST_START_S = 5.0
_RECORDED_S = 10.0
_NOWHERE = "127.0.0.1:9"  # nothing is connected to it


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Repetition ``number`` of a setting at a rate."""

    setting: Setting
    rate: float
    number: int

    @property
    def label(self) -> str:
        return f"{self.setting.label}, {self.rate:,g}/s"


def parse_rates(text: str) -> tuple[float, ...]:
    """Rates from ``2048,4096``. Raises ConfigError."""
    try:
        rates = tuple(map(float, words(text)))
    except ValueError:
        rates = ()
    if not rates or min(rates) <= 0 or max(rates) == float("inf"):
        raise ConfigError(f"--rates: records per second, joined by commas, not {text!r}")
    return tuple(dict.fromkeys(rates))


def parse_counts(text: str) -> tuple[int, ...]:
    """Numbers of producers from ``1,30``; none for ``none``. Raises ConfigError."""
    try:
        return tuple(int(word) for word in words(text) if word != "none")
    except ValueError:
        raise ConfigError(f"--producers: numbers joined by commas, not {text!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment. Raises ConfigError for values that make no sense."""

    settings: tuple[Setting, ...]
    rates: Annotated[
        tuple[float, ...], Listed(parse_rates, "Records per second, joined by commas.", "2048,4096")
    ] = (2048.0, 4096.0)
    delay_ms: Annotated[
        float, "Delay of each Produce response of broker 0; object-store: of all brokers."
    ] = 20.0
    all_late: bool = False
    """False: broker 0 is late, and serves the requests of a connection one after the other. True:
    all brokers are late, and serve them at the same time, as if each wrote to an object store."""
    brokers: Annotated[int, "How many brokers."] = 3
    partitions: Annotated[int, "Partitions of each topic, led by the brokers in turn."] = 3
    repeat: Annotated[int, "How many times each run is made; tables show medians."] = 1
    seconds: Annotated[float, "How long each run sends records."] = 20.0
    record_size: Annotated[int, "Bytes of each record's value."] = 512
    max_message_bytes: Annotated[
        int | None, "The topics' largest batch. Default: the brokers', about 1 MB."
    ] = None
    producers: Annotated[
        tuple[int, ...],
        Listed(
            parse_counts,
            "Numbers of producers that send 20 records/s each, in virtual time, with each setting "
            "of ours; joined by commas.",
        ),
    ] = ()
    decisions: Annotated[bool, "Our settings run once more, with telemetry."] = True

    def __post_init__(self) -> None:
        check_record_size(self.record_size, _SMALLEST_RECORD)
        check_positive(
            seconds=self.seconds,
            brokers=self.brokers,
            partitions=self.partitions,
            repeat=self.repeat,
        )
        if self.max_message_bytes is not None:
            check_positive(max_message_bytes=self.max_message_bytes)
        if any(count <= 0 for count in self.producers):
            raise ConfigError("--producers: numbers from 1")
        if self.producers and (self.brokers < 3 or self.all_late):
            raise ConfigError("--producers: one late broker of 3 or more")
        if self.delay_ms < 0:
            raise ConfigError(f"--delay-ms must be 0 or more, not {self.delay_ms:g}")
        if not self.rates or min(self.rates) * self.seconds < 1:
            raise ConfigError("--rates and --seconds leave a run without a record")

    @property
    def start_s(self) -> float:
        """Seconds at the start of each run that its steady state leaves out."""
        return min(_LONGEST_START_S, self.seconds / 4)

    @property
    def recorded_s(self) -> float:
        """Seconds in which records are sent in a run with telemetry."""
        return min(_RECORDED_S, self.seconds)

    @property
    def topic_config(self) -> dict[str, str]:
        """The configuration of the topics that the experiment creates."""
        if self.max_message_bytes is None:
            return {}
        return {"max.message.bytes": str(self.max_message_bytes)}

    def spec(self, rate: float, seconds: float | None = None) -> LoadSpec:
        """The load of one run."""
        return LoadSpec(
            num_records=max(1, round(rate * (seconds or self.seconds))),
            rate=rate,
            warmup_records=0 if seconds else int(rate * self.start_s),
        )

    def runs(self, settings: tuple[Setting, ...]) -> Iterator[PlannedRun]:
        """The measured runs in order: clients alternate, and repetitions come last."""
        for number in range(1, self.repeat + 1):
            for rate in self.rates:
                for setting in settings:
                    yield PlannedRun(setting, rate, number)

    def as_json(self) -> dict[str, Any]:
        return {
            "rates": list(self.rates),
            "delay_ms": self.delay_ms,
            "all_late": self.all_late,
            "brokers": self.brokers,
            "partitions": self.partitions,
            "replication": 1,
            "repeat": self.repeat,
            "seconds": self.seconds,
            "steady_state_after_s": self.start_s,
            "record_size": self.record_size,
            "max_message_bytes": self.max_message_bytes,
            "producers": list(self.producers),
            "settings": [
                {
                    "client": setting.client,
                    "setting": setting.name,
                    "linger_ms": setting.linger_ms,
                    "options": dict(setting.options),
                }
                for setting in self.settings
            ],
        }


def refusal(setting: Setting) -> str | None:
    """Why our client refuses the setting in this build, or why Go cannot build franz-go's program;
    None if the setting can run.

    Raises ConfigError for a peer in Python that is not installed.
    """
    if setting.client == JAVA:
        return None  # comes with the brokers
    try:
        if setting.client == FRANZ:
            franz_program()
        else:
            config, _rule = with_rule(client_config(_NOWHERE, setting.options))
            make_client(setting.client, config, "none")
    except ConfigError as error:
        if setting.client not in {OURS, FRANZ}:
            raise
        return str(error)
    return None
