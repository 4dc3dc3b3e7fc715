"""The results of the experiment, and their files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from experiments.experiment import BaseResults
from kafkaclient.pages import number

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GAPS", "Results", "Run", "Skipped"]

GAPS = "gaps.json"


@dataclass(frozen=True, slots=True)
class Run:
    """A step of a mode."""

    mode: str
    step: str
    longest_gap_s: float
    """The longest time in which a task processed nothing."""
    longest_gap_staying_s: float | None
    """The same of the tasks that one instance ran before and after; None: not known, or none."""
    time_to_balance_s: float
    """Until tasks move no more, all copies have caught up, and no record waits."""
    warmup_bytes: int | None
    """Bytes that warm-ups and standbys read from changelogs; None: not known."""
    restored_bytes: int | None
    """Bytes that tasks read from changelogs before they processed; None: not known."""
    rebalances: int
    """Generations of the group."""
    evictions: int
    """Members that the coordinator removed, other than those that were killed."""
    counts_exact: bool
    """Whether each number that came out in this step follows the last number of its key."""

    def figures(self) -> tuple[str, ...]:
        """The seconds, the MB and the numbers of the step, for a table."""
        megabytes = (
            None if size is None else size / 1e6
            for size in (self.warmup_bytes, self.restored_bytes)
        )
        return (
            f"{self.longest_gap_s:.2f}",
            number(self.longest_gap_staying_s, 2),
            f"{self.time_to_balance_s:.1f}",
            *(number(size, 0) for size in megabytes),
            f"{self.rebalances}",
            f"{self.evictions}",
        )


@dataclass(frozen=True, slots=True)
class Skipped:
    """A mode that failed."""

    mode: str
    reason: str


@dataclass(slots=True)
class Results(BaseResults):
    """All steps so far."""

    runs: list[Run] = field(default_factory=list)
    gaps: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Mode -> step -> the longest gap of each task."""
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def has_runs(self) -> bool:
        return bool(self.runs)

    @property
    def is_clean(self) -> bool:
        """Whether every planned mode was run, and no count is wrong."""
        return self.complete and not self.skipped and all(run.counts_exact for run in self.runs)

    def write(self, folder: Path) -> None:
        self.write_summary(
            folder,
            "task-handover",
            [asdict(run) for run in self.runs],
            skipped=[asdict(skipped) for skipped in self.skipped],
        )
        (folder / GAPS).write_text(json.dumps(self.gaps) + "\n", encoding="utf-8")
