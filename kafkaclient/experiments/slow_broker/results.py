"""What an experiment found, as the files of its folder: whatever is drawn is drawn from these."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kafkaclient.experiments.record import RunRecord, reading_results, write_runs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LATENCIES", "REPORT", "SUMMARY", "Latencies", "Recorded", "Results", "Skipped"]

SUMMARY = "summary.json"
LATENCIES = "latencies.json"
REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run that was not made, or came to nothing; rate and run are None when it was every one."""

    client: str
    setting: str
    reason: str
    rate: float | None = None
    run: int | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run with telemetry, made for its decisions; ``folder`` is relative to the results'."""

    record: RunRecord
    folder: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """A run's distribution: (percentile, ms), rising; few of them when little is known."""

    client: str
    setting: str
    rate: float
    run: int
    points: tuple[tuple[float, float], ...]


@dataclass(slots=True)
class Results:
    """All runs so far; ``complete`` when none is missing but those that were skipped."""

    plan: dict[str, Any]
    machine: dict[str, Any]
    runs: list[RunRecord] = field(default_factory=list)
    steady_state: list[RunRecord] = field(default_factory=list)
    """The same runs without the first seconds of each, in which a client starts."""
    recorded: list[Recorded] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    latencies: list[Latencies] = field(default_factory=list)
    complete: bool = False

    def write(self, folder: Path) -> None:
        """Write ``summary.json`` and ``latencies.json``; the folder is made when missing."""
        write_runs(
            folder / SUMMARY,
            [record.as_json() for record in self.runs],
            experiment="slow-broker",
            complete=self.complete,
            plan=self.plan,
            machine=self.machine,
            skipped=[asdict(skipped) for skipped in self.skipped],
            steady_state=[record.as_json() for record in self.steady_state],
            recorded=[
                {"telemetry": recorded.folder, **recorded.record.as_json()}
                for recorded in self.recorded
            ],
        )
        latencies = [asdict(latencies) for latencies in self.latencies]
        (folder / LATENCIES).write_text(
            json.dumps({"runs": latencies}, separators=(",", ":")) + "\n", encoding="utf-8"
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What :meth:`write` wrote. Raises ConfigError when the folder holds no such results."""
        with reading_results(folder, "slow-broker", SUMMARY, LATENCIES):
            summary = json.loads((folder / SUMMARY).read_text("utf-8"))
            latencies = json.loads((folder / LATENCIES).read_text("utf-8"))
            return cls(
                plan=summary["plan"],
                machine=summary["machine"],
                runs=[RunRecord.from_json(run) for run in summary["runs"]],
                steady_state=[RunRecord.from_json(run) for run in summary["steady_state"]],
                recorded=[
                    Recorded(RunRecord.from_json(run), run["telemetry"])
                    for run in summary["recorded"]
                ],
                skipped=[Skipped(**skipped) for skipped in summary["skipped"]],
                latencies=[
                    Latencies(**{**run, "points": tuple(map(tuple, run["points"]))})
                    for run in latencies["runs"]
                ],
                complete=summary["complete"],
            )
