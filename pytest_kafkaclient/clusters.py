"""The clusters of real brokers that the tests of one run share."""

from __future__ import annotations

import pytest

from kafkaclient.admin import Admin
from kafkaclient.errors import AuthenticationError, KafkaError
from kafkaclient.testing.cluster import ComposeCluster, ExternalCluster, LocalCluster
from kafkaclient.testing.errors import ClusterNotRunningError
from pytest_kafkaclient.topics import run

_DEFAULT_BROKERS = 3
_COMPOSE_BROKERS = 3
_REACHABLE_MS = 30_000  # for a cluster that is not started here: it may be starting


class ClusterPool:
    """Starts a cluster for each number of brokers that tests ask for, and stops all at the end.
    A cluster that is not started here is asked once for its brokers. If it does not answer, each
    test that asks for it fails at once.

    ``bootstrap``: use this cluster instead; ``compose``: use the containers of this Docker Compose
    project. Both may be None."""

    def __init__(self, bootstrap: str | None, compose: str | None) -> None:
        self._external = ExternalCluster(bootstrap) if bootstrap and not compose else None
        self._external_brokers: int | KafkaError | None = None
        """How many brokers the external cluster has, or why it is not known."""
        self._compose = compose
        self._running: dict[int, LocalCluster] = {}

    def get(self, brokers: int | None = None) -> LocalCluster | ExternalCluster:
        """A running cluster of ``brokers`` brokers, by default three. Of a cluster that is not
        started here, ``brokers`` is the least number: with fewer, the test is skipped."""
        if self._external is not None:
            return self._checked(self._external, brokers)
        count = brokers or _DEFAULT_BROKERS
        if self._compose:
            _skip_below(count, _COMPOSE_BROKERS, f"the project {self._compose}")
            count = _COMPOSE_BROKERS
        if count not in self._running:
            new = ComposeCluster(self._compose) if self._compose else LocalCluster(count)
            run(new.start())
            self._running[count] = new
        return self._running[count]

    def heal(self, cluster: LocalCluster | ExternalCluster) -> None:
        """Resume paused brokers, start stopped ones, and end the faults of the proxies. A cluster
        that cannot be healed is stopped, and the next test gets a new one."""
        if not isinstance(cluster, LocalCluster):
            return
        try:
            run(cluster.heal())
        except ClusterNotRunningError:  # the test has stopped it
            self._forget(cluster)
        except BaseException:
            self._forget(cluster)
            run(cluster.stop())
            raise

    def close(self) -> None:
        """Stop the clusters."""
        while self._running:
            _, cluster = self._running.popitem()
            run(cluster.stop())

    def _checked(self, cluster: ExternalCluster, brokers: int | None) -> ExternalCluster:
        if self._external_brokers is None:
            try:
                self._external_brokers = run(_count(cluster.bootstrap))
            except KafkaError as error:
                self._external_brokers = error
        found = self._external_brokers
        if isinstance(found, AuthenticationError) and brokers is None:
            return cluster  # it answers, and the test may have the credentials
        if isinstance(found, KafkaError):
            pytest.fail(f"{cluster} cannot be used: {found}", pytrace=False)
        _skip_below(brokers or 1, found, cluster)
        return cluster

    def _forget(self, cluster: LocalCluster) -> None:
        self._running = {n: known for n, known in self._running.items() if known is not cluster}


async def _count(bootstrap: str) -> int:
    async with Admin(bootstrap, default_api_timeout_ms=_REACHABLE_MS) as admin:
        return len((await admin.describe_cluster()).brokers)


def _skip_below(wanted: int, found: int, where: object) -> None:
    if found < wanted:
        pytest.skip(f"needs {wanted} brokers, and {where} has {found}")
