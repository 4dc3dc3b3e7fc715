"""What all experiments have in common: a plan, results, and a run from the one to the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from kafkaclient.perf.run import RunRecord, write_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.watcher import Watcher

__all__ = ["REPORT", "SUMMARY", "BaseExperiment", "BaseResults", "run_record"]

SUMMARY = "summary.json"
REPORT = "report.html"


class _Plan(Protocol):
    def as_json(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class BaseResults(ABC):
    """The results so far."""

    plan: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    complete: bool = False
    """Whether each planned run was made, or skipped for a reason that is in the results."""

    @property
    @abstractmethod
    def has_runs(self) -> bool:
        """Whether there is anything to report."""

    @property
    @abstractmethod
    def is_clean(self) -> bool:
        """Whether the command's exit status is 0."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write ``summary.json``, and further files; the folder is made when it is missing."""

    def write_summary(
        self, folder: Path, experiment: str, runs: Sequence[dict[str, Any]], **more: Any
    ) -> None:
        """Write ``summary.json`` with the ``runs`` of the experiment, and ``more`` fields."""
        facts = {"complete": self.complete, "plan": self.plan, "machine": self.machine}
        write_runs(folder / SUMMARY, runs, experiment=experiment, **facts, **more)


P = TypeVar("P", bound=_Plan)
R = TypeVar("R", bound=BaseResults)


class BaseExperiment(ABC, Generic[P, R]):
    """``await run()`` carries out the plan, and keeps ``results`` and their files current.

    Raises what starting a cluster raises. A run that fails is reported, and the next one is made.
    """

    results_type: ClassVar[type[Any]]
    libraries: ClassVar[Mapping[str, str]] = {}
    """Modules that this experiment needs besides those of all: module -> the extra."""

    def __init__(self, plan: P, folder: Path, watcher: Watcher) -> None:
        self.plan = plan
        self.folder = folder
        self.watcher = watcher
        self.results: R = self.results_type(plan.as_json())

    @abstractmethod
    async def run(self) -> None:
        """Make all runs. A cancellation leaves the results so far."""


def run_record(values: Mapping[str, Any]) -> RunRecord:
    """The record that :meth:`RunRecord.as_json` made; ignores fields that are not its own."""
    known = {field.name: values[field.name] for field in fields(RunRecord) if field.name in values}
    for name in ("bytes_per_broker", "requests_per_broker"):
        if known.get(name) is not None:
            known[name] = tuple(known[name])
    return RunRecord(**known)
