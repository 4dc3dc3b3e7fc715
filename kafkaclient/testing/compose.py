"""The containers of docker-compose.yml in the place of a local cluster's processes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from kafkaclient.testing.jars import JarCache
    from kafkaclient.testing.supervisor import Launch

__all__ = ["ComposeCluster"]


class ComposeCluster(LocalCluster):
    """The three brokers of a Docker Compose ``project`` that is up, made from docker-compose.yml.

    Everything that can be done to a :class:`LocalCluster` is done to the containers: they are
    killed, stopped, paused and started with the ``docker`` command, and a fault proxy listens at
    each address that a ``PROXIED`` listener advertises. ``log_dir`` can be read if the containers'
    ``KAFKA_LOG_DIRS`` is mounted from a directory of this machine. Kafka's tools run on this
    machine. Entering raises LocalClusterError when the project's containers are not there;
    leaving lets them run.
    """

    def __init__(self, project: str) -> None:
        super().__init__(3)
        self._project = project

    def __repr__(self) -> str:
        where = self.bootstrap if self._current else "not in use"
        return f"<ComposeCluster {self._project}: {where}>"

    def _prepare(self, cache: JarCache) -> Launch:
        return replace(super()._prepare(cache), compose=self._project)
