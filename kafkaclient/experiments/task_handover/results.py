"""What the experiment found, as the files of its folder: whatever is drawn is drawn from these."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.experiments.record import write_runs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GAPS", "REPORT", "SUMMARY", "Results", "Run", "Skipped"]

SUMMARY = "summary.json"
GAPS = "gaps.json"
REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Run:
    """One step of one mode."""

    mode: str
    step: str
    longest_gap_s: float
    """The longest time in which any task processed nothing."""
    time_to_balance_s: float
    """Until everything is where it stays, all copies have caught up, and nothing is left to do."""
    warmup_bytes: int | None
    """Read from changelogs by copies that did not process: warm-ups and standbys. None: not
    told."""
    restored_bytes: int | None
    """Read from changelogs by tasks that waited for it."""
    counts_exact: bool
    """Whether every record that came out in this step had the number that follows the last."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A mode that was not run, or came to nothing."""

    mode: str
    reason: str


@dataclass(slots=True)
class Results:
    """All steps so far; ``complete`` when none is missing but those that were skipped."""

    plan: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    gaps: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Mode -> step -> each task's longest gap."""
    skipped: list[Skipped] = field(default_factory=list)
    complete: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether all that was planned has been done, and no count is wrong."""
        return self.complete and not self.skipped and all(run.counts_exact for run in self.runs)

    def write(self, folder: Path) -> None:
        """Write ``summary.json`` and ``gaps.json``; the folder is made when missing."""
        write_runs(
            folder / SUMMARY,
            [asdict(run) for run in self.runs],
            experiment="task-handover",
            complete=self.complete,
            plan=self.plan,
            machine=self.machine,
            skipped=[asdict(skipped) for skipped in self.skipped],
        )
        (folder / GAPS).write_text(json.dumps(self.gaps) + "\n", encoding="utf-8")
