"""The brokers and fault proxies of one cluster, which run in the supervisor process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError
from kafkaclient.testing.broker import (
    CHECKPOINT_FILES,
    BrokerProcess,
    BrokerState,
    free_ports,
    membership,
    ports_from,
)
from kafkaclient.testing.errors import BrokerStartError
from kafkaclient.testing.proxy import FaultProxy, ProxyCounters
from kafkaclient.testing.proxy.fault_proxy import PROXY_FAULTS
from kafkaclient.testing.security import make_certificates
from kafkaclient.testing.settings import (
    HOST,
    ClusterSpec,
    Ports,
    Secured,
    broker_properties,
    controller_ids,
    new_uuid,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkaclient.testing.broker import FleetBroker
    from kafkaclient.testing.jvm import Jvm

_FIRST_WITH_SNAPSHOT = (4, 4)
"""The first Kafka version whose storage tool writes a snapshot of the metadata log."""

_PORT_ATTEMPTS = 4  # starts with different ports before the fleet gives up
_POLL_S = 0.1  # seconds between two checks whether a broker is ready
_RECORDING_TIMEOUT_S = 50.0  # seconds for an orderly end that writes a class archive


class PortsTakenError(Exception):
    """Another process uses one of the chosen ports."""


class Fleet:
    """The brokers of one cluster and their fault proxies.

    ``directory`` contains all files of the cluster. ``template`` is the cached result of formatting
    for clusters with the same settings. ``say`` gets lines of progress."""

    def __init__(
        self,
        spec: ClusterSpec,
        jvm: Jvm,
        directory: Path,
        template: Path,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._jvm = replace(jvm, quick=not spec.long_lived, broker_heap_mb=spec.heap_mb)
        self._directory = directory
        self._template = template
        self._say = say
        self._cluster_id = new_uuid()
        self._first_port = spec.port
        self._held = contextlib.ExitStack()  # keeps the ports of stopped brokers from others
        self._holds = True
        self._ports: list[Ports] = []
        self._secured: list[Secured | None] = []
        self._brokers: list[FleetBroker] = []
        self._proxies: list[FaultProxy] = []

    # --- start and stop ---

    async def start(self, timeout_s: float) -> None:
        """Start every broker and wait until each sees all brokers.

        Raises BrokerStartError after it stopped all brokers.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                await self._try_start(deadline)
            except PortsTakenError:
                await self._end_all()
                if attempt == _PORT_ATTEMPTS:
                    raise self._brokers[0].start_error() from None
                self._first_port = None
                # Some systems may let no broker listen on a held port: the last attempt holds none.
                self._holds = attempt < _PORT_ATTEMPTS - 1
                self._say("another process uses a chosen port: starting again with other ports")
            except BaseException:
                await self._end_all()
                raise
            else:
                return

    async def stop(self, *, orderly: bool = True) -> None:
        """Kill all brokers. SIGKILL is enough because the data is deleted. ``orderly`` allows time
        to write a class archive if there is none."""
        archive = self._jvm.archive
        if orderly and archive is not None and self._recording.parent.is_dir():
            first = self._brokers[0] if self._brokers else None
            if first is not None and not archive.exists() and first.state is BrokerState.RUNNING:
                await first.terminate(_RECORDING_TIMEOUT_S)
                if self._recording.exists():
                    _install(self._recording, archive)
        await self._end_all()

    async def _try_start(self, deadline: float) -> None:
        spec = self._spec
        secure = spec.secure_listeners
        count = (len(Ports._fields) + len(secure)) * spec.brokers
        hold = self._held if self._holds else None
        numbers = iter(free_ports(count, hold=hold))
        self._ports = [Ports(*(next(numbers) for _ in Ports._fields)) for _ in range(spec.brokers)]
        if self._first_port is not None:
            if fixed := ports_from(self._first_port, spec.brokers, hold):
                pairs = zip(self._ports, fixed, strict=True)
                self._ports = [ports._replace(direct=direct) for ports, direct in pairs]
            else:
                self._say(f"port {self._first_port} or the next is in use: random ports instead")
        self._secured = [None] * spec.brokers
        if spec.security is not None:
            certificates = self._directory / "certificates"
            await asyncio.to_thread(make_certificates, certificates)
            self._secured = [
                Secured({name: next(numbers) for name in secure}, certificates)
                for _ in range(spec.brokers)
            ]
        brokers = [
            BrokerProcess(node, self._directory / f"broker-{node}", self._jvm)
            for node in range(spec.brokers)
        ]
        self._brokers = [*brokers]
        await self._start_proxies()
        for broker in brokers:
            shutil.rmtree(broker.directory, ignore_errors=True)
            properties = broker_properties(
                spec, broker.node, self._ports, str(broker.log_dir), self._secured[broker.node]
            )
            broker.prepare(properties)
        await self._format(brokers)
        self._say(f"starting {spec.brokers} brokers")
        for broker in brokers:
            await broker.start(self._record_to(broker))
        await self._all_ready(deadline)

    async def _start_proxies(self) -> None:
        self._proxies = [
            FaultProxy(
                HOST,
                ports.proxied,
                listen_port=ports.proxy,
                encrypted=self._spec.encrypts_proxied,
            )
            for ports in self._ports
        ]
        try:
            for proxy in self._proxies:
                await proxy.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortsTakenError from error
            raise

    async def _format(self, brokers: Sequence[BrokerProcess]) -> None:
        """Write the file with the initial feature levels for every broker.

        The file depends only on Kafka's version and settings. So one run of Kafka's tool is enough
        for all brokers, and for later clusters.
        """
        if not self._template.exists():
            self._say("formatting")
            await self._make_template(brokers[0])
        for broker in brokers:
            broker.format(self._template, self._checkpoint, self._cluster_id, new_uuid())

    @property
    def _checkpoint(self) -> str:
        version = tuple(map(int, self._spec.version.split(".")[:2]))
        return CHECKPOINT_FILES[version >= _FIRST_WITH_SNAPSHOT]

    async def _make_template(self, first: BrokerProcess) -> None:
        security = self._spec.security
        code, output, problem = await self._jvm.run_tool(
            "kafka.tools.StorageTool",
            [
                "format",
                "--cluster-id",
                self._cluster_id,
                "--config",
                str(first.properties_file),
                *(security.scram_arguments() if security is not None else ()),
                *(f"--feature={name}={level}" for name, level in self._spec.features.items()),
            ],
        )
        if code != 0:
            text = (output + problem).strip()
            raise BrokerStartError(f"Kafka's storage tool refused the settings:\n{text}")
        _install(first.log_dir / self._checkpoint, self._template)

    async def _end_all(self) -> None:
        with self._held:
            await asyncio.gather(*(broker.kill() for broker in self._brokers))
            for proxy in self._proxies:
                await proxy.close()

    @property
    def _recording(self) -> Path:
        return self._directory / "classes.jsa"

    def _record_to(self, broker: FleetBroker) -> Path | None:
        archive = self._jvm.archive
        wanted = broker.node == 0 and archive is not None and not archive.exists()
        return self._recording if wanted else None

    async def _all_ready(self, deadline: float) -> None:
        """Wait until each broker serves clients and sees all other brokers."""
        everyone = frozenset(range(len(self._brokers)))
        await asyncio.gather(*(self._ready(broker, everyone, deadline) for broker in self._brokers))

    async def _ready(self, broker: FleetBroker, expected: Iterable[int], deadline: float) -> None:
        """Wait until the broker serves clients and sees the ``expected`` brokers."""
        loop = asyncio.get_running_loop()
        while True:
            if broker.pid is None:
                raise PortsTakenError if broker.address_in_use() else broker.start_error()
            seen = await membership(self._ports[broker.node].direct)
            if (
                seen is not None
                and seen.cluster_id == self._cluster_id
                and seen.brokers.issuperset(expected)
            ):
                self._say(f"broker {broker.node} is ready")
                return
            if loop.time() > deadline:
                raise broker.start_error()
            await asyncio.sleep(_POLL_S)

    # --- one broker ---

    def broker(self, node: int) -> FleetBroker:
        """The broker with this node id. Raises ConfigError if it does not exist."""
        if not 0 <= node < len(self._brokers):
            known = f"0 to {len(self._brokers) - 1}"
            raise ConfigError(f"there is no broker {node}; choose one of {known}")
        return self._brokers[node]

    async def start_broker(self, broker: int, *, wait: bool, timeout_s: float) -> None:
        """Start a stopped broker with its earlier ports and data."""
        stopped = self.broker(broker)
        await stopped.start()
        if wait:
            deadline = asyncio.get_running_loop().time() + timeout_s
            try:
                await self._ready(stopped, {broker}, deadline)
            except PortsTakenError as error:
                raise stopped.start_error() from error

    async def restart_broker(self, broker: int, *, wait: bool, timeout_s: float) -> None:
        """Terminate the broker if it is running, then start it."""
        await self.broker(broker).terminate()
        await self.start_broker(broker, wait=wait, timeout_s=timeout_s)

    async def heal(self, timeout_s: float) -> None:
        """Heal all proxies, resume paused brokers and start stopped brokers. Returns when every
        broker sees all other brokers."""
        for proxy in self._proxies:
            proxy.heal()
        for broker in self._brokers:
            if broker.state is BrokerState.PAUSED:
                await broker.resume()
            elif broker.state is BrokerState.STOPPED:
                await broker.start()
        try:
            await self._all_ready(asyncio.get_running_loop().time() + timeout_s)
        except PortsTakenError as error:
            raise BrokerStartError("another process uses a port of a stopped broker") from error

    # --- proxies ---

    def set_fault(self, broker: int, fault: str, arguments: dict[str, Any]) -> int | None:
        """Call a method of the broker's proxy. Raises ConfigError for an unknown fault or invalid
        arguments."""
        self.broker(broker)
        if fault not in PROXY_FAULTS:
            known = ", ".join(sorted(PROXY_FAULTS))
            raise ConfigError(f"unknown fault {fault!r}; the known faults are {known}")
        if "xor" in arguments:  # JSON has no integer keys
            arguments = arguments | {"xor": dict(arguments["xor"])}
        try:
            result = getattr(self._proxies[broker], fault)(**arguments)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"fault {fault} refused {arguments}: {error}") from error
        return result if isinstance(result, int) else None

    # --- descriptions ---

    def describe(self) -> dict[str, Any]:
        """The cluster's description as JSON values."""
        controllers = controller_ids(self._spec.brokers)
        racks: Sequence[str | None] = self._spec.racks or [None] * self._spec.brokers
        return {
            "version": self._spec.version,
            "cluster_id": self._cluster_id,
            "bootstrap": ",".join(f"{HOST}:{ports.direct}" for ports in self._ports),
            "proxied_bootstrap": ",".join(f"{HOST}:{ports.proxy}" for ports in self._ports),
            "config": dict(self._spec.config),
            "directory": str(self._directory),
            "brokers": [
                {
                    "node_id": broker.node,
                    "port": ports.direct,
                    "proxied_port": ports.proxy,
                    "state": broker.state.value,
                    "pid": broker.pid,
                    "controller": broker.node in controllers,
                    "rack": racks[broker.node],
                    "log_dir": str(broker.log_dir),
                    "log_file": str(broker.log_file),
                }
                for broker, ports in zip(self._brokers, self._ports, strict=True)
            ],
            "secured": {
                name: ",".join(
                    f"{HOST}:{secured.ports[name]}" for secured in self._secured if secured
                )
                for name in self._spec.secure_listeners
            },
        }

    def proxy_stats(self) -> list[dict[str, Any]]:
        """The counters of each broker's proxy."""
        names = ProxyCounters.__slots__
        return [{name: getattr(proxy.counters, name) for name in names} for proxy in self._proxies]


def _install(source: Path, target: Path) -> None:
    """Copy a file into the cache atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        Path(shutil.copy(source, scratch)).replace(target)
