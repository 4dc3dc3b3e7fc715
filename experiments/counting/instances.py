"""The instances of a run, each of which is a process."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from experiments.counting.status import Status
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["OUR_COMMAND", "Fleet", "Instance"]

OUR_COMMAND = (sys.executable, "-m", "experiments.counting.worker")
_END_WITHIN_S = 60.0
_LINE_BYTES = 1 << 20
_POLL_S = 0.2
_RUNS_WITHIN_S = 60.0


class Instance:
    """The process of an instance; ``status`` is the last that it reported."""

    def __init__(self, process: Process, log: Path) -> None:
        self.status = Status()
        self._process = process
        self._log = log
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.status = Status(**json.loads(line))

    @property
    def ended(self) -> str | None:
        """How the process ended by itself, with the end of its log; None if it runs."""
        if self._process.returncode is None:
            return None
        told = self._log.read_text("utf-8", "replace")[-2000:].strip() or "no output"
        return f"an instance has ended with status {self._process.returncode}: {told}"

    def check(self) -> None:
        """Raises KafkaError if the process has ended by itself."""
        if (ended := self.ended) is not None:
            raise KafkaError(ended)

    @property
    def rss_mb(self) -> float:
        """The memory of the process."""
        return float(import_module("psutil").Process(self._process.pid).memory_info().rss) / 1e6

    def send_signal(self, which: signal.Signals) -> None:
        """Send a signal, if the process runs."""
        if self._process.returncode is None:
            self._process.send_signal(which)

    async def end(self, how: signal.Signals) -> None:
        """End the process by the signal ``how``; kill it if it does not end in time."""
        if self._process.returncode is None:
            self._process.send_signal(how)
            try:
                async with asyncio.timeout(_END_WITHIN_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._reading
        assert self._process.stdin is not None
        self._process.stdin.close()


class Fleet:
    """The instances of a run by their names, all of which end with the block of :meth:`running`.

    Each runs ``command`` with ``options``, and has a log and a disk in ``folder``. Names of files
    begin with ``label``.
    """

    def __init__(
        self, label: str, command: Sequence[str], options: Mapping[str, Any], folder: Path
    ) -> None:
        self.instances: dict[str, Instance] = {}
        self._label = label
        self._command = command
        self._options = options
        self._folder = folder
        self._ended = Status()
        """The bytes that ended instances have read."""

    @property
    def states(self) -> Path:
        """The folder of all disks."""
        return self._folder / f"state-{self._label}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        """Removes the disks before and after the block."""
        await asyncio.to_thread(shutil.rmtree, self.states, ignore_errors=True)
        try:
            yield self
        finally:
            for name in list(self.instances):
                await self.end(name, signal.SIGKILL)
            await asyncio.to_thread(shutil.rmtree, self.states, ignore_errors=True)

    async def start(self, name: str, ports: Mapping[int, int] | None = None) -> None:
        """Start an instance, on the disk of the last instance of this name.

        It connects to the port ``ports[p]`` instead of a broker's port p.
        """
        log = self._folder / f"{self._label}-{name}.log"
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=stderr, limit=_LINE_BYTES
            )
        app = {**self._options["app"], "state_dir": str(self.states / name)}
        options = {**self._options, "app": app, "ports": dict(ports or {})}
        assert process.stdin is not None
        process.stdin.write(json.dumps(options).encode() + b"\n")
        self.instances[name] = Instance(process, log)

    async def start_all(self, ports: Mapping[str, Mapping[int, int]], tasks: int) -> None:
        """Start an instance for each name of ``ports``; returns when ``tasks`` tasks run. Raises
        KafkaError if they do not within a minute, or if an instance ends."""
        for name, each in ports.items():
            await self.start(name, each)
        try:
            async with asyncio.timeout(_RUNS_WITHIN_S):
                while len(self.runners()) < tasks:
                    await asyncio.sleep(_POLL_S)
                    self.check()
        except TimeoutError:
            raise KafkaError(
                f"{len(self.runners())} of {tasks} tasks or partitions run after "
                f"{_RUNS_WITHIN_S:g} s: {[each.status for each in self.instances.values()]}"
            ) from None

    async def end(self, name: str, how: signal.Signals) -> None:
        """End an instance by the signal ``how``, and forget it."""
        instance = self.instances.pop(name)
        await instance.end(how)
        self._ended = Status(
            restored_bytes=self._ended.restored_bytes + instance.status.restored_bytes,
            followed_bytes=self._ended.followed_bytes + instance.status.followed_bytes,
        )

    async def lose_disk(self, name: str) -> None:
        """Remove the disk of an instance that does not run."""
        await asyncio.to_thread(shutil.rmtree, self.states / name, ignore_errors=True)

    def check(self) -> None:
        """Raises KafkaError if an instance has ended by itself."""
        for instance in self.instances.values():
            instance.check()

    def bytes_read(self) -> tuple[int, int]:
        """The bytes that all instances have read so far: restoring, and following."""
        every = [self._ended, *(instance.status for instance in self.instances.values())]
        return sum(s.restored_bytes for s in every), sum(s.followed_bytes for s in every)

    def rss_mb(self) -> float:
        """The most memory that an instance has now."""
        return max(instance.rss_mb for instance in self.instances.values())

    def runners(self) -> dict[str, str]:
        """Task -> the name of the instance that runs it."""
        return {
            task: name
            for name, instance in self.instances.items()
            for task in instance.status.running
        }

    def settled(self, tasks: int, acceptable_lag: int) -> bool:
        """Whether every one of ``tasks`` tasks runs once, and all copies have caught up."""
        found = [instance.status for instance in self.instances.values()]
        running = [task for each in found for task in each.running]
        return len(running) == len(set(running)) == tasks and all(
            lag is not None and lag <= acceptable_lag
            for each in found
            for lag in each.copies.values()
        )
