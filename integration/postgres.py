"""A PostgreSQL server of its own for a test, on a Unix socket, from Debian's package."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def postgres() -> Iterator[str]:
    """The address (DSN) of a new, empty server. Skips the test if there is no PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    # Not in tmp_path: the path of a socket is short, and root's directories are closed to others.
    folder = Path(tempfile.mkdtemp(prefix="kafkaclient-pg-"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = "postgres"
        shutil.chown(folder, user)
    name = user or getpass.getuser()
    data, programs = folder / "data", found[-1].parent

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        subprocess.run(command, check=True, user=user, cwd=folder, capture_output=True)

    try:
        run("initdb", "-D", str(data), "-A", "trust", "-U", name, "--no-sync")
        options = f"-c listen_addresses='' -k {folder} -c fsync=off"
        log = str(folder / "log")
        run("pg_ctl", "start", "-w", "-D", str(data), "-l", log, "-o", options)
        try:
            yield f"postgresql://{name}@/postgres?host={folder}"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(data))
    finally:
        shutil.rmtree(folder)
