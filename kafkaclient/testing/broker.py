"""One Kafka broker on this machine: its files, its JVM, its signals, and ports that stay free until
it binds them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkaclient.testing.errors import BrokerStartError, LocalClusterError
from kafkaclient.testing.settings import HOST
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.testing.jvm import Jvm


# --- Chooses ports that stay free until a broker binds them ---------------------------------------

_LOWEST = 20_000  # the first port to choose from
_EPHEMERAL_START = 32_768  # the first port for outgoing connections, by Linux's default
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CONNECTIONS = Path("/proc/net/tcp")
_TIME_WAIT = "06"  # in its fourth column


def port_range(ephemeral: str | None = None) -> range:
    """The ports to choose from, which are below the kernel's range for outgoing connections.

    A broker that restarts needs its port again. An outgoing connection may use a port of the
    ephemeral range: even a client that connects to the dead broker, which the kernel may connect to
    itself.
    """
    if ephemeral is None:
        try:
            ephemeral = _EPHEMERAL.read_text("ascii")
        except OSError:
            ephemeral = str(_EPHEMERAL_START)
    end = int(ephemeral.split()[0])
    return range(_LOWEST, end) if end >= _LOWEST + 1000 else range(_LOWEST, _EPHEMERAL_START)


def free_ports(
    count: int, chooser: random.Random | None = None, hold: contextlib.ExitStack | None = None
) -> list[int]:
    """Distinct random ports on 127.0.0.1 without a listener.

    The choice is random, so that clusters that start at the same time choose different ports. On
    Linux no other process chooses them until ``hold`` is closed, and listeners with SO_REUSEADDR,
    as those of Java and asyncio, can bind them meanwhile, again and again. Without it, the caller
    must handle a port that another process binds first.
    """
    candidates = list(port_range())
    (chooser or random.SystemRandom()).shuffle(candidates)
    ports: list[int] = []
    with contextlib.ExitStack() as probes:
        for port in candidates:
            if _bound(probes.enter_context(socket.socket()), port):
                ports.append(port)
            if len(ports) == count:
                _keep(probes, hold)
                return ports
    raise LocalClusterError(f"there are fewer than {count} free ports on {HOST} in {port_range()}")


def ports_from(
    first: int, count: int, hold: contextlib.ExitStack | None = None
) -> list[int] | None:
    """``first`` and the ports after it; None if another process has one of them. ``hold`` is that
    of :func:`free_ports`. Connections to an ended listener may still be in TIME_WAIT."""
    ports = list(range(first, first + count))
    with contextlib.ExitStack() as probes:
        for port in ports:
            probe = probes.enter_context(socket.socket())
            if not _bound(probe, port):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if not (_in_time_wait(port) and _bound(probe, port)):
                    return None
        _keep(probes, hold)
    return ports


def _bound(probe: socket.socket, port: int) -> bool:
    with contextlib.suppress(OSError):
        probe.bind((HOST, port))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # others may listen from now on
        return True
    return False


def _keep(probes: contextlib.ExitStack, hold: contextlib.ExitStack | None) -> None:
    if hold is not None and sys.platform == "linux":
        hold.enter_context(probes.pop_all())


def _in_time_wait(port: int) -> bool:
    """Whether that, and not another socket, can explain why the port cannot be bound."""
    try:
        lines = _CONNECTIONS.read_text("ascii").splitlines()[1:]
    except OSError:
        return True  # not on Linux, where alone ports are held
    states = {(line.split()[1].rpartition(":")[2], line.split()[3]) for line in lines}
    return (f"{port:04X}", _TIME_WAIT) in states


# --- Requests from a broker the members of its cluster --------------------------------------------

_CALL = MetadataCall(topics=(), allow_auto_topic_creation=False)
_VERSION = 4
_TIMEOUT_S = 2.0
_MAX_FRAME = 1 << 20


class Membership(NamedTuple):
    """The cluster's id and the brokers that are up (registered and not fenced)."""

    cluster_id: str | None
    brokers: frozenset[int]


async def membership(port: int) -> Membership | None:
    """The answer of the broker at this port on 127.0.0.1; None if it does not answer."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(_CALL.encode(_VERSION, 0, ""))
                size = int.from_bytes(await reader.readexactly(4), signed=True)
                if not 0 < size < _MAX_FRAME:
                    return None
                return parse_membership(await reader.readexactly(size))
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


def parse_membership(response: bytes) -> Membership:
    """Parse a Metadata response of version 4, starting at its correlation id."""
    found = _CALL.decode(_VERSION, response[4:])
    return Membership(found.cluster_id, frozenset(broker.node_id for broker in found.brokers))


# Where Kafka's storage tool writes the initial feature levels; the second file since Kafka 4.4.
CHECKPOINT_FILES = (
    "bootstrap.checkpoint",
    "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
)

_TERMINATE_TIMEOUT_S = 30.0  # seconds until SIGKILL follows SIGTERM
_QUOTED_LINES = 20  # lines of a broker's log in an error message
_PR_SET_PDEATHSIG = 1  # an option of prctl(2)

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
    """The state of a broker's JVM."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class FleetBroker(Protocol):
    """A broker that a fleet controls. Methods raise LocalClusterError in a wrong state."""

    node: int
    log_dir: Path
    log_file: Path

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


