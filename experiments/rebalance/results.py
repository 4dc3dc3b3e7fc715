"""The results of the experiment, and their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from experiments.experiment import BaseResults

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Joined", "Results"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What it took until the group was balanced."""

    tasks: int
    instances: int
    """With the one that joined."""
    started_s: float
    """From the start of the first instances until all tasks ran."""
    balanced_s: float
    """From the start of the instance that joined until the group was balanced."""
    after_warmup_s: float
    """From the end of the last warm-up until the group was balanced."""
    most_warmups: int
    """The most warm-ups at one time."""
    moved: int
    """Tasks that the instance that joined runs."""
    rebalances: int
    evictions: int
    records: int
    """Records that were sent, from the start to the end."""
    wrong: int
    """Counts that were repeated, left out or missing at the end."""
    examples: tuple[str, ...]
    """The first wrong counts, in words."""
    rss_mb: float
    """The most memory of an instance at the end."""


@dataclass(slots=True)
class Results(BaseResults):
    """The experiment, once it is complete."""

    joined: Joined | None = None

    @property
    def has_runs(self) -> bool:
        return self.joined is not None

    @property
    def is_clean(self) -> bool:
        """Whether the experiment is complete, and every count is right."""
        return self.joined is not None and self.complete and not self.joined.wrong

    def figures(self) -> list[tuple[str, str]]:
        """What was measured, and the figure."""
        found = self.joined
        assert found is not None
        return [
            ("tasks", f"{found.tasks:,}"),
            ("instances, with the one that joined", str(found.instances)),
            ("all tasks run after the start, s", f"{found.started_s:.1f}"),
            ("balanced after the join, s", f"{found.balanced_s:.1f}"),
            ("balanced after the last warm-up, s", f"{found.after_warmup_s:.1f}"),
            ("warm-ups at one time, at most", str(found.most_warmups)),
            ("tasks that moved", str(found.moved)),
            ("rebalances", str(found.rebalances)),
            ("evictions", str(found.evictions)),
            ("memory of an instance, at most, MB", f"{found.rss_mb:,.0f}"),
            ("records", f"{found.records:,}"),
            ("wrong counts", f"{found.wrong:,}"),
        ]

    def write(self, folder: Path) -> None:
        self.write_summary(folder, "rebalance-1000", [asdict(self.joined)] if self.joined else [])
