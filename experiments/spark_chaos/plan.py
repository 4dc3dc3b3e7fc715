"""What the experiment is to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from experiments.options import check_positive
from experiments.spark_chaos.combinations import SETTINGS, Combination, pairwise
from experiments.spark_chaos.schedule import schedule
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from experiments.spark_chaos.schedule import Fault

__all__ = ["BROKERS", "Plan"]

BROKERS = 3
"""Topics have as many replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign. Raises ConfigError for values that make no sense."""

    seconds: Annotated[float, "How long there are faults in each run."] = 600.0
    seed: Annotated[int, "Decides the faults: the same seed, the same faults."] = 1
    first: Annotated[int, "The first combination to run, from 1."] = 1
    runs: Annotated[int, "How many combinations to run; 0 for all that are left."] = 0
    rate: Annotated[float, "Rows per second."] = 200.0
    keys: Annotated[int, "Different keys."] = 40
    partitions: Annotated[int, "Partitions of each topic at the start."] = 4
    every_s: Annotated[
        float, "Seconds between two faults of Spark, of brokers and of topics, on average."
    ] = 20.0
    max_offsets: Annotated[int, "maxOffsetsPerTrigger of the query."] = 5_000
    start_timeout_s: float = 600.0
    """How long the query may take to its first batch."""
    drain_timeout_s: float = 900.0
    """How long the query may take, after the faults, to copy what is left."""

    def __post_init__(self) -> None:
        check_positive(
            seconds=self.seconds,
            rate=self.rate,
            keys=self.keys,
            partitions=self.partitions,
            every=self.every_s,
            max_offsets=self.max_offsets,
        )
        if not 1 <= self.first <= len(self.cover) or self.runs < 0:
            raise ConfigError(
                f"there are the combinations 1 to {len(self.cover)}; not {self.runs} of them from "
                f"--first {self.first} on"
            )

    @property
    def cover(self) -> list[Combination]:
        """Combinations in which every two settings meet."""
        return [Combination(**each) for each in pairwise(SETTINGS)]

    @property
    def chosen(self) -> list[tuple[int, Combination]]:
        """The combinations to run, each with its number from 1."""
        numbered = list(enumerate(self.cover, 1))[self.first - 1 :]
        return numbered[: self.runs] if self.runs else numbered

    def faults(self, number: int, combination: Combination) -> list[Fault]:
        """The faults of a run, by the number of its combination."""
        return schedule(
            f"{self.seed}-{number}",
            self.seconds,
            brokers=BROKERS,
            every_s=self.every_s,
            transactional=combination.exactly_once,
        )

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return asdict(self)
