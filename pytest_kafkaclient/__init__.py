"""The pytest plugin: the fixture ``kafka_cluster`` and the marker ``local_cluster``.

pytest loads the plugin in every run where kafkaclient is installed. It stands outside of that
package, and imports nothing of it, nor asyncio, before a test asks for the fixture.

With the environment variable ``KAFKACLIENT_BOOTSTRAP=host:port[,host:port...]`` the fixture is
that cluster instead of a new one. Its brokers cannot be stopped or slowed down, so tests marked
``@pytest.mark.local_cluster`` are skipped.

With ``KAFKACLIENT_COMPOSE=PROJECT`` the fixture is the containers of this Docker Compose project,
which can be stopped and slowed down. Two kinds of marked tests are skipped: those that do not use
the fixture, because they start their own processes, and those that name a reason:
``@pytest.mark.local_cluster(not_in_containers="looks into the brokers' processes")``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from kafkaclient.testing.cluster import ExternalCluster, LocalCluster

__all__ = [
    "BOOTSTRAP_VARIABLE",
    "COMPOSE_VARIABLE",
    "kafka_cluster",
    "pytest_collection_modifyitems",
    "pytest_configure",
]

BOOTSTRAP_VARIABLE = "KAFKACLIENT_BOOTSTRAP"
COMPOSE_VARIABLE = "KAFKACLIENT_COMPOSE"

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "local_cluster(not_in_containers=None): stops, slows down or looks into brokers; skipped "
        f"if {BOOTSTRAP_VARIABLE} names a cluster; with the reason not_in_containers also skipped "
        f"if {COMPOSE_VARIABLE} names a Docker Compose project",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that the cluster does not allow."""
    for item in items:
        marker = item.get_closest_marker("local_cluster")
        if marker is not None and (reason := _reason_to_skip(item, marker)) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _reason_to_skip(item: pytest.Item, marker: pytest.Mark) -> str | None:
    if os.environ.get(COMPOSE_VARIABLE):
        if "kafka_cluster" not in getattr(item, "fixturenames", ()):
            return f"starts its own brokers, and {COMPOSE_VARIABLE} names a Docker Compose project"
        reason: str | None = marker.kwargs.get("not_in_containers")
        return reason
    if external := os.environ.get(BOOTSTRAP_VARIABLE):
        return f"needs its own brokers, and {BOOTSTRAP_VARIABLE} is {external}"
    return None


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[LocalCluster | ExternalCluster]:
    """A running Kafka cluster for the whole session: three local brokers, the containers of the
    project that ``KAFKACLIENT_COMPOSE`` names, or the cluster that ``KAFKACLIENT_BOOTSTRAP`` names.

    The cluster's coroutines can be awaited in any event loop; a test without an event loop uses
    ``asyncio.run``. A test that breaks something ends with ``await kafka_cluster.heal()``.
    """
    project, external = os.environ.get(COMPOSE_VARIABLE), os.environ.get(BOOTSTRAP_VARIABLE)
    if external and not project:
        from kafkaclient.testing.cluster import ExternalCluster  # noqa: PLC0415

        yield ExternalCluster(external)
        return
    from kafkaclient.testing.cluster import LocalCluster  # noqa: PLC0415

    cluster = LocalCluster()
    if project:
        from kafkaclient.testing.cluster import ComposeCluster  # noqa: PLC0415

        cluster = ComposeCluster(project)
    _run(cluster.start())
    try:
        yield cluster
    finally:
        _run(cluster.stop())


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of ``asyncio.run`` in another thread: this one may be running an event loop."""
    import asyncio  # noqa: PLC0415 - costs 30 ms, in every pytest run of its users
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(1, thread_name_prefix="kafka_cluster") as executor:
        return executor.submit(asyncio.run, coroutine).result()
