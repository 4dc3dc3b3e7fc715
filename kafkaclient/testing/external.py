"""An external cluster in place of a local one."""

from __future__ import annotations

import asyncio

from kafkaclient.errors import ConfigError
from kafkaclient.testing.broker import Jvm
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jre import find_java
from kafkaclient.testing.settings import DEFAULT_VERSION
from kafkaclient.testing.tools import ToolResult, run_tool

__all__ = ["ExternalCluster"]


class ExternalCluster:
    """A running cluster whose brokers cannot be stopped or slowed down.

    ``bootstrap`` is a comma-separated list of ``host:port``. There are no fault proxies, so
    :attr:`proxied_bootstrap` is the same.
    """

    def __init__(self, bootstrap: str) -> None:
        servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
        if not servers or not all(":" in server for server in servers):
            raise ConfigError(f"bootstrap must be host:port[,host:port...], not {bootstrap!r}")
        self.bootstrap = ",".join(servers)

    @property
    def proxied_bootstrap(self) -> str:
        """The same as :attr:`bootstrap`."""
        return self.bootstrap

    async def run_tool(self, main_class: str, *arguments: str, stdin: bytes = b"") -> ToolResult:
        """Run one of Kafka's Java tools on this machine, with the jars of Kafka 4.3.1.

        The first use on a machine fetches the jars. Raises JavaNotFoundError and
        JarsUnavailableError, as :class:`~kafkaclient.testing.cluster.LocalCluster` does.
        """
        return await run_tool(await asyncio.to_thread(_jvm), main_class, arguments, stdin)

    def __repr__(self) -> str:
        return f"<ExternalCluster {self.bootstrap}>"


def _jvm() -> Jvm:
    return Jvm(find_java().path, JarCache().ensure(read_lock(DEFAULT_VERSION)))
