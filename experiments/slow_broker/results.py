"""The results of an experiment, and their files, from which report and pictures are drawn."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from experiments.clients import OURS
from experiments.experiment import SUMMARY, BaseResults, run_record
from experiments.slow_broker.fleet import Fleet
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kafkaclient.perf.run import RunRecord

__all__ = ["LATENCIES", "Latencies", "Recorded", "Results", "Skipped"]

LATENCIES = "latencies.json"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run that was not made, or failed; rate and run are None for all runs of the setting."""

    client: str
    setting: str
    reason: str
    rate: float | None = None
    run: int | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run with telemetry, made for its decisions; ``folder`` is relative to the results."""

    record: RunRecord
    folder: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """A run's distribution: the known points (percentile, ms), rising."""

    client: str
    setting: str
    rate: float
    run: int
    points: tuple[tuple[float, float], ...]


@dataclass(slots=True)
class Results(BaseResults):
    """All runs so far."""

    runs: list[RunRecord] = field(default_factory=list)
    steady_state: list[RunRecord] = field(default_factory=list)
    """The same runs without the first seconds of each."""
    recorded: list[Recorded] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    fleets: list[Fleet] = field(default_factory=list)
    latencies: list[Latencies] = field(default_factory=list)

    @property
    def has_runs(self) -> bool:
        return bool(self.runs)

    @property
    def bad_runs(self) -> list[RunRecord]:
        """Our runs with records that were refused, lost, duplicated or reordered."""
        return [
            run
            for run in self.runs
            if run.client == OURS and (run.errors or run.lost or run.duplicated or run.reordered)
        ]

    @property
    def is_clean(self) -> bool:
        """Whether no run failed, and none of ours is bad."""
        return not self.bad_runs and all(skipped.rate is None for skipped in self.skipped)

    def write(self, folder: Path) -> None:
        self.write_summary(
            folder,
            "slow-broker",
            [record.as_json() for record in self.runs],
            skipped=[asdict(skipped) for skipped in self.skipped],
            fleets=[asdict(fleet) for fleet in self.fleets],
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
        """The results that :meth:`write` wrote. Raises ConfigError if the folder has none."""
        try:
            summary = json.loads((folder / SUMMARY).read_text("utf-8"))
            latencies = json.loads((folder / LATENCIES).read_text("utf-8"))
            return cls.of(summary, latencies["runs"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{folder} does not hold the results of `python -m experiments slow-broker` "
                f"({SUMMARY}, {LATENCIES}): {error}"
            ) from error

    @classmethod
    def of(cls, summary: Mapping[str, Any], latencies: Iterable[Mapping[str, Any]] = ()) -> Self:
        """The results in a ``summary.json``. Raises ValueError, KeyError or TypeError."""
        return cls(
            plan=summary["plan"],
            machine=summary["machine"],
            runs=[run_record(run) for run in summary["runs"]],
            steady_state=[run_record(run) for run in summary["steady_state"]],
            recorded=[Recorded(run_record(run), run["telemetry"]) for run in summary["recorded"]],
            skipped=[Skipped(**skipped) for skipped in summary["skipped"]],
            fleets=[Fleet(**fleet) for fleet in summary["fleets"]],
            latencies=[
                Latencies(**{**run, "points": tuple(map(tuple, run["points"]))})
                for run in latencies
            ],
            complete=summary["complete"],
        )
