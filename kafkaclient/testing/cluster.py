"""Real Kafka brokers for tests: :class:`LocalCluster` starts them on this machine without Docker.

:class:`ComposeCluster` uses the containers of docker-compose.yml instead, and
:class:`ExternalCluster` a cluster that is managed elsewhere.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kafkaclient.errors import ConfigError
from kafkaclient.testing.control import (
    START_TIMEOUT_S,
    RemoteProxy,
    SupervisorClient,
    launch_supervisor,
    prepare_launch,
    start_brokers,
)
from kafkaclient.testing.errors import ClusterNotRunningError
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jvm import Jvm, ToolResult, find_java
from kafkaclient.testing.security import ClusterSecurity
from kafkaclient.testing.settings import DEFAULT_VERSION, HEAP_MB, ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "BrokerStatus",
    "ClusterHandle",
    "ComposeCluster",
    "ExternalCluster",
    "LocalCluster",
    "ToolResult",
]

_STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of a local cluster; both ports are on 127.0.0.1."""

    node_id: int
    port: int
    proxied_port: int
    state: str
    pid: int | None
    controller: bool
    rack: str | None
    log_dir: Path
    log_file: Path


class ClusterHandle:
    """Controls a running cluster: its brokers and their fault proxies.

    The coroutines may be awaited in any event loop. Brokers are numbered from 0, times are in
    seconds. Every method may raise :class:`~kafkaclient.testing.errors.LocalClusterError`,
    ConfigError for invalid arguments, and ClusterNotRunningError if the cluster has stopped.
    """

    def __init__(self, running: SupervisorClient | None) -> None:
        self._current = running

    @property
    def _running(self) -> SupervisorClient:
        if self._current is None:
            raise ClusterNotRunningError("the cluster is not running; use it in `async with`")
        return self._current

    @property
    def _description(self) -> dict[str, Any]:
        return self._running.description

    @property
    def bootstrap(self) -> str:
        """The brokers' direct addresses: comma-separated ``127.0.0.1:port``."""
        return str(self._description["bootstrap"])

    @property
    def proxied_bootstrap(self) -> str:
        """The addresses of the fault proxies. Clients that bootstrap here use only proxies."""
        return str(self._description["proxied_bootstrap"])

    def secured_bootstrap(self, listener: str) -> str:
        """The brokers' addresses on a listener of ``security``, such as ``SASL_SSL``."""
        secured: dict[str, str] = self._description["secured"]
        if listener not in secured:
            raise ConfigError(f"there is no listener {listener!r}: {', '.join(secured) or 'none'}")
        return secured[listener]

    @property
    def certificates(self) -> Path:
        """With ``security``: the directory of ``ca.pem`` and ``client.pem`` (with its key)."""
        return self.directory / "certificates"

    @property
    def brokers(self) -> tuple[int, ...]:
        """The node ids of all brokers, up or down."""
        return tuple(broker["node_id"] for broker in self._description["brokers"])

    @property
    def version(self) -> str:
        """Kafka's version."""
        return str(self._description["version"])

    @property
    def directory(self) -> Path:
        """The directory with the brokers' settings, logs and data, while the cluster runs."""
        return Path(self._description["directory"])

    def log_dir(self, broker: int) -> Path:
        """The broker's log directory, which contains ``topic-partition/*.log``."""
        return Path(self._static(broker)["log_dir"])

    def log_file(self, broker: int) -> Path:
        """The log file of the broker's JVM."""
        return Path(self._static(broker)["log_file"])

    def address(self, broker: int) -> tuple[str, int]:
        """Host and port of the broker's direct listener."""
        return "127.0.0.1", int(self._static(broker)["port"])

    def proxy(self, broker: int) -> RemoteProxy:
        """The broker's fault proxy, which forwards connections to :attr:`proxied_bootstrap`."""
        self._static(broker)
        return RemoteProxy(self._running, broker)

    async def status(self) -> tuple[BrokerStatus, ...]:
        """The current state of the brokers."""
        description = await self._call("describe")
        return tuple(
            BrokerStatus(
                **broker
                | {"log_dir": Path(broker["log_dir"]), "log_file": Path(broker["log_file"])}
            )
            for broker in description["brokers"]
        )

    async def kill(self, broker: int) -> None:
        """Send SIGKILL and wait for the end of the JVM. Does nothing if the broker is stopped."""
        await self._call("kill", broker=broker)

    async def terminate(self, broker: int) -> None:
        """Send SIGTERM and wait: the broker transfers its leaderships, then shuts down."""
        await self._call("terminate", broker=broker)

    async def pause(self, broker: int) -> None:
        """Send SIGSTOP: the kernel accepts connections and data, the broker answers nothing."""
        await self._call("pause", broker=broker)

    async def resume(self, broker: int) -> None:
        """Send SIGCONT: continue after :meth:`pause`."""
        await self._call("resume", broker=broker)

    async def start_broker(
        self, broker: int, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Start a stopped broker with its earlier ports and data.

        ``wait`` until it serves clients. That needs a majority of the controllers. Kafka registers
        a restarted broker only when the session of the killed broker has expired, 9 s after its
        last heartbeat (``broker.session.timeout.ms``)."""
        await self._call("start_broker", broker=broker, wait=wait, timeout_s=timeout_s)

    async def restart(
        self, broker: int, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """:meth:`terminate` the broker if it is running, then :meth:`start_broker`."""
        await self._call("restart", broker=broker, wait=wait, timeout_s=timeout_s)

    async def heal(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Heal all proxies, resume paused brokers and start stopped brokers. Returns when every
        broker sees all other brokers."""
        await self._call("heal", timeout_s=timeout_s)

    async def delay_produce(self, broker: int, seconds: float) -> None:
        """Delay each of the broker's Produce responses in the proxy, one after the other (KIP-794's
        slow broker); 0 ends the delay. The other faults are methods of :meth:`proxy`."""
        await self.proxy(broker).delay_produce(seconds)

    async def proxy_stats(self) -> tuple[dict[str, Any], ...]:
        """The counters of each broker's proxy: ``connections``, ``request_bytes``,
        ``response_bytes``, ``produce_bytes``, and ``requests`` and ``responses`` by API key."""
        return tuple(
            stats
            | {
                name: {int(key): count for key, count in stats[name].items()}
                for name in ("requests", "responses")
            }
            for stats in await self._call("proxy_stats")
        )

    async def run_tool(self, main_class: str, *arguments: str, stdin: bytes = b"") -> ToolResult:
        """Run one of Kafka's Java tools, for example ``org.apache.kafka.tools.DumpLogSegments``."""
        return await self._running.launch.jvm.run_tool(main_class, arguments, stdin)

    async def _call(self, command: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._running.call, command, **arguments)

    def _static(self, broker: int) -> dict[str, Any]:
        brokers: list[dict[str, Any]] = self._description["brokers"]
        if not 0 <= broker < len(brokers):
            raise ConfigError(f"there is no broker {broker}; choose one of 0 to {len(brokers) - 1}")
        return brokers[broker]


class LocalCluster(ClusterHandle):
    """A Kafka cluster that runs during an ``async with`` block::

        async with LocalCluster(brokers=3) as cluster:
            async with Producer(cluster.proxied_bootstrap) as producer:
                await cluster.kill(0)

    ``racks``: one rack name per broker. ``config``: settings of every broker by Kafka's dotted
    names, in addition to :func:`~kafkaclient.testing.settings.shared_settings`. ``version``: a
    Kafka version with a lock file of its jars; this package has those of 4.4.0, 4.3.1, 4.0.2 and
    3.9.2.
    ``features``: feature levels for formatting the storage, as in ``{"transaction.version": 1}``.
    ``security``: TLS and SASL listeners in addition to the plain ones. ``directory``: an empty or
    missing directory for logs and data, which is kept; by default a temporary directory.
    ``long_lived``: the JVMs optimize the brokers' code, which uses a core per broker for the first
    minutes; for benchmarks. ``heap_mb``: the heap of each broker in MB; the default is enough for
    several hundred partitions.

    Brokers listen on 127.0.0.1 only. They stop at the end of the block, or when this process dies.
    The first use of a version downloads its jars (56 MB, and 32 to 55 MB for each further version)
    into the user's cache. The constructor raises ConfigError for invalid arguments. Entering raises
    JavaNotFoundError, JarsUnavailableError or BrokerStartError.
    """

    _compose: str | None = None

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Sequence[str] | None = None,
        security: ClusterSecurity | None = None,
        config: Mapping[str, object] | None = None,
        version: str = DEFAULT_VERSION,
        features: Mapping[str, int] | None = None,
        directory: Path | None = None,
        long_lived: bool = False,
        heap_mb: int = HEAP_MB,
    ) -> None:
        if security is not None and not isinstance(security, ClusterSecurity):
            raise ConfigError(f"security must be a ClusterSecurity or None, not {security!r}")
        super().__init__(None)
        self._spec = ClusterSpec(
            brokers, racks, config or {}, version, security, features or {}, long_lived, heap_mb
        )
        self._directory = directory
        self._supervisor: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        where = self.bootstrap if self._current else "not running"
        return f"<LocalCluster of {self._spec.brokers}, Kafka {self._spec.version}: {where}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the brokers. Returns when each serves clients and sees all other brokers."""
        if self._supervisor is not None:
            raise ConfigError("the cluster is already running")
        keep = self._directory is not None
        launch = await prepare_launch(self._spec, keep=keep, compose=self._compose)
        directory = await asyncio.to_thread(_work_directory, self._directory)
        try:
            self._supervisor = launch_supervisor(directory, launch, attached=True)
            self._current = await start_brokers(directory, self._supervisor, timeout_s)
        except BaseException:
            await self._end(directory)
            raise

    async def stop(self) -> None:
        """Stop the brokers and delete their data, unless there is a ``directory``."""
        if self._current is None:
            return
        try:
            await self._call("stop")
        except ClusterNotRunningError:
            pass
        finally:
            await self._end(self.directory)

    async def _end(self, directory: Path) -> None:
        supervisor, self._supervisor, self._current = self._supervisor, None, None
        if supervisor is not None:
            await asyncio.to_thread(_close_lifeline, supervisor)
        if self._directory is None:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


