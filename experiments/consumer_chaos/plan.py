"""What the experiment is to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from experiments.consumer_chaos.schedule import schedule
from experiments.options import check_positive
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from experiments.streams_chaos.schedule import Fault

__all__ = ["GROUP", "PROTOCOLS", "REPLICATION", "Plan"]

GROUP = "consumer-chaos"
PROTOCOLS = ("classic", "consumer")
REPLICATION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign. Raises ConfigError for values that make no sense."""

    protocol: Annotated[str, "group.protocol of the members: classic or consumer."] = "consumer"
    seconds: Annotated[float, "How long there are faults."] = 60.0
    """Records are sent all the time."""
    seed: Annotated[int, "Decides the faults: the same seed, the same faults."] = 1
    members: Annotated[int, "Members of the group, each of which is a process."] = 3
    brokers: Annotated[int, "How many brokers."] = 3
    topics: int = 2
    partitions: Annotated[int, "Partitions of each of the two topics at the start."] = 6
    rate: Annotated[float, "Records per second."] = 600.0
    member_every_s: Annotated[float, "Seconds between two faults of members, on average."] = 6.0
    broker_every_s: Annotated[
        float, "Seconds between two faults of brokers or the coordinator; 0 for no such fault."
    ] = 20.0
    topic_every_s: Annotated[
        float,
        "Seconds between two faults of topics (deleted and created again, grown); 0 for none.",
    ] = 20.0
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 1_000
    commit_interval_ms: int = 1_000
    drain_timeout_s: float = 90.0
    """How long the group may take, after the faults, to process what is left."""

    def __post_init__(self) -> None:
        check_positive(
            seconds=self.seconds,
            members=self.members,
            partitions=self.partitions,
            rate=self.rate,
            member_every=self.member_every_s,
        )
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"--protocol must be {' or '.join(PROTOCOLS)}, not {self.protocol!r}")
        if self.brokers < REPLICATION and self.broker_every_s:
            raise ConfigError(
                f"--brokers must be at least {REPLICATION}, not {self.brokers}: topics have "
                f"{REPLICATION} replicas, so that one broker may fail; or give --broker-every 0"
            )
        for name, every_s in (("broker", self.broker_every_s), ("topic", self.topic_every_s)):
            if every_s < 0:
                raise ConfigError(f"--{name}-every must be at least 0, not {every_s:g}")

    @property
    def replication(self) -> int:
        return min(REPLICATION, self.brokers)

    @property
    def topic_names(self) -> list[str]:
        return [f"chaos-{number}" for number in range(self.topics)]

    @property
    def faults(self) -> list[Fault]:
        return schedule(
            self.seed,
            self.seconds,
            members=self.members,
            brokers=self.brokers,
            topics=self.topics,
            member_every_s=self.member_every_s,
            broker_every_s=self.broker_every_s,
            topic_every_s=self.topic_every_s,
        )

    @property
    def broker_config(self) -> dict[str, object]:
        """Brokers decide the session of members with the protocol ``consumer``."""
        return {
            "group.min.session.timeout.ms": 1_000,
            "group.consumer.min.session.timeout.ms": 1_000,
            "group.consumer.session.timeout.ms": self.session_timeout_ms,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "group.consumer.heartbeat.interval.ms": self.heartbeat_interval_ms,
        }

    @property
    def member_options(self) -> dict[str, Any]:
        """A member's options, by the names of :class:`~kafkaclient.Consumer`."""
        return {
            "group_id": GROUP,
            "topics": self.topic_names,
            "group_protocol": self.protocol,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "auto_commit_interval_ms": self.commit_interval_ms,
            "metadata_max_age_ms": 5_000,
        }

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return asdict(self)
