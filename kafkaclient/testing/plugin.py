"""The pytest plugin: the fixture ``kafka_cluster`` and the marker ``local_cluster``.

pytest loads the plugin in every run if the package is installed, so the plugin imports the rest of
the package only when a test uses a cluster.

With the environment variable ``KAFKACLIENT_BOOTSTRAP=host:port[,host:port...]`` the fixture is this
external cluster. Its brokers cannot be stopped or slowed down, so tests marked with
``@pytest.mark.local_cluster`` are skipped.

With ``KAFKACLIENT_COMPOSE=PROJECT`` the fixture is the containers of this Docker Compose project,
which can be stopped and slowed down. Marked tests are skipped if they do not use the fixture,
because they start their own processes. Tests with a reason are skipped too:
``@pytest.mark.local_cluster(not_in_containers="looks into the brokers' processes")``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from kafkaclient.testing.cluster import LocalCluster
    from kafkaclient.testing.external import ExternalCluster

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
        f"when {BOOTSTRAP_VARIABLE} names an external cluster; not_in_containers is the "
        f"reason to skip it when {COMPOSE_VARIABLE} names a Docker Compose project as well",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that do not work with the configured cluster."""
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

    Its coroutines may be awaited in any event loop; a test without a loop uses ``asyncio.run``. A
    test that causes a fault ends with ``await kafka_cluster.heal()``.
    """
    project, external = os.environ.get(COMPOSE_VARIABLE), os.environ.get(BOOTSTRAP_VARIABLE)
    if external and not project:
        from kafkaclient.testing.external import ExternalCluster  # noqa: PLC0415

        yield ExternalCluster(external)
        return
    from kafkaclient.testing.cluster import LocalCluster  # noqa: PLC0415

    cluster = LocalCluster()
    if project:
        from kafkaclient.testing.compose import ComposeCluster  # noqa: PLC0415

        cluster = ComposeCluster(project)
    _run(cluster.start())
    try:
        yield cluster
    finally:
        _run(cluster.stop())


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in a new thread: some plugins run fixtures inside an event loop, where
    ``asyncio.run`` is not allowed."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work, name="kafka_cluster")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
