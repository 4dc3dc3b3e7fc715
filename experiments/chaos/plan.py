"""The options of a campaign, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from experiments.chaos.schedule import outage, schedule
from experiments.chaos.streams import KINDS, SMALLEST_RECORD
from experiments.clients import JAVA, OURS
from experiments.options import Listed, check_positive, check_record_size, chosen, parse_peers
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from experiments.chaos.schedule import Fault

__all__ = ["APIS", "PEERS", "REPLICATION", "Plan", "parse_kinds"]

APIS = ("kafkaclient", "aiokafka")
PEERS = ("aiokafka", "confluent", JAVA)

REPLICATION = 3
_PARTITIONS_PER_BROKER = 2
_MOST_STREAMS = 1 << 16
_SHORTEST_S = 6  # of a Kerberos ticket


def parse_kinds(text: str) -> tuple[str, ...]:
    """Kinds of records from ``unkeyed,keyed``. Raises ConfigError."""
    return chosen("--kinds", text, KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign. Raises ConfigError for values that contradict one another or make no sense."""

    seconds: Annotated[float, "How long records are sent under faults."] = 60.0
    seed: Annotated[int, "Decides the faults: the same seed, the same faults."] = 1
    brokers: Annotated[int, "How many brokers, 3 or 5."] = 3
    peers: Annotated[
        tuple[str, ...],
        Listed(
            partial(parse_peers, known=PEERS),
            f"Clients beside ours: {', '.join(PEERS)}, joined by commas.",
        ),
    ] = ()
    api: Annotated[str, f"The API of our producer: {' or '.join(APIS)} (the drop-in)."] = (
        "kafkaclient"
    )
    rate: Annotated[float, "Records per second of each client."] = 5_000.0
    kinds: Annotated[
        tuple[str, ...], Listed(parse_kinds, "Kinds of records, joined by commas.")
    ] = KINDS
    producers: Annotated[int, "Producers of each client."] = 4
    keys: int = 32
    """Keys of each producer."""
    record_size: Annotated[int, "Bytes of each record's value."] = 100
    outage: Annotated[
        float, "Instead of the schedule: kill all brokers, start them OUTAGE s later."
    ] = 0.0
    kerberos: Annotated[
        float, "Log in with Kerberos, over TLS, with tickets of KERBEROS s. 0: plain connections."
    ] = 0.0

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise ConfigError(f"--api must be one of {', '.join(APIS)}, not {self.api}")
        if self.brokers < REPLICATION:
            raise ConfigError(
                f"--brokers must be at least {REPLICATION}, not {self.brokers}: the topics have "
                f"{REPLICATION} replicas"
            )
        check_positive(
            seconds=self.seconds, rate=self.rate, producers=self.producers, keys=self.keys
        )
        if self.producers * (1 + self.keys + self.partitions) > _MOST_STREAMS:
            raise ConfigError("--producers and --keys make too many streams to number")
        check_record_size(self.record_size, SMALLEST_RECORD)
        if not 0 <= self.outage < self.seconds:
            raise ConfigError(
                f"--outage must be 0 or more and less than --seconds, not {self.outage:g}"
            )
        if self.kerberos != 0 and not self.kerberos >= _SHORTEST_S:
            raise ConfigError(
                f"--kerberos must be 0 or at least {_SHORTEST_S}, not {self.kerberos:g}"
            )
        if self.kerberos and (self.peers or self.api != "kafkaclient"):
            raise ConfigError("--kerberos goes with neither --peers nor --api aiokafka")
        if JAVA in self.peers and "unkeyed" not in self.kinds:
            raise ConfigError("--peers java needs unkeyed records: its tool sends no others")

    @property
    def partitions(self) -> int:
        """Partitions of each topic at the start."""
        return _PARTITIONS_PER_BROKER * self.brokers

    @property
    def clients(self) -> tuple[str, ...]:
        return (OURS, *self.peers)

    @property
    def faults(self) -> list[Fault]:
        if self.outage:
            return outage(self.seconds, self.outage)
        return schedule(self.seed, self.seconds, self.brokers, encrypted=self.kerberos > 0)

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
            "replication": REPLICATION,
            "rate": self.rate,
            "peers": list(self.peers),
            "api": self.api,
            "producers": self.producers,
            "keys": self.keys,
            "kinds": list(self.kinds),
            "record_size": self.record_size,
            "outage": self.outage,
            "kerberos": self.kerberos,
        }
