"""Partition limits in a file: for who cannot, or does not want to, keep them in the cluster."""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.admin.limits import Limits
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FileLimits"]

_HEAD = "# Partition limits (KIP-578), kept by kafkaclient limits set --limits-file\n"


class FileLimits:
    """A properties file with the limits under KIP-578's names; it is read anew for every request.

    Whoever creates topics with another file, or with none, does not see these limits. Of two who
    set limits at once the last one wins.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __str__(self) -> str:
        return f"the file {self._path}"

    async def read(self) -> Limits:
        """Raises ConfigError when the file is not there or makes no sense: without knowing the
        limits nothing is created."""
        return await asyncio.to_thread(self._read)

    async def change(self, given: Mapping[str, str | int | None]) -> Limits:
        """Set these limits, leave the others; the limits as they are now. Raises ConfigError when
        the file cannot be written."""
        return await asyncio.to_thread(self._change, given)

    def _read(self) -> Limits:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the limits in {self._path} cannot be read: {error}; kafkaclient limits set "
                f"--limits-file {self._path} writes it"
            ) from error
        given: dict[str, str | int | None] = {}
        for line in text.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                name, _, value = line.partition("=")
                given[name.strip()] = value.strip()
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
                why = f"there is no directory {directory}; create it, or name another file"
            raise ConfigError(f"the limits cannot be written to {self._path}: {why}") from error
        return limits

    def _write(self, lines: str) -> None:
        """A reader sees the old file or the new one, never a part of one."""
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(_HEAD + lines)
            Path(name).replace(self._path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
