"""What the experiment is to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from experiments.counting.load import LoadSpec
from experiments.options import check_positive
from kafkaclient.errors import ConfigError

__all__ = ["APPLICATION", "Plan"]

APPLICATION = "rebalance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment. Raises ConfigError for values that make no sense."""

    topics: Annotated[int, "Topics, each with a processor and a store."] = 4
    partitions: Annotated[int, "Partitions of each topic, each of which is a task."] = 250
    instances: Annotated[int, "Instances before one more joins."] = 10
    """Each is a process."""
    keys: Annotated[int, "Keys in the state of a task."] = 500
    value_size: int = 100
    """Bytes of each key's value."""
    rate: Annotated[float, "Records per second, over all tasks."] = 100.0
    max_warmup_replicas: Annotated[
        int, "max.warmup.replicas: how many tasks may move at a time."
    ] = 100
    """More than Kafka's default of 2."""
    timeout_s: Annotated[float, "Seconds that the group may take to be balanced."] = 600.0
    seed: int = 1

    def __post_init__(self) -> None:
        check_positive(
            topics=self.topics,
            partitions=self.partitions,
            instances=self.instances,
            keys=self.keys,
            rate=self.rate,
            max_warmup_replicas=self.max_warmup_replicas,
        )
        if self.tasks <= self.instances:
            raise ConfigError(
                f"{self.topics} topics of {self.partitions} partitions make {self.tasks} tasks, "
                f"which is not enough for {self.instances + 1} instances"
            )

    @property
    def tasks(self) -> int:
        return self.topics * self.partitions

    @property
    def acceptable_recovery_lag(self) -> int:
        """Less than the state, so that the instance that joins needs warm-ups."""
        return self.keys // 10

    def load(self, topic: int) -> LoadSpec:
        """The records that are sent to a topic, from 0."""
        return LoadSpec(
            keys=self.keys * self.partitions,
            value_size=self.value_size,
            tasks=self.partitions,
            rate=self.rate / self.topics,
            seed=self.seed + topic,
        )

    @property
    def app_options(self) -> dict[str, Any]:
        """An instance's options, by the names of :class:`~kafkaclient.streams.StreamsConfig`."""
        return {
            "application_id": APPLICATION,
            "processing_guarantee": "exactly_once_v2",
            "num_standby_replicas": 0,
            "max_warmup_replicas": self.max_warmup_replicas,
            "acceptable_recovery_lag": self.acceptable_recovery_lag,
            "session_timeout_ms": 30_000,
        }

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return asdict(self) | {"tasks": self.tasks}
