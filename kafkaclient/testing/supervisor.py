"""The process that owns a cluster's JVMs and fault proxies: ``python -m
kafkaclient.testing.supervisor DIRECTORY``.

It is a separate process, so that the proxies do not slow down the client under test, and so that
the JVMs end when a test run is killed. It reads ``launch.json`` in the directory, listens on
``control.sock`` there, and accepts one JSON line per connection:

    {"command": "kill", "broker": 0}  ->  {"result": null} | {"error": "...", "kind": "ConfigError"}

with any number of ``{"progress": "..."}`` lines before the answer.

An attached supervisor ends with its parent process: its standard input is a pipe that reaches its
end when the parent ends in any way. A detached supervisor runs until ``stop``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.testing.broker import Jvm
from kafkaclient.testing.containers import ContainerFleet
from kafkaclient.testing.fleet import Fleet
from kafkaclient.testing.security import ClusterSecurity
from kafkaclient.testing.settings import HEAP_MB, ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["LAUNCH_FILE", "SOCKET_FILE", "Launch", "Supervisor", "main"]

LAUNCH_FILE = "launch.json"
SOCKET_FILE = "control.sock"
_MAX_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments of a supervisor, which it reads from a file."""

    brokers: int
    racks: list[str] | None
    config: dict[str, str]
    version: str
    java: str
    java_major: int
    jars: list[str]
    archive: str
    template: str
    keep: bool
    """Whether to keep the directory after the end of the cluster."""
    security: dict[str, Any] | None = None
    features: dict[str, int] = field(default_factory=dict)
    long_lived: bool = False
    heap_mb: int = HEAP_MB
    compose: str | None = None
    """The Docker Compose project whose containers are the brokers; None for processes."""

    def write(self, directory: Path) -> None:
        text = json.dumps({name: getattr(self, name) for name in self.__slots__})
        (directory / LAUNCH_FILE).write_text(text, "utf-8")

    @classmethod
    def read(cls, directory: Path) -> Launch:
        return cls(**json.loads((directory / LAUNCH_FILE).read_text("utf-8")))

    def spec(self) -> ClusterSpec:
        security = None if self.security is None else ClusterSecurity.from_json(self.security)
        return ClusterSpec.build(
            self.brokers,
            self.racks,
            self.config,
            self.version,
            security,
            self.features,
            long_lived=self.long_lived,
            heap_mb=self.heap_mb,
        )

    def jvm(self) -> Jvm:
        jars = tuple(map(Path, self.jars))
        return Jvm(Path(self.java), jars, Path(self.archive), self.java_major)

    def broker_jvm(self) -> Jvm:
        return replace(self.jvm(), quick=not self.long_lived, broker_heap_mb=self.heap_mb)


class Supervisor:
    """Serves commands for one fleet until ``stop``, a signal, or the end of its parent."""

    def __init__(self, directory: Path, launch: Launch) -> None:
        self._directory = directory
        self._listeners: set[asyncio.StreamWriter] = set()
        self._ended = asyncio.Event()
        self._orderly = True
        self._busy = asyncio.Lock()
        template = Path(launch.template)
        parts = (launch.spec(), launch.broker_jvm(), directory, template, self._say)
        self._fleet = ContainerFleet(launch.compose, *parts) if launch.compose else Fleet(*parts)
        self._commands: dict[str, Callable[..., Awaitable[Any]]] = {
            "describe": self._describe,
            "fault": self._fault,
            "heal": self._heal,
            "kill": self._kill,
            "pause": self._pause,
            "proxy_stats": self._proxy_stats,
            "restart": self._restart,
            "resume": self._resume,
            "start": self._start,
            "start_broker": self._start_broker,
            "stop": self._stop,
            "terminate": self._terminate,
        }

    async def serve(self, *, attached: bool) -> None:
        """Run until the end, then stop all JVMs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._end)
        if attached:
            await self._watch_parent(loop)
        path = self._directory / SOCKET_FILE
        old = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._answer, path, limit=_MAX_LINE)
        finally:
            os.umask(old)
        async with server:
            await self._ended.wait()
            server.close()
            await self._fleet.stop(orderly=self._orderly)

    async def _watch_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        supervisor = self

        class Lifeline(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                supervisor._orderly = False
                supervisor._end()

        await loop.connect_read_pipe(Lifeline, sys.stdin.buffer)

    def _end(self) -> None:
        self._ended.set()

    def _say(self, text: str) -> None:
        for writer in self._listeners:
            writer.write(_line({"progress": text}))

    # --- one command ---

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                line = await reader.readline()
                if line:
                    writer.write(_line(await self._run(json.loads(line), writer)))
                    await writer.drain()
            finally:
                self._listeners.discard(writer)
                writer.close()

    async def _run(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        name = request.pop("command", None)
        command = self._commands.get(str(name))
        try:
            if command is None:
                raise ConfigError(f"unknown command {name!r}")
            self._listeners.add(writer)
            return {"result": await command(**request)}
        except (KafkaError, TypeError, OSError) as error:
            return {"error": str(error), "kind": type(error).__name__}
        finally:
            self._listeners.discard(writer)

    async def _start(self, timeout_s: float) -> None:
        async with self._busy:
            try:
                await self._fleet.start(timeout_s)
            except BaseException:
                self._end()
                raise

    async def _stop(self) -> None:
        # Answer only after the JVMs have ended.
        async with self._busy:
            await self._fleet.stop()
            self._end()

    async def _describe(self) -> dict[str, Any]:
        return self._fleet.describe()

    async def _proxy_stats(self) -> list[dict[str, Any]]:
        return self._fleet.proxy_stats()

    async def _fault(self, broker: int, fault: str, arguments: dict[str, Any]) -> int | None:
        return self._fleet.set_fault(broker, fault, arguments)

    async def _heal(self, timeout_s: float) -> None:
        async with self._busy:
            await self._fleet.heal(timeout_s)

    async def _kill(self, broker: int) -> None:
        await self._fleet.broker(broker).kill()

    async def _terminate(self, broker: int) -> None:
        await self._fleet.broker(broker).terminate()

    async def _pause(self, broker: int) -> None:
        await self._fleet.broker(broker).pause()

    async def _resume(self, broker: int) -> None:
        await self._fleet.broker(broker).resume()

    async def _restart(self, broker: int, wait: bool, timeout_s: float) -> None:
        await self._fleet.restart_broker(broker, wait=wait, timeout_s=timeout_s)

    async def _start_broker(self, broker: int, wait: bool, timeout_s: float) -> None:
        await self._fleet.start_broker(broker, wait=wait, timeout_s=timeout_s)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def main() -> None:
    """Command line entry point: the directory, and ``--attached`` when stdin is the lifeline."""
    directory = Path(sys.argv[1])
    launch = Launch.read(directory)

    async def run() -> None:
        await Supervisor(directory, launch).serve(attached="--attached" in sys.argv[2:])

    try:
        asyncio.run(run())
    finally:
        # asyncio.run() has cancelled a pending start and stopped its brokers.
        if not launch.keep:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
