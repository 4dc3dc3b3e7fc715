"""The process of a client."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from experiments.word_count.clients import Command

__all__ = ["ClientProcess", "Usage", "started"]

_END_WITHIN_S = 30.0


class Usage(NamedTuple):
    """What a process has used so far."""

    cpu_s: float
    rss_mb: float


class ClientProcess:
    """A running client."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log
        self._psutil = import_module("psutil")
        self._watched = self._psutil.Process(process.pid)

    def check(self) -> None:
        """Raises KafkaError if the process has ended by itself."""
        if self._process.returncode is not None:
            raise KafkaError(
                f"{self._name} has ended with status {self._process.returncode}: "
                f"{self._log.read_text('utf-8', 'replace')[-2000:].strip() or 'no output'}"
            )

    def usage(self) -> Usage:
        """CPU time of all threads in user and system mode, and the memory now."""
        try:
            times, memory = self._watched.cpu_times(), self._watched.memory_info()
        except self._psutil.Error as error:
            raise KafkaError(f"{self._name}: its process cannot be observed: {error}") from error
        return Usage(times.user + times.system, memory.rss / 1e6)

    async def end(self) -> None:
        """End the process by SIGTERM; kill it if it does not end in time."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_END_WITHIN_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


@asynccontextmanager
async def started(name: str, command: Command, log: Path) -> AsyncIterator[ClientProcess]:
    """The running process, which is killed at the end of the block if it has not ended."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command.words, stdin=PIPE, stdout=output, stderr=output
        )
    assert process.stdin is not None
    try:
        if command.stdin:
            process.stdin.write(command.stdin.encode() + b"\n")
        yield ClientProcess(name, process, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process.stdin.close()
