"""When a group became balanced, told from what its instances report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.counting.status import Status

__all__ = ["Balance"]


@dataclass(slots=True)
class Balance:
    """Takes the status of all instances again and again. Times are seconds of any clock."""

    tasks: int
    acceptable_lag: int
    warmed_at: float | None = None
    """When a warm-up was last seen that had not caught up; None: none was seen."""
    balanced_at: float | None = None
    """Since when the group has been balanced; None: it is not."""
    most_copies: int = 0
    """The most warm-ups at one time."""

    def look(self, statuses: Mapping[str, Status], now: float) -> None:
        """Take the present status of each instance."""
        copies = [lag for each in statuses.values() for lag in each.copies.values()]
        self.most_copies = max(self.most_copies, len(copies))
        if any(lag is None or lag > self.acceptable_lag for lag in copies):
            self.warmed_at = now
        counts = [len(each.running) for each in statuses.values()]
        running = {task for each in statuses.values() for task in each.running}
        balanced = (
            not copies
            and len(running) == sum(counts) == self.tasks
            and max(counts) - min(counts) <= self._spread(len(counts))
        )
        if not balanced:
            self.balanced_at = None
        elif self.balanced_at is None:
            self.balanced_at = now

    def _spread(self, instances: int) -> int:
        """The assignor deals each subtopology on its own, so instances may differ by more than one
        task."""
        return max(1, self.tasks // instances // 10)
