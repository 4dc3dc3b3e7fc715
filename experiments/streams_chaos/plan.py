"""What the experiment is to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.counting.load import LoadSpec
from experiments.options import check_positive
from experiments.streams_chaos.schedule import schedule
from kafkaclient.errors import ConfigError
from kafkaclient.streams.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2

if TYPE_CHECKING:
    from experiments.streams_chaos.schedule import Fault

__all__ = ["APPLICATION", "REPLICATION", "Plan"]

APPLICATION = "streams-chaos"
REPLICATION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign. Raises ConfigError for values that make no sense."""

    seconds: Annotated[float, "How long there are faults."] = 60.0
    """Records are sent all the time."""
    seed: Annotated[int, "Decides the faults: the same seed, the same faults."] = 1
    instances: Annotated[int, "Instances, each of which is a process."] = 3
    brokers: Annotated[int, "How many brokers."] = 3
    tasks: Annotated[int, "Tasks, each with a partition."] = 6
    rate: Annotated[float, "Records per second."] = 600.0
    """Spread over all tasks."""
    keys: Annotated[int, "Different keys."] = 5_000
    value_size: int = 100
    """Bytes of each key's value in the state."""
    instance_every_s: Annotated[float, "Seconds between two faults of instances, on average."] = (
        10.0
    )
    broker_every_s: Annotated[
        float, "Seconds between two faults of brokers; 0 for no such fault."
    ] = 30.0
    num_standby_replicas: Annotated[
        int, typer.Option("--standbys", help="num.standby.replicas.")
    ] = 1
    guarantee: Annotated[str, "exactly_once_v2, or at_least_once."] = EXACTLY_ONCE_V2
    """processing.guarantee"""
    session_timeout_ms: int = 6_000
    drain_timeout_s: float = 180.0
    """How long the application may take, after the faults, to process what is left."""

    def __post_init__(self) -> None:
        check_positive(
            seconds=self.seconds,
            instances=self.instances,
            tasks=self.tasks,
            rate=self.rate,
            keys=self.keys,
            instance_every=self.instance_every_s,
        )
        if self.guarantee not in (EXACTLY_ONCE_V2, AT_LEAST_ONCE):
            raise ConfigError(
                f"--guarantee must be {EXACTLY_ONCE_V2} or {AT_LEAST_ONCE}, not {self.guarantee}"
            )
        if self.brokers < REPLICATION and self.broker_every_s:
            raise ConfigError(
                f"--brokers must be at least {REPLICATION}, not {self.brokers}: topics have "
                f"{REPLICATION} replicas, so that one broker may fail; or give --broker-every 0"
            )
        if self.broker_every_s < 0:
            raise ConfigError(f"--broker-every must be at least 0, not {self.broker_every_s:g}")

    @property
    def replication(self) -> int:
        return min(REPLICATION, self.brokers)

    @property
    def faults(self) -> list[Fault]:
        return schedule(
            self.seed,
            self.seconds,
            instances=self.instances,
            brokers=self.brokers,
            instance_every_s=self.instance_every_s,
            broker_every_s=self.broker_every_s,
        )

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

    @property
    def app_options(self) -> dict[str, Any]:
        """An instance's options, by the names of :class:`~kafkaclient.streams.StreamsConfig`."""
        return {
            "application_id": APPLICATION,
            "processing_guarantee": self.guarantee,
            "num_standby_replicas": self.num_standby_replicas,
            "session_timeout_ms": self.session_timeout_ms,
        }

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return asdict(self)
