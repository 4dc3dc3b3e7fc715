"""``kafkaclient`` as a shell runs it, forked from a process that has imported the commands.

A new interpreter would import them for a second of CPU time, and the tests run many commands. What
starts threads when it is imported (numpy and pyarrow, which ``perf-test`` needs) is not imported
there: a lock that such a thread holds at the fork stays locked in the command for ever.
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
        *(f"kafkaclient.cli.{name}" for name in ("throttle", "topics")),
    ]
)


class Ended(NamedTuple):
    """A command that has ended."""

    exit_code: int
    stdout: str
    stderr: str


async def kafkaclient(*words: str, variables: dict[str, str] | None = None) -> Ended:
    """Run the command to its end, with ``variables`` in its environment. A command whose test is
    cancelled is killed."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        environment = os.environ | (variables or {})
        process = _FORKING.Process(target=_command, args=(words, environment, files))
        process.start()
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
            if not ended.is_set():
                process.kill()
            process.join()
            exit_code = process.exitcode
            process.close()
        assert exit_code is not None
        return Ended(exit_code, *(file.read_text("utf-8") for file in files))


def _command(words: tuple[str, ...], environment: dict[str, str], files: list[Path]) -> None:
    threads = os.listdir(f"/proc/{os.getppid()}/task")
    assert len(threads) == 1, "the process that forks has threads"
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["kafkaclient", *words]
    main()
