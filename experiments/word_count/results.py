"""The results of the experiment, and their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from experiments.experiment import BaseResults
from experiments.word_count.plan import OURS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Median", "Results", "Run", "Skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A client counted all words once."""

    client: str
    run: int
    """From 1."""
    exactly_once: bool
    """Whether the client promises exact counts with its settings here."""
    words: int
    seconds: float
    """From the first word in the topic of the words to the last committed count."""
    words_per_s: float
    cpu_s: float
    """CPU time of the client's process in these seconds."""
    startup_s: float
    """From the start of the process to the first word."""
    rss_mb: float
    """Memory of the process at the end."""
    changes: int
    """Records in the changelog."""
    wrong: int
    """Words whose count is wrong."""
    missing: int
    """Occurrences that are not in the counts."""
    surplus: int
    """Occurrences that were counted more than once."""
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run that failed."""

    client: str
    run: int
    reason: str


@dataclass(frozen=True, slots=True)
class Median:
    """The medians of a client's runs."""

    client: str
    runs: int
    words_per_s: float
    cpu_us_per_word: float
    startup_s: float
    rss_mb: float
    changes: float
    wrong: int
    """Wrong counts in all runs."""
    ours_is: float | None
    """Our words per second divided by this client's; None: we have no run."""


@dataclass(slots=True)
class Results(BaseResults):
    """All runs so far."""

    runs: list[Run] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def has_runs(self) -> bool:
        return bool(self.runs)

    @property
    def is_clean(self) -> bool:
        """Whether every planned run was made, and every count of ours is exact."""
        return (
            self.complete
            and not self.skipped
            and not any(run.wrong for run in self.runs if run.client == OURS)
        )

    def medians(self) -> list[Median]:
        """The medians of each client, in the order of the clients' first runs."""
        by_client: dict[str, list[Run]] = {}
        for run in self.runs:
            by_client.setdefault(run.client, []).append(run)
        speeds = {
            client: median(run.words_per_s for run in runs) for client, runs in by_client.items()
        }
        ours = speeds.get(OURS)
        return [
            Median(
                client,
                len(runs),
                round(speeds[client], 1),
                round(median(run.cpu_s * 1e6 / run.words for run in runs), 2),
                round(median(run.startup_s for run in runs), 2),
                round(median(run.rss_mb for run in runs), 1),
                median(run.changes for run in runs),
                sum(run.wrong for run in runs),
                None if ours is None or not speeds[client] else round(ours / speeds[client], 2),
            )
            for client, runs in by_client.items()
        ]

    def write(self, folder: Path) -> None:
        runs: list[dict[str, Any]] = [asdict(run) for run in self.runs]
        self.write_summary(
            folder,
            "word-count",
            runs,
            medians=[asdict(found) for found in self.medians()],
            skipped=[asdict(skipped) for skipped in self.skipped],
        )
