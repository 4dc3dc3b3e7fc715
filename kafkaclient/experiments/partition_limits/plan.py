"""How many partitions, and what is done with them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kafkaclient.errors import ConfigError

__all__ = ["JAVA", "OURS", "Plan", "parse_counts"]

OURS, JAVA = "kafkaclient", "java"

_HEAP_MB = 512
_HEAP_KB_PER_PARTITION = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The experiment. Raises ConfigError for numbers that make no sense."""

    partitions: tuple[int, ...] = (10, 100, 500, 1000, 5000)
    """On each broker, their replicas included."""
    replication: tuple[int, ...] = (1, 3)
    brokers: int = 3
    seconds: float = 8.0
    """How long our producer sends; Java's sends as many records."""
    record_size: int = 1024
    java: bool = True

    def __post_init__(self) -> None:
        for name, value in (
            ("--partitions", min(self.partitions, default=0)),
            ("--replication", min(self.replication, default=0)),
            ("--seconds", self.seconds),
            ("--record-size", self.record_size),
        ):
            if value <= 0:
                raise ConfigError(f"{name} must be more than 0, not {value:g}")
        if max(self.replication) > self.brokers:
            raise ConfigError(
                f"--replication {max(self.replication)} needs as many brokers, and there are "
                f"{self.brokers} (--brokers)"
            )

    @property
    def heap_mb(self) -> int:
        """Of each broker: KIP-578's ran out of theirs."""
        return _HEAP_MB + max(self.partitions) * _HEAP_KB_PER_PARTITION // 1024

    @property
    def clients(self) -> tuple[str, ...]:
        return (OURS, JAVA) if self.java else (OURS,)

    def topic_partitions(self, per_broker: int, replication: int) -> int:
        """How many partitions of a topic come to so many replicas on each broker."""
        return max(1, per_broker * self.brokers // replication)

    def cells(self) -> list[tuple[int, int]]:
        """(replication factor, partitions on each broker), the fewest first."""
        return [(factor, count) for count in sorted(self.partitions) for factor in self.replication]

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "partitions": list(self.partitions),
            "replication": list(self.replication),
            "heap_mb": self.heap_mb,
        }


def parse_counts(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers from ``10,100``. Raises ConfigError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise ConfigError(f"{option}: numbers from 1 on, joined by commas, not {text!r}")
    return tuple(dict.fromkeys(map(int, words)))
