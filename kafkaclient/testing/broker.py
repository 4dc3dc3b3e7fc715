"""One Kafka broker: its files, its JVM, its signals."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from kafkaclient.testing.errors import BrokerStartError, LocalClusterError
from kafkaclient.testing.jre import MINIMUM_VERSION
from kafkaclient.testing.settings import HEAP_MB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "CHECKPOINT_FILE",
    "Broker",
    "BrokerProcess",
    "BrokerState",
    "Jvm",
    "dies_with_parent",
    "meta_properties",
    "render_properties",
]

CHECKPOINT_FILE = "bootstrap.checkpoint"

_AOT_VERSION = 25
_TERMINATE_TIMEOUT_S = 30.0
_QUOTED_LINES = 20
_PR_SET_PDEATHSIG = 1

_LOG_CONFIG = """\
# INFO, without the dumps of all settings, which are in server.properties
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
logger.settings.name = org.apache.kafka.common.config.AbstractConfig
logger.settings.level = WARN
logger.server.name = kafka.server.KafkaConfig
logger.server.level = WARN
logger.logs.name = org.apache.kafka.storage.internals.log.LogConfig
logger.logs.level = WARN
appender.file.name = file
appender.file.type = File
appender.file.fileName = ${sys:kafkaclient.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %-5p %m (%c)%n%ex
"""


class BrokerState(StrEnum):
    """What a broker's JVM is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class Broker(Protocol):
    """A broker that a fleet starts, breaks and ends; a method that makes no sense in the broker's
    state raises LocalClusterError."""

    @property
    def node(self) -> int: ...
    @property
    def log_dir(self) -> Path: ...
    @property
    def log_file(self) -> Path: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def state(self) -> BrokerState: ...

    async def start(self) -> None: ...
    async def kill(self) -> None: ...
    async def terminate(self, timeout_s: float = ...) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    def start_error(self) -> BrokerStartError: ...
    def address_in_use(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Jvm:
    """How to run a Java class of Kafka's.

    ``archive`` holds Kafka's classes as the JVM wants them (an AOT cache, JEP 514, from Java 25
    on, before that a class data sharing archive): with it a broker starts at half the CPU time.
    It is made by the first broker that ends in an orderly way (``record_to``), and ignored by a
    JVM that it does not fit.
    """

    java: Path
    jars: tuple[Path, ...]
    archive: Path | None = None
    major: int = MINIMUM_VERSION
    """Java's version."""
    quick: bool = False
    """Without the compiler that optimises (C2). It keeps a core busy for a broker's first minutes;
    without it one that has just started is soon as fast as it gets, which is fast enough for
    tests."""
    broker_heap_mb: int = HEAP_MB

    def command(
        self,
        main_class: str,
        arguments: Sequence[str],
        *,
        heap_mb: int,
        properties: Mapping[str, str] | None = None,
        record_to: Path | None = None,
    ) -> list[str]:
        """The command line. The JVM itself writes nothing to stdout (``-Xlog:disable``)."""
        command = [str(self.java), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-Xlog:disable"]
        if self.quick:
            command.append("-XX:TieredStopAtLevel=1")
        if record_to is not None:
            option = "AOTCacheOutput" if self.major >= _AOT_VERSION else "ArchiveClassesAtExit"
            command.append(f"-XX:{option}={record_to}")
        elif self.archive is not None and self.archive.exists():
            option = "AOTCache" if self.major >= _AOT_VERSION else "SharedArchiveFile"
            command.append(f"-XX:{option}={self.archive}")
        command += ["-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"]
        command += [f"-D{key}={value}" for key, value in (properties or {}).items()]
        command += ["-cp", os.pathsep.join(map(str, self.jars)), main_class, *arguments]
        return command


class BrokerProcess:
    """A broker in ``directory``: ``server.properties``, ``data/``, ``broker.log``, ``console.log``.

    Knows nothing of other brokers. Every method may be called in any state that makes sense of it
    and raises LocalClusterError in the others.
    """

    def __init__(self, node: int, directory: Path, jvm: Jvm) -> None:
        self.node = node
        self.directory = directory
        self.log_file = directory / "broker.log"
        self._console = directory / "console.log"
        self._jvm = jvm
        self._process: asyncio.subprocess.Process | None = None
        self._paused = False
        self._started_at = 0

    @property
    def log_dir(self) -> Path:
        return self.directory / "data"

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def pid(self) -> int | None:
        """The JVM's process id while there is one."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    @property
    def exit_code(self) -> int | None:
        """How the last JVM ended; negative is the number of a signal."""
        return None if self._process is None else self._process.returncode

    @property
    def state(self) -> BrokerState:
        if self.pid is None:
            return BrokerState.STOPPED
        return BrokerState.PAUSED if self._paused else BrokerState.RUNNING

    def prepare(self, properties: Mapping[str, str]) -> None:
        """Write the settings."""
        self.log_dir.mkdir(parents=True)
        self.properties_file.write_text(render_properties(properties), "utf-8")
        (self.directory / "log4j2.properties").write_text(_LOG_CONFIG, "utf-8")

    def format(self, checkpoint: Path, cluster_id: str, directory_id: str) -> None:
        """Make the log directory a new one, as ``kafka-storage format`` does; ``checkpoint`` is
        the file by which that tool tells a cluster its first feature levels."""
        shutil.copyfile(checkpoint, self.log_dir / CHECKPOINT_FILE)
        meta = meta_properties(self.node, cluster_id, directory_id)
        (self.log_dir / "meta.properties").write_text(meta, "utf-8")

    async def start(self, record_to: Path | None = None) -> None:
        """Start the JVM; returns at once. ``record_to``: leave a class archive at the end."""
        if self.pid is not None:
            raise LocalClusterError(f"broker {self.node} is {self.state} already")
        command = self._jvm.command(
            "kafka.Kafka",
            [str(self.properties_file)],
            heap_mb=self._jvm.broker_heap_mb,
            properties={
                "log4j2.configurationFile": str(self.directory / "log4j2.properties"),
                "kafkaclient.log": str(self.log_file),
            },
            record_to=record_to,
        )
        self._paused = False
        self._started_at = _size(self.log_file)
        with self._console.open("ab") as console:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd=self.directory,
                preexec_fn=dies_with_parent(),
            )

    async def kill(self) -> None:
        """SIGKILL; returns when the JVM is gone. A stopped broker stays stopped."""
        await self._end(signal.SIGKILL)

    async def terminate(self, timeout_s: float = _TERMINATE_TIMEOUT_S) -> None:
        """SIGTERM: an orderly end, in which the broker hands its leaderships over.

        SIGKILL follows when it takes longer than ``timeout_s``.
        """
        if self._paused:
            await self.resume()
        try:
            async with asyncio.timeout(timeout_s):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self.kill()

    async def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    async def resume(self) -> None:
        """SIGCONT: go on after :meth:`pause`."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def start_error(self) -> BrokerStartError:
        """Why the broker is not up, as far as its log since the last start tells."""
        how = "is not ready" if self.exit_code is None else f"ended with code {self.exit_code}"
        return BrokerStartError(f"broker {self.node} {how}; its log says:\n{self._quote()}")

    def address_in_use(self) -> bool:
        """Whether the broker ended because another process had taken one of its ports."""
        text = self._log_text()
        return self.pid is None and ("BindException" in text or "Address already in use" in text)

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        await process.wait()
        self._paused = False

    def _signal(self, which: signal.Signals) -> None:
        if self._process is None or self.pid is None:
            raise LocalClusterError(f"broker {self.node} is not running")
        self._process.send_signal(which)

    def _log_text(self) -> str:
        try:
            with self.log_file.open("rb") as file:
                file.seek(self._started_at)
                log = file.read()
        except FileNotFoundError:
            log = b""
        return (log + _read(self._console)).decode("utf-8", "replace")

    def _quote(self) -> str:
        lines = self._log_text().splitlines()
        telling = [line for line in lines if re.search(r"ERROR|FATAL|Exception|Caused by", line)]
        return "\n".join((telling or lines)[-_QUOTED_LINES:])


def meta_properties(node: int, cluster_id: str, directory_id: str) -> str:
    """``meta.properties``, which says whose data a log directory holds."""
    return render_properties(
        {
            "cluster.id": cluster_id,
            "directory.id": directory_id,
            "node.id": str(node),
            "version": "1",
        }
    )


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in sorted(properties.items()))


def _escape(value: str) -> str:
    value = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "\\" + value if value.startswith(" ") else value


def dies_with_parent(how: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """What a child does before it becomes a JVM, so that it never outlives this process.

    The kernel sends the signal when the thread that made the child ends, however that happens;
    elsewhere than on Linux only an orderly end of the supervisor takes the JVMs along.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, how)

    return set_death_signal


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
