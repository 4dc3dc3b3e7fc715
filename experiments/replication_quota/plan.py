"""The scenarios of KIP-73's test plan, and the options of the experiment."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - options are made of the annotations
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.options import Listed, check_positive, chosen
from kafkaclient.errors import ConfigError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SCENARIOS", "Plan", "Scenario", "parse_scenarios"]

TOPIC = "moves"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The replicas before and after a move; the partitions of a topic take them in turn."""

    name: str
    brokers: int
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]

    def replicas(self, partitions: int) -> list[tuple[int, ...]]:
        """The replicas of each partition before the move."""
        return list(islice(cycle(self.before), partitions))

    def moves(self, partitions: int) -> dict[TopicPartition, tuple[int, ...]]:
        return _plan(islice(cycle(self.after), partitions))

    def way_back(self, partitions: int) -> dict[TopicPartition, tuple[int, ...]]:
        return _plan(self.replicas(partitions))


def _plan(replicas: Iterable[tuple[int, ...]]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(TOPIC, p): nodes for p, nodes in enumerate(replicas)}


SCENARIOS = {
    scenario.name.replace(" ", "-"): scenario
    for scenario in (
        # One replica: two replicas on two brokers leave no broker to move to.
        Scenario("one to one", 2, ((0,),), ((1,),)),
        Scenario("one to two", 3, ((0, 1), (0, 2)), ((1, 2), (2, 1))),
        Scenario("two to one", 3, ((1, 2), (2, 1)), ((1, 0), (2, 0))),
    )
}
"""In each scenario one broker sends or takes all bytes that move, so its quota is the rate."""


def parse_scenarios(text: str) -> tuple[Scenario, ...]:
    """Scenarios from ``one-to-two,two-to-one``, or ``all``. Raises ConfigError."""
    if text.strip() == "all":
        return tuple(SCENARIOS.values())
    return tuple(SCENARIOS[name] for name in chosen("--scenarios", text, tuple(SCENARIOS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment. Raises ConfigError for values that make no sense."""

    scenarios: Annotated[
        tuple[Scenario, ...],
        Listed(
            parse_scenarios, f"all, or some of {', '.join(SCENARIOS)}, joined by commas.", "all"
        ),
    ] = tuple(SCENARIOS.values())
    quota: Annotated[int, "Bytes per second."] = 10_000_000
    seconds: Annotated[float, "How long a move takes at its quota; decides the bytes to move."] = (
        40.0
    )
    partitions: Annotated[int, "Partitions that move."] = 100
    load: Annotated[float, "Records per second in the runs with load; 0: no runs with load."] = (
        2_000.0
    )
    record_size: Annotated[int, "Bytes of each record of the load."] = 1_000
    quiet_s: Annotated[
        float,
        typer.Option("--quiet-seconds", help="How long latency is measured without a move."),
    ] = 15.0
    broker_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the brokers by Kafka's names."""

    def __post_init__(self) -> None:
        check_positive(
            quota=self.quota,
            seconds=self.seconds,
            partitions=self.partitions,
            record_size=self.record_size,
            quiet_seconds=self.quiet_s,
        )
        if self.load < 0:
            raise ConfigError(f"--load must be 0 or more, not {self.load:g}")
        if self.load_bytes * 2 > self.quota:
            raise ConfigError(
                f"--load and --record-size make {self.load_bytes:,.0f} B/s, more than half of the "
                f"quota of {self.quota:,} B/s, which also carries the moves: ask for less load"
            )

    @property
    def load_bytes(self) -> float:
        """Bytes per second of the load's record values."""
        return self.load * self.record_size

    @property
    def bytes_to_move(self) -> int:
        return int(self.quota * self.seconds)

    def runs(self) -> list[tuple[Scenario, float]]:
        """(scenario, records per second): each without load and with load, by number of brokers."""
        loads = (0.0, self.load) if self.load else (0.0,)
        ordered = sorted(self.scenarios, key=lambda scenario: scenario.brokers)
        return [(scenario, load) for scenario in ordered for load in loads]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "scenarios": [scenario.name for scenario in self.scenarios]}
