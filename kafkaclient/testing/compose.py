"""The containers of docker-compose.yml as a local cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from kafkaclient.testing.jars import JarCache
    from kafkaclient.testing.supervisor import Launch

__all__ = ["ComposeCluster"]


class ComposeCluster(LocalCluster):
    """The three brokers of a running Docker Compose ``project``, created from docker-compose.yml.

    It has the methods of :class:`LocalCluster`. They kill, stop, pause and start the containers
    with the ``docker`` command, and a fault proxy listens at each address that a ``PROXIED``
    listener advertises. ``log_dir`` is readable if the containers' ``KAFKA_LOG_DIRS`` is mounted
    from a directory of this machine. Kafka's tools run on this machine. Entering raises
    LocalClusterError if the project has no containers; leaving does not stop them."""

    def __init__(self, project: str) -> None:
        super().__init__(3)
        self._project = project

    def __repr__(self) -> str:
        where = self.bootstrap if self._current else "not in use"
        return f"<ComposeCluster {self._project}: {where}>"

    def _prepare(self, cache: JarCache) -> Launch:
        return replace(super()._prepare(cache), compose=self._project)