class BrokerProcess:
    """A broker in ``directory``: ``server.properties``, ``data/``, ``broker.log``, ``console.log``.

    A method that the broker's state does not allow raises LocalClusterError.
    """

    def __init__(self, node: int, directory: Path, jvm: Jvm) -> None:
        self.node = node
        self.directory = directory
        self.log_dir = directory / "data"
        self.log_file = directory / "broker.log"
        self.properties_file = directory / "server.properties"
        self._console = directory / "console.log"
        self._jvm = jvm
        self._process: asyncio.subprocess.Process | None = None
        self._paused = False
        self._started_at = 0

    @property
    def pid(self) -> int | None:
        """The process id of the JVM; None if there is no JVM."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last JVM; negative for the number of a signal."""
        return None if self._process is None else self._process.returncode

    @property
    def state(self) -> BrokerState:
        if self.pid is None:
            return BrokerState.STOPPED
        return BrokerState.PAUSED if self._paused else BrokerState.RUNNING

    def prepare(self, properties: Mapping[str, str]) -> None:
        """Write the broker's settings."""
        self.log_dir.mkdir(parents=True)
        self.properties_file.write_text(render_properties(properties), "utf-8")
        (self.directory / "log4j2.properties").write_text(_LOG_CONFIG, "utf-8")

    def format(self, checkpoint: Path, name: str, cluster_id: str, directory_id: str) -> None:
        """Format the log directory, as ``kafka-storage format`` does. ``checkpoint`` is the file of
        that tool with the initial feature levels of a cluster, and ``name`` its name there."""
        (self.log_dir / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(checkpoint, self.log_dir / name)
        meta = meta_properties(self.node, cluster_id, directory_id)
        (self.log_dir / "meta.properties").write_text(meta, "utf-8")

    async def start(self, record_to: Path | None = None) -> None:
        """Start the JVM, which writes a class archive to ``record_to`` at its end."""
        if self.pid is not None:
            raise LocalClusterError(f"broker {self.node} cannot start: it is already {self.state}")
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
        self._started_at = len(_read(self.log_file))
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
        """Send SIGKILL and wait for the end of the JVM. A stopped broker stays stopped."""
        await self._end(signal.SIGKILL)

    async def terminate(self, timeout_s: float = _TERMINATE_TIMEOUT_S) -> None:
        """Send SIGTERM: the broker transfers its leaderships and shuts down in an orderly way.

        SIGKILL follows after ``timeout_s``.
        """
        if self._paused:
            await self.resume()
        try:
            async with asyncio.timeout(timeout_s):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self.kill()

    async def pause(self) -> None:
        """Send SIGSTOP: connections stay open, and the broker answers nothing."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    async def resume(self) -> None:
        """Send SIGCONT: continue after :meth:`pause`."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def start_error(self) -> BrokerStartError:
        """The error for a broker that is not up, with lines of its log since the last start."""
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
        log = _read(self.log_file, self._started_at) + _read(self._console)
        return log.decode("utf-8", "replace")

    def _quote(self) -> str:
        lines = self._log_text().splitlines()
        telling = [line for line in lines if re.search(r"ERROR|FATAL|Exception|Caused by", line)]
        return "\n".join((telling or lines)[-_QUOTED_LINES:])


def meta_properties(node: int, cluster_id: str, directory_id: str) -> str:
    """The text of ``meta.properties``, which identifies the broker of a log directory."""
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
    value = re.sub(
        "[^ -~]",
        lambda one: "\\u" + one[0].encode("utf-16-be").hex("/", 2).replace("/", "\\u"),
        value.replace("\\", "\\\\"),
    )
    return "\\" + value if value.startswith(" ") else value


def dies_with_parent(how: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """A ``preexec_fn`` for child processes that must not outlive this process.

    On Linux the kernel sends the signal to the child when the thread that created it ends. On other
    systems only an orderly end of the supervisor ends the JVMs.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, how)

    return set_death_signal


def _read(path: Path, start: int = 0) -> bytes:
    """The bytes of a file from ``start`` on; none of a file that does not exist."""
    try:
        return path.read_bytes()[start:]
    except FileNotFoundError:
        return b""
