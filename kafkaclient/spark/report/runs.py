"""Finds runs: the folders of telemetry below given paths or URIs, and the files of each run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from kafkaclient import telemetry
from kafkaclient.errors import ConfigError
from kafkaclient.telemetry.reading import entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Run:
    """A folder of telemetry: with files of schema 1, or with ``date=`` folders of schema 2."""

    name: str
    folder: str
    """A local path or a URI."""
    parts: tuple[Any, ...]
    """Each is a ``kafkaclient.telemetry.TelemetryFile``."""

    @property
    def producers(self) -> int:
        return len({part.producer for part in self.parts})


def find_runs(
    folders: Sequence[str], since: datetime | None = None, until: datetime | None = None
) -> list[Run]:
    """One run for each folder, and each folder below, that contains telemetry; in the given order.

    Of ``date=`` and ``hour=`` folders only those from ``since`` to ``until`` are listed, and no
    file is opened. Raises ConfigError if a folder has no telemetry, or if two folders have a file
    of the same name, because those are copies of one run.
    """
    found: list[str] = []
    for folder in folders:
        within = sorted(_roots(folder))
        if not within:
            raise ConfigError(
                f"no batches-*.parquet in or below {folder}: give folders that producers wrote "
                "with the option telemetry"
            )
        found += (path for path in within if path not in found)
    names = _names(found)
    runs = [
        Run(name, folder, tuple(telemetry.files(folder, since, until)))
        for name, folder in zip(names, found, strict=True)
    ]
    if not any(run.parts for run in runs):
        limits = "".join(f" {word} {at}" for word, at in (("from", since), ("to", until)) if at)
        raise ConfigError(f"no telemetry{limits} in {' and '.join(folders)}")
    files = Counter(_file(part) for run in runs for part in run.parts)
    file, times = max(files.items(), key=lambda item: item[1])
    if times > 1:
        where = [run.folder for run in runs if file in {_file(part) for part in run.parts}]
        raise ConfigError(f"{file} is in {' and in '.join(where)}: copies of one run")
    return [run for run in runs if run.parts]


def _file(part: Any) -> str:
    return f"{part.producer}-{part.number}"


def _roots(folder: str) -> Iterator[str]:
    """The folder and the folders below it that have telemetry. ``date=`` folders are not read."""
    files, path = telemetry.open_root(folder)
    found = entries(files, path)
    folders = [entry for entry in found if entry.type == pafs.FileType.Directory]
    if any(_is_telemetry(entry.base_name) for entry in found):
        yield folder
    for entry in folders:
        if not entry.base_name.startswith(("date=", ".")):
            yield from _roots(f"{folder.rstrip('/')}/{entry.base_name}")


def _is_telemetry(name: str) -> bool:
    return name.startswith("date=") or (name.startswith("batches-") and name.endswith(".parquet"))


def _names(folders: Sequence[str]) -> list[str]:
    """The shortest trailing parts of the folders' paths that are unique."""
    parts = [(folder if "://" in folder else str(Path(folder).resolve())) for folder in folders]
    split = [part.rstrip("/").split("/") for part in parts]
    names = [each[-1] for each in split]
    length = 1
    while len(set(names)) < len(names) and length < max(map(len, split)):
        length += 1
        names = ["/".join(each[-length:]) for each in split]
    return names
