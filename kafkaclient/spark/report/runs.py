"""Finds runs in folders of telemetry: the files of each run, and when their producers started."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

PATTERN = "batches-*.parquet"

_NAME = re.compile(r"(.+?)(?:-(\d+))?\.parquet")


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a run."""

    file: str
    """File name, without folders."""
    producer: str
    """The common part of the names of one producer's files."""
    number: int
    """Number within the producer. Files with equal numbers were written at about the same time."""
    offset_s: float
    """Start of the producer, in seconds after the first producer of the run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A folder of telemetry."""

    name: str
    folder: Path
    parts: tuple[Part, ...]

    @property
    def producers(self) -> int:
        return len({part.producer for part in self.parts})


def find_runs(folders: Sequence[Path], started_at: Callable[[Path], datetime]) -> list[Run]:
    """One run for each folder, and each folder below, that contains telemetry; in the given order.

    ``started_at``: file -> start of its producer. Raises ConfigError if a folder has no telemetry,
    or if two folders have a file of the same name, because those are copies of one run.
    """
    found: list[Path] = []
    for folder in folders:
        within = sorted({path.parent for path in folder.rglob(PATTERN)})
        if not within:
            raise ConfigError(
                f"no {PATTERN} in or below {folder}: give folders that producers wrote "
                "with the option telemetry"
            )
        found += (path for path in within if path not in found)
    names = _names([folder.resolve() for folder in found])
    runs = [
        Run(name, folder, tuple(_parts(sorted(folder.glob(PATTERN)), started_at)))
        for name, folder in zip(names, found, strict=True)
    ]
    files = Counter(part.file for run in runs for part in run.parts)
    file, times = max(files.items(), key=lambda item: item[1])
    if times > 1:
        where = [str(run.folder) for run in runs if file in {part.file for part in run.parts}]
        raise ConfigError(f"{file} is in {' and in '.join(where)}: copies of one run")
    return runs


def _parts(files: Sequence[Path], started_at: Callable[[Path], datetime]) -> Iterator[Part]:
    names = [_NAME.fullmatch(path.name).groups() for path in files]  # type: ignore[union-attr]
    # All files of a producer have the same start.
    one_of_each = {producer: path for (producer, _), path in zip(names, files, strict=True)}
    starts = {producer: started_at(path) for producer, path in one_of_each.items()}
    first = min(starts.values())
    for path, (producer, number) in zip(files, names, strict=True):
        offset_s = (starts[producer] - first).total_seconds()
        yield Part(path.name, producer, int(number or 0), offset_s)


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest trailing parts of the folders' paths that are unique."""
    names = [folder.name for folder in folders]
    length = 1
    while len(set(names)) < len(names) and length < max(len(f.parts) for f in folders):
        length += 1
        names = ["/".join(folder.parts[-length:]) for folder in folders]
    return names
