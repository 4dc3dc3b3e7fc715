"""The options of the experiment, checked before anything starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

from experiments.clients import JAVA, OURS
from experiments.options import Listed, check_positive, words
from kafkaclient.errors import ConfigError

__all__ = ["Plan", "parse_counts"]

_HEAP_MB = 512
_HEAP_KB_PER_PARTITION = 100


def parse_counts(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers from ``10,100``. Raises ConfigError."""
    found = words(text)
    if not found or not all(word.isdecimal() and int(word) for word in found):
        raise ConfigError(f"{option} takes numbers from 1, joined by commas, not {text!r}")
    return tuple(dict.fromkeys(map(int, found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment. Raises ConfigError for values that make no sense."""

    partitions: Annotated[
        tuple[int, ...],
        Listed(
            partial(parse_counts, "--partitions"),
            "Partitions on each broker, replicas included, by commas.",
        ),
    ] = (10, 100, 500, 1000, 5000)
    replication: Annotated[
        tuple[int, ...],
        Listed(partial(parse_counts, "--replication"), "Replication factors, joined by commas."),
    ] = (1, 3)
    brokers: Annotated[int, "How many brokers."] = 3
    seconds: Annotated[float, "How long our producer sends to a topic."] = 8.0
    """Java's sends as many records."""
    record_size: Annotated[int, "Bytes of each record's value."] = 1024
    java: Annotated[bool, "Java's producer sends as many records, too."] = True

    def __post_init__(self) -> None:
        check_positive(
            partitions=min(self.partitions, default=0),
            replication=min(self.replication, default=0),
            seconds=self.seconds,
            record_size=self.record_size,
        )
        if max(self.replication) > self.brokers:
            raise ConfigError(
                f"--replication {max(self.replication)} needs as many brokers, and there are "
                f"{self.brokers} (--brokers)"
            )

    @property
    def heap_mb(self) -> int:
        """Heap of each broker in MB. KIP-578's brokers ran out of memory."""
        return _HEAP_MB + max(self.partitions) * _HEAP_KB_PER_PARTITION // 1024

    @property
    def clients(self) -> tuple[str, ...]:
        return (OURS, JAVA) if self.java else (OURS,)

    def topic_partitions(self, per_broker: int, replication: int) -> int:
        """The number of partitions of a topic that has ``per_broker`` replicas on each broker."""
        return max(1, per_broker * self.brokers // replication)

    def cells(self) -> list[tuple[int, int]]:
        """(replication factor, partitions on each broker), from few partitions to many."""
        return [(factor, count) for count in sorted(self.partitions) for factor in self.replication]

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "partitions": list(self.partitions),
            "replication": list(self.replication),
            "heap_mb": self.heap_mb,
        }
