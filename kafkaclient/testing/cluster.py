"""Real Kafka brokers on this machine, without Docker: :class:`LocalCluster`."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kafkaclient.errors import ConfigError
from kafkaclient.testing.control import (
    START_TIMEOUT_S,
    Control,
    launch_supervisor,
    prepare_launch,
)
from kafkaclient.testing.errors import ClusterNotRunningError
from kafkaclient.testing.jars import JarCache
from kafkaclient.testing.remote_proxy import RemoteProxy
from kafkaclient.testing.security import ClusterSecurity
from kafkaclient.testing.settings import DEFAULT_VERSION, HEAP_MB, ClusterSpec
from kafkaclient.testing.tools import ToolResult, run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.testing.supervisor import Launch

__all__ = ["BrokerStatus", "ClusterHandle", "LocalCluster", "Running", "ToolResult"]

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


class Running(NamedTuple):
    """What a handle of a running cluster works with."""

    control: Control
    launch: Launch
    description: dict[str, Any]
    """The supervisor's; of it only what does not change while the cluster runs is used."""


class ClusterHandle:
    """A running cluster and everything that can be done to it.

    The coroutines may be awaited in any event loop. Brokers are numbered from 0, times are
    seconds. All raise :class:`~kafkaclient.testing.errors.LocalClusterError` (or ConfigError for
    arguments that make no sense), ClusterNotRunningError when the cluster has ended.
    """

    def __init__(self, running: Running | None) -> None:
        self._current = running

    @property
    def _running(self) -> Running:
        if self._current is None:
            raise ClusterNotRunningError("the cluster is not running; use it in `async with`")
        return self._current

    @property
    def _description(self) -> dict[str, Any]:
        return self._running.description

    @property
    def bootstrap(self) -> str:
        """The brokers' direct addresses, ``127.0.0.1:port`` joined by commas."""
        return str(self._description["bootstrap"])

    @property
    def proxied_bootstrap(self) -> str:
        """The same brokers through their fault proxies; clients that start here stay there."""
        return str(self._description["proxied_bootstrap"])

    def secured_bootstrap(self, listener: str) -> str:
        """The brokers' addresses on a listener of ``security``, such as ``SASL_SSL``."""
        secured: dict[str, str] = self._description["secured"]
        if listener not in secured:
            raise ConfigError(f"there is no listener {listener!r}: {', '.join(secured) or 'none'}")
        return secured[listener]

    @property
    def certificates(self) -> Path:
        """With ``security``, where ``ca.pem`` and ``client.pem`` (certificate and key) are."""
        return self.directory / "certificates"

    @property
    def brokers(self) -> tuple[int, ...]:
        """The brokers' node ids, whether they are up or not."""
        return tuple(broker["node_id"] for broker in self._description["brokers"])

    @property
    def version(self) -> str:
        """Kafka's version."""
        return str(self._description["version"])

    @property
    def directory(self) -> Path:
        """Where the brokers' settings, logs and data are while the cluster runs."""
        return Path(self._description["directory"])

    def log_dir(self, broker: int) -> Path:
        """The directory that holds the broker's partitions, ``topic-partition/*.log``."""
        return Path(self._static(broker)["log_dir"])

    def log_file(self, broker: int) -> Path:
        """The broker's own log."""
        return Path(self._static(broker)["log_file"])

    def address(self, broker: int) -> tuple[str, int]:
        """Host and port of the broker's direct listener."""
        return "127.0.0.1", int(self._static(broker)["port"])

    def proxy(self, broker: int) -> RemoteProxy:
        """The broker's fault proxy; it sees what goes through :attr:`proxied_bootstrap`."""
        self._static(broker)
        return RemoteProxy(self._running.control, broker)

    async def status(self) -> tuple[BrokerStatus, ...]:
        """The brokers as they are now."""
        description = await self._call("describe")
        return tuple(
            BrokerStatus(
                **broker
                | {"log_dir": Path(broker["log_dir"]), "log_file": Path(broker["log_file"])}
            )
            for broker in description["brokers"]
        )

    async def kill(self, broker: int) -> None:
        """SIGKILL; returns when the JVM is gone. Does nothing when it is gone already."""
        await self._call("kill", broker=broker)

    async def terminate(self, broker: int) -> None:
        """SIGTERM: the broker moves its leaderships away, then ends; returns when it has."""
        await self._call("terminate", broker=broker)

    async def pause(self, broker: int) -> None:
        """SIGSTOP: the kernel keeps accepting and acknowledging, the broker answers nothing."""
        await self._call("pause", broker=broker)

    async def resume(self, broker: int) -> None:
        """SIGCONT after :meth:`pause`."""
        await self._call("resume", broker=broker)

    async def start_broker(
        self, broker: int, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Start a broker that was stopped, with its ports and data.

        ``wait`` until it serves clients. That needs a majority of the controllers, and Kafka lets
        a broker in again only when the session of its former life has run out, 9 s after that
        life's last heartbeat (``broker.session.timeout.ms``).
        """
        await self._call("start_broker", broker=broker, wait=wait, timeout_s=timeout_s)

    async def restart(
        self, broker: int, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """:meth:`terminate` (nothing, when it is stopped already), then :meth:`start_broker`."""
        await self._call("restart", broker=broker, wait=wait, timeout_s=timeout_s)

    async def heal(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Make everything well again: proxies healed, paused brokers resumed, stopped ones
        started; returns when every broker sees all the others."""
        await self._call("heal", timeout_s=timeout_s)

    async def delay_produce(self, broker: int, seconds: float) -> None:
        """Delay each of the broker's Produce responses on the proxied way, one after the other.

        KIP-794's slow broker; 0 ends it. The other faults are methods of :meth:`proxy`.
        """
        await self.proxy(broker).delay_produce(seconds)

    async def proxy_stats(self) -> tuple[dict[str, Any], ...]:
        """Per broker the proxy's counters: ``connections``, ``request_bytes``,
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
        return await run_tool(self._running.launch.jvm(), main_class, arguments, stdin)

    async def _call(self, command: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self._running.control.call, command, **arguments)

    def _static(self, broker: int) -> dict[str, Any]:
        brokers: list[dict[str, Any]] = self._description["brokers"]
        if not 0 <= broker < len(brokers):
            raise ConfigError(f"there is no broker {broker}: they are 0 to {len(brokers) - 1}")
        return brokers[broker]


class LocalCluster(ClusterHandle):
    """A Kafka cluster of its own, for the length of an ``async with``::

        async with LocalCluster(brokers=3) as cluster:
            async with Producer(cluster.proxied_bootstrap) as producer:
                await cluster.kill(0)

    ``racks``: one rack name per broker. ``config``: settings for every broker, by Kafka's dotted
    names, over those of :func:`~kafkaclient.testing.settings.shared_settings`. ``version``: a
    Kafka version there is a lock of jars for; those of 4.3.1, 4.0.2 and 3.9.2 come with this
    package. ``features``: levels to format the storage with, as in ``{"transaction.version": 1}``,
    instead of the version's own. ``security``: listeners with TLS and SASL beside the plain ones.
    ``directory``: an empty or missing directory for logs and data, kept afterwards; by default a
    temporary one that goes with the cluster. ``long_lived``: the JVMs compile the brokers' code for
    throughput, which takes their first minutes a core each: for benchmarks, when they are warm.
    ``heap_mb``: of each broker; the default is enough for some hundred partitions.

    Brokers listen on 127.0.0.1 only. They end with the block, and also when this process dies
    without leaving it. The first use of a version on a machine fetches its jars (56 MB, and 32 to
    55 MB for each further version) into the user's cache. Raises ConfigError at once for
    arguments that cannot work, and on entering JavaNotFoundError, JarsUnavailableError or
    BrokerStartError, each saying what to do.
    """

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
        self._spec = ClusterSpec.build(
            brokers,
            racks,
            config or {},
            version,
            security,
            features,
            long_lived=long_lived,
            heap_mb=heap_mb,
        )
        self._kept = directory
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
        """Bring the brokers up; returns when each serves clients and sees all the others."""
        if self._supervisor is not None:
            raise ConfigError("the cluster is running already")
        cache = JarCache()
        try:
            launch = await asyncio.to_thread(self._prepare, cache)
        finally:
            cache.stop_fetching()
        directory = await asyncio.to_thread(_work_directory, self._kept)
        try:
            self._supervisor = launch_supervisor(directory, launch, attached=True)
            control = Control(directory)
            await asyncio.to_thread(control.wait, self._supervisor)
            await asyncio.to_thread(control.call, "start", timeout_s=timeout_s)
            description = await asyncio.to_thread(control.call, "describe")
        except BaseException:
            await self._end(directory)
            raise
        self._current = Running(control, launch, description)

    def _prepare(self, cache: JarCache) -> Launch:
        return prepare_launch(self._spec, cache, keep=self._kept is not None)

    async def stop(self) -> None:
        """End the brokers; their data goes with them. Does nothing when they have ended."""
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
        if self._kept is None:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _close_lifeline(supervisor: subprocess.Popen[bytes]) -> None:
    """End the supervisor, and with it the JVMs."""
    try:
        supervisor.communicate(timeout=_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def _work_directory(kept: Path | None) -> Path:
    if kept is None:
        # Short names: the path of a Unix socket is limited to about a hundred bytes.
        return Path(tempfile.mkdtemp(prefix="kafkaclient-"))
    kept.mkdir(parents=True, exist_ok=True)
    if any(kept.iterdir()):
        raise ConfigError(f"the directory for the cluster is not empty: {kept}")
    return kept.resolve()
