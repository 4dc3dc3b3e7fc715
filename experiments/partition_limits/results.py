"""The results of the experiment, and their file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.experiment import BaseResults
from experiments.partition_limits.published import THROUGHPUT_MBPS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Cell", "Results", "Sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The run of a client."""

    client: str
    records: int
    records_per_s: float
    mbps: float
    """Million bits of record values per second, as in KIP-578's table."""
    avg_ms: float | None
    p99_ms: float | None
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A topic, from its creation until its files are removed. Seconds count from the request."""

    replication: int
    partitions: int
    """On each broker, replicas included."""
    topic_partitions: int
    answered_s: float
    """Until the controller answered."""
    led_s: float
    """Until every partition had a leader, and all replicas were in sync."""
    directories_s: float
    """Until every broker had a directory for each of its replicas."""
    sent: tuple[Sent, ...] = ()
    failures: tuple[str, ...] = ()
    """The errors of clients whose run failed."""
    unknown_s: float | None = None
    """From the request to delete the topic until no broker knew it."""
    removed_s: float | None = None
    """From the request to delete the topic until its last directory was removed."""

    @property
    def published_mbps(self) -> float | None:
        """The throughput in the KIP's table; None if the KIP has no such topic."""
        return THROUGHPUT_MBPS.get(self.replication, {}).get(self.partitions)

    @property
    def times(self) -> tuple[float | None, ...]:
        """The seconds of creation and deletion, in the order of the fields."""
        return (
            *(self.answered_s, self.led_s, self.directories_s),
            *(self.unknown_s, self.removed_s),
        )

    def mbps(self, client: str) -> float | None:
        return next((sent.mbps for sent in self.sent if sent.client == client), None)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "published_mbps": self.published_mbps}


@dataclass(slots=True)
class Results(BaseResults):
    """All topics so far."""

    cells: list[Cell] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Topic that failed -> its error."""

    @property
    def has_runs(self) -> bool:
        return bool(self.cells)

    @property
    def is_clean(self) -> bool:
        """Whether every client's run was made, and no record failed."""
        return (
            self.complete
            and not any(cell.failures for cell in self.cells)
            and not any(sent.failed for cell in self.cells for sent in cell.sent)
        )

    def write(self, folder: Path) -> None:
        runs = [cell.as_json() for cell in self.cells]
        self.write_summary(folder, "partition-limits", runs, left_out=self.left_out)
