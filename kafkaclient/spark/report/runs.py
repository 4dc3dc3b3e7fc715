"""Which files belong to which run and producer, and where each producer's time begins."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

__all__ = ["PATTERN", "Part", "Run", "find_runs"]

PATTERN = "batches-*.parquet"

_NUMBER = re.compile(r"-(\d+)\.parquet$")


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a run."""

    file: str
    """Its name, without folders."""
    producer: str
    """What the names of one producer's files have in common."""
    number: int
    """Its place among its producer's: files of one number were written at about the same time."""
    offset_s: float
    """When its times begin, in seconds after the first producer of the run was started."""


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
    """A run for each folder, and each one below it, that holds telemetry; in the given order.

    ``started_at`` tells of a file when its producer was started. Raises ConfigError when a
    folder holds nothing, or two hold files of the same name: copies of one run.
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


def _parts(files: Sequence[Path], started_at: Callable[[Path], datetime]) -> Iterable[Part]:
    producers: dict[str, datetime] = {}
    for path in files:
        name = _NUMBER.sub("", path.name)
        if name not in producers:  # the same in all files of a producer
            producers[name] = started_at(path)
    first = min(producers.values())
    for path in files:
        name = _NUMBER.sub("", path.name)
        found = _NUMBER.search(path.name)
        number = int(found[1]) if found else 0
        yield Part(path.name, name, number, (producers[name] - first).total_seconds())


def _names(folders: Sequence[Path]) -> list[str]:
    """Each folder's last names, as many as tell it from the others."""
    names = [folder.name for folder in folders]
    length = 1
    while len(set(names)) < len(names) and length < max(len(f.parts) for f in folders):
        length += 1
        names = ["/".join(folder.parts[-length:]) for folder in folders]
    return names
