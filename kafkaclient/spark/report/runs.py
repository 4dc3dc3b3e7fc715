"""Finds runs: the folders of telemetry below given paths or URIs, and the files of each run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from kafkaclient import telemetry
from kafkaclient.config.telemetry_target import TelemetryTarget
from kafkaclient.errors import ConfigError
from kafkaclient.telemetry.reading import entries, files_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from kafkaclient.telemetry import TelemetryFile


@dataclass(frozen=True, slots=True)
class Run:
    """A folder of telemetry: it has ``date=`` folders."""

    name: str
    folder: str
    """A local path or a URI, without a user, a password and a query."""
    files: tuple[TelemetryFile, ...]
    root: str
    """The given path or URI, to open the file system. It may contain secrets."""

    @property
    def producers(self) -> int:
        return len({file.producer for file in self.files})


def find_runs(
    folders: Sequence[str], since: datetime | None = None, until: datetime | None = None
) -> list[Run]:
    """One run for each folder, and each folder below, that contains telemetry; in the given order.

    Of ``date=`` and ``hour=`` folders only those from ``since`` to ``until`` are listed, and no
    file is opened. Raises ConfigError if a folder has no telemetry, or if two folders have a file
    of the same name, because those are copies of one run.
    """
    found: list[tuple[Any, str, str, str]] = []
    for root in folders:
        target = TelemetryTarget(root)
        file_system, path = telemetry.open_root(root)
        within = sorted(_folders_with_telemetry(file_system, path))
        if not within:
            raise ConfigError(
                f"no batches-*.parquet in or below {target}: give folders that producers wrote "
                "with the option telemetry"
            )
        known = [(other_system, other) for other_system, other, *_ in found]
        for below in within:
            if (file_system, below) not in known:
                shown = f"{target.scheme}://{below}" if target.scheme else below
                found.append((file_system, below, shown, root))
    names = _names([path for _, path, *_ in found])
    runs = [
        Run(name, shown, tuple(files_in(file_system, path, since, until)), root)
        for name, (file_system, path, shown, root) in zip(names, found, strict=True)
    ]
    if not any(run.files for run in runs):
        where = " and ".join(str(TelemetryTarget(root)) for root in folders)
        raise ConfigError(f"no telemetry{period_text(since, until)} in {where}")
    names_of_files = Counter(_name(file) for run in runs for file in run.files)
    name, times = names_of_files.most_common(1)[0]
    if times > 1:
        where = " and in ".join(run.folder for run in runs if name in map(_name, run.files))
        raise ConfigError(f"{name} is in {where}: copies of one run")
    return [run for run in runs if run.files]


def period_text(since: datetime | None, until: datetime | None) -> str:
    """The given limits, as words that follow others; "" without limits."""
    return "".join(f" {word} {at}" for word, at in (("from", since), ("to", until)) if at)


def _name(file: TelemetryFile) -> str:
    return f"{file.producer}-{file.number}"


def _folders_with_telemetry(file_system: Any, path: str) -> Iterator[str]:
    """The folder and the folders below it that have telemetry. ``date=`` folders are not read."""
    found = entries(file_system, path)
    if any(entry.base_name.startswith("date=") for entry in found):
        yield path
    for entry in found:
        is_folder = entry.type == pafs.FileType.Directory
        if is_folder and not entry.base_name.startswith(("date=", ".")):
            yield from _folders_with_telemetry(file_system, entry.path)


def _names(paths: Sequence[str]) -> list[str]:
    """The shortest trailing parts of the paths that are unique."""
    split = [path.rstrip("/").split("/") for path in paths]
    names = [each[-1] for each in split]
    length = 1
    while len(set(names)) < len(names) and length < max(map(len, split)):
        length += 1
        names = ["/".join(each[-length:]) for each in split]
    return names
