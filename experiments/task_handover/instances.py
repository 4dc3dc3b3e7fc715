"""The instances of a run, each of which is a process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.task_handover.plan import QUIX
from experiments.task_handover.status import Status
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from experiments.task_handover.plan import Plan

__all__ = ["Fleet", "Instance"]

_WORKER = "experiments.task_handover.worker"
_END_WITHIN_S = 60.0


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

    def check(self) -> None:
        """Raises KafkaError if the process has ended by itself."""
        if self._process.returncode is not None:
            raise KafkaError(
                f"an instance has ended with status {self._process.returncode}: "
                f"{self._log.read_text('utf-8', 'replace')[-2000:].strip() or 'no output'}"
            )

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
    """The instances of a run by their names, all of which end with the block of :meth:`running`."""

    def __init__(self, plan: Plan, mode: str, options: dict[str, Any], folder: Path) -> None:
        self.instances: dict[str, Instance] = {}
        self._plan = plan
        self._mode = mode
        self._options = options
        self._folder = folder
        self._ended = Status()
        """The bytes that ended instances have read."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        try:
            yield self
        finally:
            for name in list(self.instances):
                await self.end(name, signal.SIGKILL)

    async def start(self, name: str) -> None:
        """Start an instance, on the disk of the last instance of this name."""
        log = self._folder / f"{self._mode}-{name}.log"
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *self._command(), stdin=PIPE, stdout=PIPE, stderr=stderr
            )
        state_dir = self._folder / f"state-{self._mode}" / name
        options = {**self._options, "app": {**self._options["app"], "state_dir": str(state_dir)}}
        assert process.stdin is not None
        process.stdin.write(json.dumps(options).encode() + b"\n")
        self.instances[name] = Instance(process, log)

    def _command(self) -> list[str]:
        if self._mode != QUIX:
            return [sys.executable, "-m", _WORKER]
        python = self._plan.peer_python or sys.executable
        return [str(python), str(Path(__file__).with_name("quix_worker.py"))]

    async def end(self, name: str, how: signal.Signals) -> None:
        """End an instance by the signal ``how``, and forget it."""
        instance = self.instances.pop(name)
        await instance.end(how)
        self._ended = Status(
            restored_bytes=self._ended.restored_bytes + instance.status.restored_bytes,
            followed_bytes=self._ended.followed_bytes + instance.status.followed_bytes,
        )

    def bytes_read(self) -> tuple[int, int]:
        """The bytes that all instances have read so far: restoring, and following."""
        every = [self._ended, *(instance.status for instance in self.instances.values())]
        return sum(s.restored_bytes for s in every), sum(s.followed_bytes for s in every)

    def settled(self) -> bool:
        """Whether every task runs once, and all copies have caught up.

        Raises KafkaError if an instance has ended by itself.
        """
        for instance in self.instances.values():
            instance.check()
        found = [instance.status for instance in self.instances.values()]
        if self._mode == QUIX:  # it reports no status; the group's lag shows the same
            return True
        running = sorted(task for each in found for task in each.running)
        acceptable = self._plan.acceptable_recovery_lag
        return running == list(range(self._plan.tasks)) and all(
            lag is not None and lag <= acceptable for each in found for lag in each.copies.values()
        )