class ComposeCluster(LocalCluster):
    """The three brokers of a running Docker Compose ``project``, created from docker-compose.yml.

    It has the methods of :class:`LocalCluster`. They kill, stop, pause and start the containers
    with the ``docker`` command, and a fault proxy listens at each address that a ``PROXIED``
    listener advertises. ``log_dir`` is readable if the containers' ``KAFKA_LOG_DIRS`` is mounted
    from a directory of this machine. Kafka's tools run on this machine. Entering raises
    LocalClusterError if the project has no containers; leaving does not stop them."""

    def __init__(self, project: str) -> None:
        super().__init__(3)
        self._compose = project

    def __repr__(self) -> str:
        where = self.bootstrap if self._current else "not in use"
        return f"<ComposeCluster {self._compose}: {where}>"


class ExternalCluster:
    """A running cluster whose brokers cannot be stopped or slowed down.

    ``bootstrap`` is a comma-separated list of ``host:port``. There are no fault proxies, so
    :attr:`proxied_bootstrap` is the same.
    """

    def __init__(self, bootstrap: str) -> None:
        servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
        if not servers or not all(":" in server for server in servers):
            raise ConfigError(f"bootstrap must be host:port[,host:port...], not {bootstrap!r}")
        self.bootstrap: str = ",".join(servers)
        self.proxied_bootstrap: str = self.bootstrap

    async def run_tool(self, main_class: str, *arguments: str, stdin: bytes = b"") -> ToolResult:
        """Run one of Kafka's Java tools on this machine, with the jars of Kafka 4.4.0.

        The first use on a machine fetches the jars. Raises JavaNotFoundError and
        JarsUnavailableError, as :class:`LocalCluster` does.
        """
        jvm = await asyncio.to_thread(
            lambda: Jvm(find_java().path, JarCache().ensure(read_lock(DEFAULT_VERSION)))
        )
        return await jvm.run_tool(main_class, arguments, stdin)

    def __repr__(self) -> str:
        return f"<ExternalCluster {self.bootstrap}>"


def _close_lifeline(supervisor: subprocess.Popen[bytes]) -> None:
    """End the supervisor and its JVMs."""
    try:
        supervisor.communicate(timeout=_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def _work_directory(given: Path | None) -> Path:
    if given is None:
        # A short name: the path of a Unix socket is limited to about 100 bytes.
        return Path(tempfile.mkdtemp(prefix="kafkaclient-"))
    given.mkdir(parents=True, exist_ok=True)
    if any(given.iterdir()):
        raise ConfigError(f"the directory for the cluster is not empty: {given}")
    return given.resolve()
