"""A cluster that somebody else runs, in the place of a local one."""

from __future__ import annotations

from kafkaclient.errors import ConfigError

__all__ = ["ExternalCluster"]


class ExternalCluster:
    """The addresses of a running cluster; there is nothing more to be done to it.

    ``bootstrap`` is ``host:port``, several joined by commas. It has no fault proxies, so both
    kinds of address are the same.
    """

    def __init__(self, bootstrap: str) -> None:
        servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
        if not servers or not all(":" in server for server in servers):
            raise ConfigError(f"a bootstrap is host:port[,host:port...], not {bootstrap!r}")
        self.bootstrap = ",".join(servers)

    @property
    def proxied_bootstrap(self) -> str:
        """The same as :attr:`bootstrap`."""
        return self.bootstrap

    def __repr__(self) -> str:
        return f"<ExternalCluster {self.bootstrap}>"
