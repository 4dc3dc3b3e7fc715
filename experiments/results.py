"""The files of an experiment's results."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.errors import ConfigError
from kafkaclient.perf.record import write_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["REPORT", "SUMMARY", "reading_results", "write_summary"]

SUMMARY = "summary.json"
REPORT = "report.html"


class _Results(Protocol):
    plan: dict[str, Any]
    machine: dict[str, Any]
    complete: bool


def write_summary(
    folder: Path, experiment: str, results: _Results, runs: Sequence[dict[str, Any]], **more: Any
) -> None:
    """Write ``summary.json``: the experiment's name, plan and machine, ``more``, and its ``runs``.

    The folder is made when it is missing.
    """
    write_runs(
        folder / SUMMARY,
        runs,
        experiment=experiment,
        complete=results.complete,
        plan=results.plan,
        machine=results.machine,
        **more,
    )


@contextmanager
def reading_results(folder: Path, experiment: str, *files: str) -> Iterator[None]:
    """Raises ConfigError if the block cannot read an experiment's ``files`` in ``folder``."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} does not hold the results of `python -m experiments {experiment}` "
            f"({', '.join(files)}): {error}"
        ) from error
