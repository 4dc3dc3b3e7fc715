"""The results of the campaign, and their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from experiments.experiment import BaseResults

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.streams_chaos.gaps import KindGaps
    from experiments.streams_chaos.strikes import Struck

__all__ = ["Campaign", "Results"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What became of the records."""

    records: int
    """Records that were sent and acknowledged."""
    wrong: int
    """Counts that were left out or missing at the end; exactly once, also repeated ones."""
    repeated: int
    """Counts that were written beyond one for each record."""
    examples: tuple[str, ...]
    """The first wrong counts, in words."""
    rebalances: int
    """Generations of the group."""
    evictions: int
    """Members that the coordinator removed."""
    longest_gap_s: float
    """The longest time in which a task processed nothing."""
    drained_s: float
    """After the last fault: until every record was processed."""
    ended: tuple[str, ...]
    """Instances that ended by themselves."""
    gaps: tuple[KindGaps, ...]
    struck: tuple[Struck, ...]


@dataclass(slots=True)
class Results(BaseResults):
    """The campaign, once it is complete."""

    campaign: Campaign | None = None

    @property
    def has_runs(self) -> bool:
        return self.campaign is not None

    @property
    def is_clean(self) -> bool:
        """Whether the campaign is complete, and every count is right."""
        return self.campaign is not None and self.complete and not self.campaign.wrong

    def write(self, folder: Path) -> None:
        if self.campaign is None:
            self.write_summary(folder, "streams-chaos", [])
            return
        values = {
            name: getattr(self.campaign, name)
            for name in self.campaign.__dataclass_fields__
            if name not in ("gaps", "struck")
        }
        values["gaps"] = [asdict(each) for each in self.campaign.gaps]
        self.write_summary(
            folder,
            "streams-chaos",
            [values],
            faults=[each.as_json() for each in self.campaign.struck],
        )
