"""The scenarios of KIP-73's test plan, and how large they are made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SCENARIOS", "Plan", "Scenario", "parse_scenarios", "parse_settings"]

TOPIC = "moves"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Where replicas are and where they go; partitions take the patterns in turn."""

    name: str
    brokers: int
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]

    def replicas(self, partitions: int) -> list[tuple[int, ...]]:
        """Those of each partition before the move."""
        return list(islice(cycle(self.before), partitions))

    def moves(self, partitions: int) -> dict[TopicPartition, tuple[int, ...]]:
        return _plan(islice(cycle(self.after), partitions))

    def way_back(self, partitions: int) -> dict[TopicPartition, tuple[int, ...]]:
        return _plan(self.replicas(partitions))


def _plan(replicas: Iterable[tuple[int, ...]]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(TOPIC, p): nodes for p, nodes in enumerate(replicas)}


SCENARIOS = (
    # One replica: with two of them on two brokers there is nothing that could move.
    Scenario("one to one", 2, ((0,),), ((1,),)),
    Scenario("one to two", 3, ((0, 1), (0, 2)), ((1, 2), (2, 1))),
    Scenario("two to one", 3, ((1, 2), (2, 1)), ((1, 0), (2, 0))),
)
"""In each of them one broker sends, or takes, all that moves: its quota is the scenario's rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The experiment. Raises ConfigError for numbers that make no sense."""

    scenarios: tuple[Scenario, ...] = SCENARIOS
    quota: int = 10_000_000
    """Bytes per second."""
    seconds: float = 40.0
    """How long the quota lets each move take without load: what there is to move."""
    partitions: int = 100
    load: float = 2_000.0
    """Records per second of the clients in the runs with load; 0 leaves these out."""
    record_size: int = 1_000
    quiet_s: float = 15.0
    """How long latency is measured without a move."""
    broker_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the brokers, by Kafka's names."""

    def __post_init__(self) -> None:
        for name, value in (
            ("--quota", self.quota),
            ("--seconds", self.seconds),
            ("--partitions", self.partitions),
            ("--record-size", self.record_size),
            ("--quiet-seconds", self.quiet_s),
        ):
            if value <= 0:
                raise ConfigError(f"{name} must be more than 0, not {value:g}")
        if self.load < 0:
            raise ConfigError(f"--load must be 0 or more, not {self.load:g}")
        if self.load_bytes * 2 > self.quota:
            raise ConfigError(
                f"--load and --record-size make {self.load_bytes:,.0f} B/s, more than half of the "
                f"quota of {self.quota:,} B/s, which has to carry them besides the moves: less load"
            )

    @property
    def load_bytes(self) -> float:
        """Bytes per second of records' values."""
        return self.load * self.record_size

    @property
    def bytes_to_move(self) -> int:
        return int(self.quota * self.seconds)

    def runs(self) -> list[tuple[Scenario, float]]:
        """Each scenario without and with load (records per second), by number of brokers."""
        loads = (0.0, self.load) if self.load else (0.0,)
        ordered = sorted(self.scenarios, key=lambda scenario: scenario.brokers)
        return [(scenario, load) for scenario in ordered for load in loads]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "scenarios": [scenario.name for scenario in self.scenarios]}


def parse_scenarios(text: str) -> tuple[Scenario, ...]:
    """Scenarios from ``one-to-two,two-to-one``, or ``all``. Raises ConfigError."""
    if text.strip() == "all":
        return SCENARIOS
    known = {scenario.name.replace(" ", "-"): scenario for scenario in SCENARIOS}
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not known.keys() >= set(words):
        raise ConfigError(f"--scenarios: all, or of {', '.join(known)} by commas, not {text!r}")
    return tuple(known[word] for word in dict.fromkeys(words))


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """Settings from ``name=value`` each. Raises ConfigError."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--broker-config: give NAME=VALUE, not {each!r}")
        found[name.strip()] = value.strip()
    return found
