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
from dataclasses import asdict, dataclass
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.testing.containers import ContainerFleet
from kafkaclient.testing.errors import LocalClusterError
from kafkaclient.testing.fleet import Fleet
from kafkaclient.testing.jvm import Jvm
from kafkaclient.testing.security import ClusterSecurity
from kafkaclient.testing.settings import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable


LAUNCH_FILE = "launch.json"
SOCKET_FILE = "control.sock"
_MAX_LINE = 1 << 20
_SIGNALS = ("kill", "pause", "resume", "terminate")
"""The methods of a broker that are commands."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments of a supervisor, which it reads from a file."""

    spec: ClusterSpec
    jvm: Jvm
    template: Path
    """The cached result of formatting for clusters with the same settings."""
    keep: bool
    """Whether to keep the directory after the end of the cluster."""
    compose: str | None = None
    """The Docker Compose project whose containers are the brokers; None for processes."""

    def write(self, directory: Path) -> None:
        (directory / LAUNCH_FILE).write_text(json.dumps(asdict(self), default=str), "utf-8")

    @classmethod
    def read(cls, directory: Path) -> Launch:
        """Raises :class:`LocalClusterError` if another version has written the file."""
        values = json.loads((directory / LAUNCH_FILE).read_text("utf-8"))
        try:
            return cls._from_json(values)
        except (KeyError, TypeError) as error:
            raise LocalClusterError(
                f"the cluster in {directory} was started by another version of kafkaclient; stop "
                "it with `kafkaclient cluster down`, and start it again"
            ) from error

    @classmethod
    def _from_json(cls, values: dict[str, Any]) -> Launch:
        spec, jvm = values.pop("spec"), values.pop("jvm")
        if spec["security"] is not None:
            spec["security"] = ClusterSecurity.from_json(spec["security"])
        jvm |= {
            "java": Path(jvm["java"]),
            "jars": tuple(map(Path, jvm["jars"])),
            "archive": jvm["archive"] and Path(jvm["archive"]),
        }
        template = Path(values.pop("template"))
        return cls(ClusterSpec(**spec), Jvm(**jvm), template, **values)


class Supervisor:
    """Serves commands for one fleet until ``stop``, a signal, or the end of its parent."""

    def __init__(self, directory: Path, launch: Launch) -> None:
        self._directory = directory
        self._listeners: set[asyncio.StreamWriter] = set()
        self._ended = asyncio.Event()
        self._orderly = True
        self._busy = asyncio.Lock()
        parts = (launch.spec, launch.jvm, directory, launch.template, self._say)
        fleet = ContainerFleet(launch.compose, *parts) if launch.compose else Fleet(*parts)
        self._fleet = fleet
        self._commands: dict[str, Callable[..., Any]] = {
            "describe": fleet.describe,
            "fault": fleet.set_fault,
            "heal": self._heal,
            "proxy_stats": fleet.proxy_stats,
            "restart": fleet.restart_broker,
            "start": self._start,
            "start_broker": fleet.start_broker,
            "stop": self._stop,
            **{name: partial(self._signal, name) for name in _SIGNALS},
        }

    async def serve(self, *, attached: bool) -> None:
        """Run until the end, then stop all JVMs."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._ended.set)
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
                supervisor._ended.set()

        await loop.connect_read_pipe(Lifeline, sys.stdin.buffer)

    def _say(self, text: str) -> None:
        for writer in self._listeners:
            writer.write(_line({"progress": text}))

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
            result = command(**request)
            return {"result": await result if isawaitable(result) else result}
        except (KafkaError, TypeError, OSError) as error:
            return {"error": str(error), "kind": type(error).__name__}
        finally:
            self._listeners.discard(writer)

    async def _start(self, timeout_s: float) -> None:
        async with self._busy:
            try:
                await self._fleet.start(timeout_s)
            except BaseException:
                self._ended.set()
                raise

    async def _stop(self) -> None:
        # Answer only after the JVMs have ended.
        async with self._busy:
            await self._fleet.stop()
            self._ended.set()

    async def _heal(self, timeout_s: float) -> None:
        async with self._busy:
            await self._fleet.heal(timeout_s)

    async def _signal(self, name: str, broker: int) -> None:
        await getattr(self._fleet.broker(broker), name)()


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
