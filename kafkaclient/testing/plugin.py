"""The pytest plugin: the fixture ``kafka_cluster`` and the marker ``local_cluster``.

pytest loads it in every run on a machine where the package is installed, so it imports nothing of
weight before a test asks for a cluster.

With the environment variable ``KAFKACLIENT_BOOTSTRAP=host:port[,host:port...]`` the fixture is
that cluster instead of a new one. Brokers of a cluster that others run cannot be stopped or made
slow: tests that need it carry ``@pytest.mark.local_cluster`` and are skipped then.
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

__all__ = ["BOOTSTRAP_VARIABLE", "kafka_cluster", "pytest_configure", "pytest_runtest_setup"]

BOOTSTRAP_VARIABLE = "KAFKACLIENT_BOOTSTRAP"

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "local_cluster: stops, slows down or looks into brokers; skipped when "
        f"{BOOTSTRAP_VARIABLE} names a cluster that others run",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what an external cluster does not allow."""
    external = os.environ.get(BOOTSTRAP_VARIABLE)
    if external and item.get_closest_marker("local_cluster") is not None:
        pytest.skip(f"needs brokers of its own, and {BOOTSTRAP_VARIABLE} is {external}")


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[LocalCluster | ExternalCluster]:
    """A running Kafka cluster for the whole session: three local brokers, or the one that
    ``KAFKACLIENT_BOOTSTRAP`` names.

    Its coroutines may be awaited in any event loop; a test without one uses ``asyncio.run``. A
    test that breaks something ends with ``await kafka_cluster.heal()``.
    """
    external = os.environ.get(BOOTSTRAP_VARIABLE)
    if external:
        from kafkaclient.testing.external import ExternalCluster  # noqa: PLC0415

        yield ExternalCluster(external)
        return
    from kafkaclient.testing.cluster import LocalCluster  # noqa: PLC0415

    cluster = LocalCluster()
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
