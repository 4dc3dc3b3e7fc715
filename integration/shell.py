"""``kafkaclient`` as a shell runs it, forked from a process that has imported the commands.

A new interpreter would import them for a second of CPU time, and the tests run many commands.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from kafkaclient.cli import main

_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload(
    [
        "integration.shell",
        *(f"kafkaclient.cli.{name}" for name in ("app", "limits", "reassign", "streams", "top")),
        *(f"kafkaclient.cli.{name}" for name in ("perf_test", "throttle", "topics")),
    ]
)


class Ended(NamedTuple):
    """A command that has ended."""

    exit_code: int
    stdout: str
    stderr: str


async def kafkaclient(*words: str, variables: dict[str, str] | None = None) -> Ended:
    """Run the command to its end, with ``variables`` in its environment."""
    return await asyncio.to_thread(_run, words, os.environ | (variables or {}))


def _run(words: tuple[str, ...], environment: dict[str, str]) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        process = _FORKING.Process(target=_command, args=(words, environment, files))
        process.start()
        process.join()
        assert process.exitcode is not None
        ended = Ended(process.exitcode, *(file.read_text("utf-8") for file in files))
        process.close()
        return ended


def _command(words: tuple[str, ...], environment: dict[str, str], files: list[Path]) -> None:
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["kafkaclient", *words]
    main()
