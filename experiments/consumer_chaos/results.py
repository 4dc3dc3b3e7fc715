"""The results of the campaign, and their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from experiments.experiment import BaseResults

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.consumer_chaos.oracle import Verdict
    from experiments.streams_chaos.gaps import KindGaps
    from experiments.streams_chaos.strikes import Struck

__all__ = ["Campaign", "Results"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What became of the records."""

    records: int
    """Records that were sent and acknowledged."""
    verdict: Verdict
    drained_s: float
    """After the last fault: until every record was processed."""
    longest_gap_s: float
    """The longest time in which no record of a partition was processed."""
    ended: tuple[str, ...]
    """Members that ended by themselves."""
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
        """Whether the campaign is complete, without an error, and no member ended by itself."""
        campaign = self.campaign
        return (
            campaign is not None
            and self.complete
            and not campaign.verdict.errors
            and not campaign.ended
        )

    def write(self, folder: Path) -> None:
        campaign = self.campaign
        if campaign is None:
            self.write_summary(folder, "consumer-chaos", [])
            return
        run = {
            "records": campaign.records,
            **asdict(campaign.verdict),
            "drained_s": campaign.drained_s,
            "longest_gap_s": campaign.longest_gap_s,
            "ended": campaign.ended,
            "gaps": [asdict(each) for each in campaign.gaps],
        }
        faults = [each.as_json() for each in campaign.struck]
        self.write_summary(folder, "consumer-chaos", [run], faults=faults)
