"""What the experiment will do, checked before anything is started."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError
from kafkaclient.streams.tasks import MAX_LAG

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "KIP441",
    "MODES",
    "QUIX",
    "RESTORE_FIRST",
    "STEPS",
    "Plan",
    "Step",
    "check_streams",
    "parse_modes",
]

KIP441 = "kip441"
RESTORE_FIRST = "restore-first"
QUIX = "quixstreams"
MODES = (KIP441, RESTORE_FIRST, QUIX)


class Step(StrEnum):
    """What is done, in this order; each step ends when all is balanced again."""

    START = "start"
    """One instance, with nothing on its disk."""
    JOIN_2 = "join-2"
    JOIN_3 = "join-3"
    CRASH = "crash"
    """The third is killed."""
    RESTART = "restart"
    """The second is ended in good order, and started again at once."""


STEPS = tuple(Step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The experiment. Raises ConfigError for numbers that make no sense."""

    modes: tuple[str, ...] = (KIP441, RESTORE_FIRST)
    keys: int = 5_500_000
    """Each has a value in the state before the first instance starts."""
    value_size: int = 200
    """Bytes of each key's value in the state."""
    tasks: int = 6
    rate: float = 600.0
    """Records per second, spread over all tasks."""
    brokers: int = 1
    settle_s: float = 3.0
    """How long each step goes on after all is balanced."""
    step_timeout_s: float = 300.0
    acceptable_recovery_lag: int = 1_000
    """Less than Kafka's default of 10,000: so many records are restored while a task stands still,
    which on two busy cores is a second by itself."""
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 1
    probing_rebalance_interval_ms: int = 600_000
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 300
    peer_python: Path | None = None
    """The interpreter of an environment with the peers; None: this one."""
    seed: int = 1

    def __post_init__(self) -> None:
        for name, value in (
            ("--keys", self.keys),
            ("--value-size", self.value_size),
            ("--tasks", self.tasks),
            ("--rate", self.rate),
            ("--brokers", self.brokers),
        ):
            if value <= 0:
                raise ConfigError(f"{name} must be more than 0, not {value:g}")
        if self.tasks < 3:
            raise ConfigError(
                f"--tasks must be at least 3, not {self.tasks}: there are three instances"
            )

    @property
    def crash_target_s(self) -> float:
        """What a crash may cost: until it is found out, everybody has heard of it, and a second."""
        return (self.session_timeout_ms + self.heartbeat_interval_ms) / 1000 + 1.0

    def app_options(self, mode: str) -> dict[str, Any]:
        """An instance's options: those of :class:`~kafkaclient.streams.StreamsConfig`."""
        return {
            "processing_guarantee": "exactly_once_v2",
            # Without KIP-441 everybody counts as caught up: tasks are assigned at once.
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
        """As plain JSON values."""
        values = asdict(self)
        values["peer_python"] = None if self.peer_python is None else self.peer_python.name
        return values | {"modes": list(self.modes), "crash_target_s": self.crash_target_s}


def check_streams() -> None:
    """Raise ConfigError at once when the runtime's libraries are missing."""
    for module in ("aiokafka", "rocksdict"):
        if find_spec(module) is None:
            raise ConfigError(
                f"the experiment's instances need {module}, which is not installed: "
                "pip install 'kafkaclient[streams]'"
            )


def parse_modes(text: str) -> tuple[str, ...]:
    """``--modes``. Raises ConfigError for one that is not known."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in MODES]
    if unknown or not names:
        raise ConfigError(f"--modes takes {', '.join(MODES)}, joined by commas, not {text!r}")
    return names
