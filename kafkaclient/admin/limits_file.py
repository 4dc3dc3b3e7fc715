"""Partition limits in a file, for clients that cannot store the limits in the cluster."""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import javaproperties

from kafkaclient.admin.limits import Limits
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FileLimits"]

_HEADER = "# Partition limits (KIP-578), written by kafkaclient limits set --limits-file\n"


class FileLimits:
    """A properties file with the limits under KIP-578's names. Each request reads the file.

    Clients that do not use this file do not enforce its limits. If two clients set limits at the
    same time, the last write wins.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __str__(self) -> str:
        return f"the file {self._path}"

    async def read(self) -> Limits:
        """The limits. Raises ConfigError if the file is missing or invalid: nothing is created
        while the limits are unknown."""
        return await asyncio.to_thread(self._read)

    async def change(self, given: Mapping[str, str | int | None]) -> Limits:
        """Set the ``given`` limits and return all limits. Raises ConfigError."""
        return await asyncio.to_thread(self._change, given)

    def _read(self) -> Limits:
        try:
            given = javaproperties.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # not UTF-8, or an escape sequence Java refuses
            raise ConfigError(
                f"cannot read the partition limits in {self._path}: {error}; create the file with "
                f"kafkaclient limits set --limits-file {self._path}"
            ) from error
        try:
            return Limits.parse(given)
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from error

    def _change(self, given: Mapping[str, str | int | None]) -> Limits:
        limits = (self._read() if self._path.exists() else Limits()).changed(given)
        lines = [
            f"{name}={value}\n"
            for name, value in limits.as_properties().items()
            if value is not None
        ]
        try:
            self._write("".join(lines))
        except OSError as error:
            directory = self._path.parent
            why = error.strerror
            if not directory.is_dir():
                why = f"there is no directory {directory}; create it, or choose another file"
            raise ConfigError(
                f"cannot write the partition limits to {self._path}: {why}"
            ) from error
        return limits

    def _write(self, lines: str) -> None:
        """Replace the file atomically: a reader never sees a partial file."""
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(_HEADER + lines)
            Path(name).replace(self._path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
