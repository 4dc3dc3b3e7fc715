"""Instances as processes: started, watched, ended, killed."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError
from kafkaclient.experiments.task_handover.plan import QUIX
from kafkaclient.experiments.task_handover.told import Told

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from kafkaclient.experiments.task_handover.plan import Plan

__all__ = ["Fleet", "Instance"]

_WORKER = "kafkaclient.experiments.task_handover.worker"
_END_WITHIN_S = 60.0


class Instance:
    """A process; ``told`` is what it said last."""

    def __init__(self, process: Process, log: Path) -> None:
        self.told = Told()
        self._process = process
        self._log = log
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.told = Told(**json.loads(line))

    def check(self) -> None:
        """Raises KafkaError when it has ended by itself."""
        if self._process.returncode is not None:
            raise KafkaError(
                f"an instance has ended with status {self._process.returncode}: "
                f"{self._log.read_text('utf-8', 'replace')[-2000:].strip() or 'without a word'}"
            )

    async def end(self, how: signal.Signals) -> None:
        """Returns when it has ended; killed, if it does not in time."""
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
    """All instances of a run by their names. Use in ``async with``: none of them outlives it."""

    def __init__(self, plan: Plan, mode: str, options: dict[str, Any], folder: Path) -> None:
        self.instances: dict[str, Instance] = {}
        self._plan = plan
        self._mode = mode
        self._options = options
        self._folder = folder
        self._ended = Told()
        """The bytes of those that have ended."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        try:
            yield self
        finally:
            for name in list(self.instances):
                await self.end(name, signal.SIGKILL)

    async def start(self, name: str) -> None:
        """Start one; by the same name it has the same disk."""
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
        """End one by a signal, and forget it."""
        instance = self.instances.pop(name)
        await instance.end(how)
        self._ended = Told(
            restored_bytes=self._ended.restored_bytes + instance.told.restored_bytes,
            followed_bytes=self._ended.followed_bytes + instance.told.followed_bytes,
        )

    def bytes_read(self) -> tuple[int, int]:
        """By all instances so far, restoring and following."""
        every = [self._ended, *(instance.told for instance in self.instances.values())]
        return sum(t.restored_bytes for t in every), sum(t.followed_bytes for t in every)

    def settled(self) -> bool:
        """Whether every task runs, each once, and all copies have caught up.

        Raises KafkaError when an instance has ended by itself."""
        for instance in self.instances.values():
            instance.check()
        told = [instance.told for instance in self.instances.values()]
        if self._mode == QUIX:  # it does not tell; the group's lag says it
            return True
        running = sorted(task for each in told for task in each.running)
        acceptable = self._plan.acceptable_recovery_lag
        return running == list(range(self._plan.tasks)) and all(
            lag is not None and lag <= acceptable for each in told for lag in each.copies.values()
        )
