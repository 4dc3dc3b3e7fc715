"""The containers of a Docker Compose project as the supervisor's fleet of brokers.

The project must already be up, and stays up when the fleet stops: the fleet owns only the fault
proxies. All facts about a broker come from `docker inspect`.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.testing.broker import BrokerState
from kafkaclient.testing.errors import BrokerStartError, LocalClusterError
from kafkaclient.testing.fleet import Fleet, PortsTakenError
from kafkaclient.testing.settings import Ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.jvm import Jvm
    from kafkaclient.testing.settings import ClusterSpec


_TERMINATE_TIMEOUT_S = 30.0  # seconds until SIGKILL follows SIGTERM
_QUOTED_LINES = 20  # lines of a container's log in an error message
_LISTENER = re.compile(r"([A-Z_]+)://[^:,]+:(\d+)")


async def _docker(*arguments: str) -> str:
    """The stdout of a docker command. Raises LocalClusterError with its stderr if it fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            "docker",
            *arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise LocalClusterError("cannot find `docker` on the PATH: install Docker") from error
    stdout, stderr = await process.communicate()
    if process.returncode != 0:
        text = stderr.decode("utf-8", "replace").strip()
        raise LocalClusterError(f"docker {' '.join(arguments)} failed: {text}")
    return stdout.decode("utf-8", "replace")


async def _inspect(*containers: str) -> list[dict[str, Any]]:
    described: list[dict[str, Any]] = json.loads(await _docker("inspect", *containers))
    return described


class ContainerBroker:
    """A broker in a container, with the methods of a :class:`~.broker.BrokerProcess`.

    ``described`` is the output of ``docker inspect``. No other program may stop, pause or start the
    container.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        self.id: str = described["Id"]
        self.environment: dict[str, str] = dict(
            setting.split("=", 1) for setting in described["Config"]["Env"]
        )
        self.node = int(self.environment["KAFKA_NODE_ID"])
        self.log_file = Path(described["LogPath"])
        self.log_dir = Path(self.environment["KAFKA_LOG_DIRS"])
        for mount in described["Mounts"]:
            if Path(mount["Destination"]) == self.log_dir:
                self.log_dir = Path(mount["Source"])
        self.pid: int | None = None
        self.state = BrokerState.STOPPED
        self._take(described)

    @property
    def ports(self) -> Ports:
        """The ports on 127.0.0.1, and INTERNAL and CONTROLLER in the containers' network."""
        bound = dict(_LISTENER.findall(self.environment["KAFKA_LISTENERS"]))
        advertised = dict(_LISTENER.findall(self.environment["KAFKA_ADVERTISED_LISTENERS"]))
        return Ports(
            direct=int(bound["DIRECT"]),
            proxied=int(bound["PROXIED"]),
            proxy=int(advertised["PROXIED"]),
            internal=int(bound["INTERNAL"]),
            controller=int(bound["CONTROLLER"]),
        )

    async def start(self) -> None:
        """Start the container with its data. Returns when its first process has started."""
        if self.state is not BrokerState.STOPPED:
            raise LocalClusterError(f"broker {self.node} cannot start: it is already {self.state}")
        await self._do("start")

    async def kill(self) -> None:
        """Send SIGKILL and wait until the container has stopped. A stopped one stays stopped."""
        if self.state is BrokerState.STOPPED:
            return
        await _docker("kill", self.id)
        await _docker("wait", self.id)
        await self._refresh()

    async def terminate(self, timeout_s: float = _TERMINATE_TIMEOUT_S) -> None:
        """Send SIGTERM, and SIGKILL after ``timeout_s``."""
        if self.state is BrokerState.PAUSED:
            await self.resume()
        if self.state is BrokerState.RUNNING:
            await self._do("stop", "--time", str(round(timeout_s)))

    async def pause(self) -> None:
        """Freeze the container: connections stay open, and the broker answers nothing."""
        self._check_running()
        if self.state is BrokerState.RUNNING:
            await self._do("pause")

    async def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._check_running()
        if self.state is BrokerState.PAUSED:
            await self._do("unpause")

    def start_error(self) -> BrokerStartError:
        """The error for a broker that is not up, with the end of the container's log."""
        command = ["docker", "logs", "--tail", str(_QUOTED_LINES), self.id]
        log = subprocess.run(  # noqa: S603 - fixed words and a container's id
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        ).stdout.decode("utf-8", "replace")
        return BrokerStartError(
            f"broker {self.node} is not ready; its container's log says:\n{log}"
        )

    def address_in_use(self) -> bool:
        """Always False: `docker start` fails if a port is in use."""
        return False

    def _check_running(self) -> None:
        if self.state is BrokerState.STOPPED:
            raise LocalClusterError(f"broker {self.node} is not running")

    async def _do(self, command: str, *options: str) -> None:
        await _docker(command, *options, self.id)
        await self._refresh()

    async def _refresh(self) -> None:
        self._take((await _inspect(self.id))[0])

    def _take(self, described: dict[str, Any]) -> None:
        state = described["State"]
        self.pid = state["Pid"] or None
        if not state["Running"]:
            self.state = BrokerState.STOPPED
        else:
            self.state = BrokerState.PAUSED if state["Paused"] else BrokerState.RUNNING


class ContainerFleet(Fleet):
    """The brokers of the Compose ``project``. Each has a fault proxy at the address that its
    ``PROXIED`` listener advertises. The other arguments are those of :class:`Fleet`."""

    def __init__(
        self,
        project: str,
        spec: ClusterSpec,
        jvm: Jvm,
        directory: Path,
        template: Path,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(spec, jvm, directory, template, say)
        self._project = project

    async def stop(self, *, orderly: bool = True) -> None:
        """Stop the proxies. ``orderly`` has no effect."""
        await self._end_all()

    async def _try_start(self, deadline: float) -> None:
        label = f"label=com.docker.compose.project={self._project}"
        found = (await _docker("ps", "--all", "--quiet", "--filter", label)).split()
        if len(found) != self._spec.brokers:
            raise LocalClusterError(
                f"the Compose project {self._project!r} has {len(found)} containers, but needs "
                f"{self._spec.brokers}, one for each broker: run `docker compose up` first"
            )
        brokers = sorted(map(ContainerBroker, await _inspect(*found)), key=lambda one: one.node)
        self._brokers = [*brokers]
        self._ports = [broker.ports for broker in brokers]
        self._secured = [None] * len(brokers)
        self._cluster_id = brokers[0].environment["CLUSTER_ID"]
        try:
            await self._start_proxies()
        except PortsTakenError as error:
            ports = ", ".join(str(ports.proxy) for ports in self._ports)
            raise LocalClusterError(
                f"the fault proxies need the ports {ports} of 127.0.0.1, but another process uses "
                "one of them: stop that process"
            ) from error
        await self._all_ready(deadline)

    async def _end_all(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
