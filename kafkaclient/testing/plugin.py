"""The pytest plugin: the fixture ``kafka_cluster`` and the marker ``local_cluster``.

pytest loads it in every run on a machine where the package is installed, so it imports nothing of
weight before a test asks for a cluster.

With the environment variable ``KAFKACLIENT_BOOTSTRAP=host:port[,host:port...]`` the fixture is
that cluster instead of a new one. Brokers of a cluster that others run cannot be stopped or made
slow: tests that need it carry ``@pytest.mark.local_cluster`` and are skipped then.

With ``KAFKACLIENT_COMPOSE=PROJECT`` the fixture is the containers of this Docker Compose project,
which can be stopped and made slow. What is skipped then are marked tests that do not use the
fixture, because they start processes of their own, and those that name their reason:
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
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "local_cluster(not_in_containers=None): stops, slows down or looks into brokers; skipped "
        f"when {BOOTSTRAP_VARIABLE} names a cluster that others run; not_in_containers is the "
        f"reason to skip it when {COMPOSE_VARIABLE} names a Docker Compose project as well",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that the cluster in use does not allow."""
    for item in items:
        marker = item.get_closest_marker("local_cluster")
        if marker is not None and (reason := _reason_to_skip(item, marker)) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _reason_to_skip(item: pytest.Item, marker: pytest.Mark) -> str | None:
    if os.environ.get(COMPOSE_VARIABLE):
        if "kafka_cluster" not in getattr(item, "fixturenames", ()):
            return "starts brokers of its own, which are processes with settings of their own"
        reason: str | None = marker.kwargs.get("not_in_containers")
        return reason
    if external := os.environ.get(BOOTSTRAP_VARIABLE):
        return f"needs brokers of its own, and {BOOTSTRAP_VARIABLE} is {external}"
    return None


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[LocalCluster | ExternalCluster]:
    """A running Kafka cluster for the whole session: three local brokers, the containers of the
    project that ``KAFKACLIENT_COMPOSE`` names, or the cluster that ``KAFKACLIENT_BOOTSTRAP`` names.

    Its coroutines may be awaited in any event loop; a test without one uses ``asyncio.run``. A
    test that breaks something ends with ``await kafka_cluster.heal()``.
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
    """``asyncio.run`` in a thread of its own: this one may have an event loop running, which is
    how some plugins run their fixtures."""
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
