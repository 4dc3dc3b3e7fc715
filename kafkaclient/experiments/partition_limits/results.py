"""What partitions cost, as the file of their folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kafkaclient.experiments.partition_limits.published import THROUGHPUT_MBPS
from kafkaclient.experiments.record import reading_results, write_runs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["REPORT", "SUMMARY", "Cell", "Results", "Sent"]

SUMMARY = "summary.json"
REPORT = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A client's run."""

    client: str
    records: int
    records_per_s: float
    mbps: float
    """Million bits of values per second, as in KIP-578's table."""
    avg_ms: float | None
    p99_ms: float | None
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One topic, from its creation until nothing of it is left. Seconds count from the request."""

    replication: int
    partitions: int
    """On each broker, replicas included."""
    topic_partitions: int
    answered_s: float
    """Until the controller had answered."""
    led_s: float
    """Until every partition had a leader and all of its replicas were in sync."""
    directories_s: float
    """Until every broker had made a directory for each of its replicas."""
    sent: tuple[Sent, ...] = ()
    failures: tuple[str, ...] = ()
    """Of clients whose run came to nothing."""
    unknown_s: float | None = None
    """From the request to delete it until brokers did not know it any more."""
    removed_s: float | None = None
    """Until its last directory was gone."""

    @property
    def published_mbps(self) -> float | None:
        """The KIP's figure."""
        return THROUGHPUT_MBPS.get(self.replication, {}).get(self.partitions)

    def mbps(self, client: str) -> float | None:
        return next((sent.mbps for sent in self.sent if sent.client == client), None)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "published_mbps": self.published_mbps}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        known = {name: values[name] for name in cls.__dataclass_fields__}
        known["sent"] = tuple(Sent(**sent) for sent in known["sent"])
        known["failures"] = tuple(known["failures"])
        return cls(**known)


@dataclass(slots=True)
class Results:
    """All topics so far; ``complete`` when none is missing but those that were left out."""

    plan: dict[str, Any]
    machine: dict[str, Any]
    cells: list[Cell] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Topics that were not made, or came to nothing, and why."""
    complete: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether every client's run was made, and no record of ours failed."""
        return (
            self.complete
            and not any(cell.failures for cell in self.cells)
            and not any(sent.failed for cell in self.cells for sent in cell.sent)
        )

    def write(self, folder: Path) -> None:
        """Write ``summary.json``; the folder is made when it is missing."""
        write_runs(
            folder / SUMMARY,
            [cell.as_json() for cell in self.cells],
            experiment="partition-limits",
            complete=self.complete,
            plan=self.plan,
            machine=self.machine,
            left_out=self.left_out,
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What :meth:`write` wrote. Raises ConfigError when the folder holds no such results."""
        with reading_results(folder, "partition-limits", SUMMARY):
            summary = json.loads((folder / SUMMARY).read_text("utf-8"))
            return cls(
                summary["plan"],
                summary["machine"],
                [Cell.from_json(cell) for cell in summary["runs"]],
                summary["left_out"],
                summary["complete"],
            )
