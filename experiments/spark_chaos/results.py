"""The results of the runs, and their file."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from experiments.experiment import BaseResults

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.spark_chaos.combinations import Combination
    from experiments.spark_chaos.strikes import Struck

__all__ = ["Results", "Run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What became of the rows of one combination."""

    number: int
    combination: Combination
    seconds: float
    """How long there were faults."""
    rows: int
    """Rows that were sent and acknowledged."""
    missing: int
    repeated: int
    """Copies beyond the first. Only exactly once promises that there are none."""
    reordered: int
    """Rows that come, for the first time, behind a later row of their key in their partition."""
    unexpected: int
    left_open: int
    """Transactions of the query that were open at the end."""
    batches: int
    driver_starts: int
    drained_s: float
    """From the end of the faults until every row was copied."""
    examples: tuple[str, ...]
    """The first wrong rows, in words."""
    ended: tuple[str, ...]
    """The last words of drivers that ended by themselves; each was started again."""
    struck: tuple[Struck, ...]

    @property
    def wrong(self) -> int:
        """Rows and transactions that break the guarantee."""
        repeated = self.repeated if self.combination.exactly_once else 0
        return self.missing + self.reordered + self.unexpected + self.left_open + repeated

    @property
    def kinds(self) -> Counter[str]:
        """How many faults of each kind happened."""
        return Counter(each.fault.kind.value for each in self.struck)


@dataclass(slots=True)
class Results(BaseResults):
    """All runs so far."""

    runs: list[Run] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Combinations whose run failed: combination -> why."""

    @property
    def has_runs(self) -> bool:
        return bool(self.runs or self.failed)

    @property
    def is_clean(self) -> bool:
        """Whether every run was made, and no row is wrong."""
        return self.complete and not self.failed and not any(run.wrong for run in self.runs)

    def write(self, folder: Path) -> None:
        runs = []
        for run in self.runs:
            values = asdict(run) | {"wrong": run.wrong}
            values["struck"] = [each.as_json() for each in run.struck]
            runs.append(values)
        self.write_summary(folder, "spark-chaos", runs, failed=self.failed)
