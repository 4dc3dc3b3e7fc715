"""What an experiment will do, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError
from kafkaclient.experiments.clients import make_client
from kafkaclient.experiments.load import LoadSpec
from kafkaclient.experiments.slow_broker.settings import JAVA, OURS, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Plan", "PlannedRun", "check_extras", "parse_rates", "refusal"]

_SMALLEST_RECORD = 16
_LONGEST_START_S = 5.0
_RECORDED_S = 10.0
_NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "client.id": "kafkaclient-experiment"}


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A setting at a rate, for the ``number``-th time."""

    setting: Setting
    rate: float
    number: int

    @property
    def label(self) -> str:
        return f"{self.setting.label}, {self.rate:,g}/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The experiment. Raises ConfigError for numbers that make no sense."""

    settings: tuple[Setting, ...]
    rates: tuple[float, ...] = (2048.0, 4096.0)
    """Records per second."""
    delay_ms: float = 20.0
    """How late broker 0 answers each Produce request."""
    brokers: int = 3
    partitions: int = 3
    repeat: int = 1
    seconds: float = 20.0
    """How long records are sent in each run."""
    record_size: int = 512

    def __post_init__(self) -> None:
        if self.record_size < _SMALLEST_RECORD:
            raise ConfigError(
                f"--record-size must be at least {_SMALLEST_RECORD}, not {self.record_size}: "
                "records are numbered, to be told apart when they are read back"
            )
        for name, value in (
            ("--seconds", self.seconds),
            ("--brokers", self.brokers),
            ("--partitions", self.partitions),
            ("--repeat", self.repeat),
        ):
            if value <= 0:
                raise ConfigError(f"{name} must be more than 0, not {value:g}")
        if self.delay_ms < 0:
            raise ConfigError(f"--delay-ms must be 0 or more, not {self.delay_ms:g}")
        if not self.rates or min(self.rates) * self.seconds < 1:
            raise ConfigError("--rates and --seconds leave a run without a record")

    @property
    def start_s(self) -> float:
        """The first seconds of each run, which its steady state leaves out."""
        return min(_LONGEST_START_S, self.seconds / 4)

    @property
    def recorded_s(self) -> float:
        """How long records are sent in a run with telemetry."""
        return min(_RECORDED_S, self.seconds)

    def spec(self, rate: float, seconds: float | None = None) -> LoadSpec:
        """The load of one run."""
        return LoadSpec(
            num_records=max(1, round(rate * (seconds or self.seconds))),
            rate=rate,
            warmup_records=0 if seconds else int(rate * self.start_s),
        )

    def runs(self, settings: tuple[Setting, ...]) -> Iterator[PlannedRun]:
        """The measured runs in their order: clients alternate, and repetitions come last."""
        for number in range(1, self.repeat + 1):
            for rate in self.rates:
                for setting in settings:
                    yield PlannedRun(setting, rate, number)

    def as_json(self) -> dict[str, Any]:
        return {
            "rates": list(self.rates),
            "delay_ms": self.delay_ms,
            "brokers": self.brokers,
            "partitions": self.partitions,
            "replication": 1,
            "repeat": self.repeat,
            "seconds": self.seconds,
            "steady_state_after_s": self.start_s,
            "record_size": self.record_size,
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


def parse_rates(text: str) -> tuple[float, ...]:
    """Rates from ``2048,4096``. Raises ConfigError."""
    try:
        rates = tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        rates = ()
    if not rates or min(rates) <= 0 or max(rates) == float("inf"):
        raise ConfigError(f"--rates: records per second, joined by commas, not {text!r}")
    return tuple(dict.fromkeys(rates))


def refusal(setting: Setting) -> str | None:
    """Why this build of our client does not take the setting; None when it does.

    Raises ConfigError when a peer is not installed: it was asked for by its name.
    """
    if setting.client == JAVA:
        return None  # comes with the brokers
    try:
        make_client(setting.client, {**_NOWHERE, **setting.options}, "none")
    except ConfigError as error:
        if setting.client != OURS:
            raise
        return str(error)
    return None


def check_extras() -> None:
    """Raise ConfigError at once for a library that would be missed at the end."""
    for module, extra in (("plotly", "cli"), ("aiokafka", "testing"), ("psutil", "testing")):
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the experiment needs {module}, which is not installed: "
                f"pip install 'kafkaclient[{extra}]'"
            ) from error
