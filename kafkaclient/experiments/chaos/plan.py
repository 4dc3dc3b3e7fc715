"""What a campaign will do, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError
from kafkaclient.experiments.chaos.schedule import outage, schedule
from kafkaclient.experiments.chaos.streams import KINDS, SMALLEST_RECORD

if TYPE_CHECKING:
    from kafkaclient.experiments.chaos.schedule import Fault

__all__ = ["JAVA", "OURS", "PEERS", "Plan", "parse_kinds", "parse_peers"]

OURS, JAVA = "kafkaclient", "java"
PEERS = ("aiokafka", "confluent", JAVA)

_REPLICATION = 3
_PARTITIONS_PER_BROKER = 2
_MOST_STREAMS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The campaign. Raises ConfigError for numbers that make no sense."""

    seconds: float
    """How long records are sent; the faults come in this time."""
    seed: int
    brokers: int = 3
    rate: float = 5_000.0
    """Records per second of each client."""
    peers: tuple[str, ...] = ()
    producers: int = 4
    """Of each client."""
    keys: int = 32
    """Of each producer."""
    kinds: tuple[str, ...] = KINDS
    record_size: int = 100
    outage: float = 0.0
    """Instead of the schedule: all brokers away for so many seconds. 0: the schedule."""

    def __post_init__(self) -> None:
        if self.brokers < _REPLICATION:
            raise ConfigError(
                f"--brokers must be at least {_REPLICATION}, not {self.brokers}: the topics have "
                f"{_REPLICATION} replicas"
            )
        for name, value in (
            ("--seconds", self.seconds),
            ("--rate", self.rate),
            ("--producers", self.producers),
            ("--keys", self.keys),
        ):
            if value <= 0:
                raise ConfigError(f"{name} must be more than 0, not {value:g}")
        if self.producers * (1 + self.keys + self.partitions) > _MOST_STREAMS:
            raise ConfigError("--producers and --keys make too many streams to number")
        if self.record_size < SMALLEST_RECORD:
            raise ConfigError(
                f"--record-size must be at least {SMALLEST_RECORD}, not {self.record_size}: "
                "records are numbered, to be told apart when they are read back"
            )
        if not 0 <= self.outage < self.seconds:
            raise ConfigError(
                f"--outage must be 0 or more and less than --seconds, not {self.outage:g}"
            )
        if JAVA in self.peers and "unkeyed" not in self.kinds:
            raise ConfigError("--peers java needs unkeyed records: its tool sends no others")

    @property
    def partitions(self) -> int:
        """Of each topic at the start."""
        return _PARTITIONS_PER_BROKER * self.brokers

    @property
    def clients(self) -> tuple[str, ...]:
        return (OURS, *self.peers)

    @property
    def faults(self) -> list[Fault]:
        if self.outage:
            return outage(self.seconds, self.outage)
        return schedule(self.seed, self.seconds, self.brokers)

    def topic(self, client: str, kind: str) -> str:
        return f"chaos-{client}-{kind}"

    def topics(self, client: str) -> dict[str, str]:
        """Kind of record -> the client's topic."""
        kinds = ("unkeyed",) if client == JAVA else self.kinds
        return {kind: self.topic(client, kind) for kind in kinds}

    def as_json(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "seed": self.seed,
            "brokers": self.brokers,
            "partitions": self.partitions,
            "replication": _REPLICATION,
            "rate": self.rate,
            "peers": list(self.peers),
            "producers": self.producers,
            "keys": self.keys,
            "kinds": list(self.kinds),
            "record_size": self.record_size,
            "outage": self.outage,
        }


def parse_peers(text: str) -> tuple[str, ...]:
    """Peers from ``aiokafka,java``; none from an empty text or ``none``. Raises ConfigError."""
    return () if text.strip() in ("", "none") else _chosen("--peers", text, PEERS)


def parse_kinds(text: str) -> tuple[str, ...]:
    """Kinds of records from ``unkeyed,keyed``. Raises ConfigError."""
    return _chosen("--kinds", text, KINDS)


def _chosen(option: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if word not in known]
    if wrong or not words:
        raise ConfigError(f"{option}: {', '.join(known)}, joined by commas, not {text!r}")
    return tuple(dict.fromkeys(words))
