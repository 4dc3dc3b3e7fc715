"""The options and the steps of the experiment, checked before anything starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - options are made of the annotations
from typing import Annotated, Any

from experiments.counting.load import LoadSpec
from experiments.options import Listed, check_positive, chosen
from kafkaclient.errors import ConfigError
from kafkaclient.streams.tasks import MAX_LAG

__all__ = [
    "KIP441",
    "MODES",
    "QUIX",
    "RESTORE_FIRST",
    "STEPS",
    "Plan",
    "Step",
    "parse_modes",
]

KIP441 = "kip441"
RESTORE_FIRST = "restore-first"
QUIX = "quixstreams"
MODES = (KIP441, RESTORE_FIRST, QUIX)


def parse_modes(text: str) -> tuple[str, ...]:
    """Modes from ``kip441,quixstreams``. Raises ConfigError."""
    return chosen("--modes", text, MODES)


class Step(StrEnum):
    """What happens, in this order; a step ends once the group is balanced again."""

    START = "start"
    """One instance starts, with nothing on its disk."""
    JOIN_2 = "join-2"
    JOIN_3 = "join-3"
    CRASH = "crash"
    """The third instance is killed."""
    RESTART = "restart"
    """The second instance is stopped, and started again at once."""


STEPS = tuple(Step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment. Raises ConfigError for values that make no sense."""

    modes: Annotated[
        tuple[str, ...],
        Listed(parse_modes, f"What to measure: {', '.join(MODES)}, joined by commas."),
    ] = (KIP441, RESTORE_FIRST)
    keys: Annotated[int, "Keys in the state when the first instance starts."] = 5_500_000
    value_size: Annotated[int, "Bytes of a key's value; with the default keys 1.1 GB of state."] = (
        200
    )
    tasks: Annotated[int, "Tasks, each with a partition."] = 6
    rate: Annotated[float, "Records per second."] = 600.0
    """Spread over all tasks."""
    cpu_ms: Annotated[float, "CPU time in ms that a record takes; give a lower rate with it."] = 0.0
    """A processor uses it without giving way to others."""
    brokers: Annotated[int, "How many brokers."] = 1
    settle_s: Annotated[float, "Seconds that a step lasts after the group is balanced."] = 3.0
    step_timeout_s: float = 300.0
    acceptable_recovery_lag: Annotated[
        int, "acceptable.recovery.lag; give less for a small state."
    ] = 1_000
    """Less than Kafka's default of 10,000: a task stands still while it restores that many records,
    which alone takes a second on two busy cores."""
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 1
    probing_rebalance_interval_ms: int = 600_000
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 300
    peer_python: Annotated[
        Path | None, "Python of an environment with quixstreams; default: this Python."
    ] = None
    seed: int = 1

    def __post_init__(self) -> None:
        check_positive(
            keys=self.keys,
            value_size=self.value_size,
            tasks=self.tasks,
            rate=self.rate,
            brokers=self.brokers,
        )
        busy = self.rate * self.cpu_ms / 1000
        if not 0 <= busy < 1:
            raise ConfigError(
                f"--rate {self.rate:g} and --cpu-ms {self.cpu_ms:g} need {busy:g} CPUs of the one "
                "instance that is there at the start; their product must be less than 1000"
            )
        if self.tasks < 3:
            raise ConfigError(
                f"--tasks must be at least 3, not {self.tasks}: there are three instances"
            )

    @property
    def crash_target_s(self) -> float:
        """Seconds a crash may cost: until it is detected and each member knows it, and 1 s more."""
        return (self.session_timeout_ms + self.heartbeat_interval_ms) / 1000 + 1.0

    @property
    def load(self) -> LoadSpec:
        """The records that are sent."""
        return LoadSpec(
            keys=self.keys,
            value_size=self.value_size,
            tasks=self.tasks,
            rate=self.rate,
            seed=self.seed,
        )

    def app_options(self, mode: str) -> dict[str, Any]:
        """An instance's options, by the names of :class:`~kafkaclient.streams.StreamsConfig`."""
        return {
            "processing_guarantee": "exactly_once_v2",
            # Without KIP-441 every instance counts as caught up: tasks are assigned at once.
            "acceptable_recovery_lag": MAX_LAG
            if mode == RESTORE_FIRST
            else self.acceptable_recovery_lag,
            "max_warmup_replicas": self.max_warmup_replicas,
            "num_standby_replicas": self.num_standby_replicas,
            "probing_rebalance_interval_ms": self.probing_rebalance_interval_ms,
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
        }

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        values = asdict(self)
        values["peer_python"] = None if self.peer_python is None else self.peer_python.name
        return values | {"modes": list(self.modes), "crash_target_s": self.crash_target_s}
