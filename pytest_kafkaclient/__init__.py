"""The pytest plugin: fixtures for the tests of services that use Kafka.

pytest loads the plugin in every run where kafkaclient is installed. It stands outside of that
package, and imports nothing of it, nor asyncio, before a test asks for a fixture.

``fake_kafka`` is a cluster in memory on TCP ports; it needs nothing but pytest. ``kafka_cluster``
is a cluster of real brokers; it needs the extra ``testing``. ``kafka_topic`` is a new topic on
either, ``kafka_consumer`` makes consumers of either. docs/how-to/testing.md describes the fixtures,
their markers, and the environment variables that choose the brokers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient import SyncConsumer
    from kafkaclient.testing import ExternalCluster, FakeCluster, LocalCluster
    from pytest_kafkaclient.clusters import ClusterPool

__all__ = [
    "BOOTSTRAP_VARIABLE",
    "COMPOSE_VARIABLE",
    "fake_kafka",
    "kafka_cluster",
    "kafka_clusters",
    "kafka_consumer",
    "kafka_topic",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "real_loop_time",
]

BOOTSTRAP_VARIABLE = "KAFKACLIENT_TEST_BOOTSTRAP"
COMPOSE_VARIABLE = "KAFKACLIENT_COMPOSE"

_MARKERS = (
    "kafka_cluster(brokers=3): the number of brokers of the fixture kafka_cluster; of a cluster "
    "that the fixture does not start, the least number",
    "kafka_topic(partitions=1, replication_factor=-1, configs={}): the topic of the fixture "
    "kafka_topic",
    "fake_kafka(brokers=3, partitions=1, ...): the arguments of FakeCluster for the fixture "
    "fake_kafka",
    "local_cluster(not_in_containers=None): stops, slows down or looks into brokers; skipped "
    f"if {BOOTSTRAP_VARIABLE} names a cluster; with the reason not_in_containers also skipped "
    f"if {COMPOSE_VARIABLE} names a Docker Compose project",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that the cluster does not allow."""
    for item in items:
        marker = item.get_closest_marker("local_cluster")
        if marker is not None and (reason := _reason_to_skip(item, marker)) is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _reason_to_skip(item: pytest.Item, marker: pytest.Mark) -> str | None:
    if os.environ.get(COMPOSE_VARIABLE):
        if not {"kafka_cluster", "kafka_topic"}.intersection(getattr(item, "fixturenames", ())):
            return f"starts its own brokers, and {COMPOSE_VARIABLE} names a Docker Compose project"
        reason: str | None = marker.kwargs.get("not_in_containers")
        return reason
    if external := os.environ.get(BOOTSTRAP_VARIABLE):
        return f"needs its own brokers, and {BOOTSTRAP_VARIABLE} is {external}"
    return None


@pytest.fixture(scope="session")
def kafka_clusters() -> Iterator[ClusterPool]:
    """The clusters of this test run, for fixtures that are wider than one test:
    ``kafka_clusters.get(brokers=1)``. Such a fixture heals its cluster itself."""
    try:
        from pytest_kafkaclient.clusters import ClusterPool  # noqa: PLC0415
    except ModuleNotFoundError as error:
        how = "pip install 'kafkaclient[testing]'; the fixture fake_kafka works without"
        problem = f"kafka_cluster needs the package {error.name}: {how}"
        raise pytest.fail.Exception(problem, pytrace=False) from None

    pool = ClusterPool(os.environ.get(BOOTSTRAP_VARIABLE), os.environ.get(COMPOSE_VARIABLE))
    try:
        yield pool
    finally:
        pool.close()


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_clusters: ClusterPool, real_loop_time: None
) -> Iterator[LocalCluster | ExternalCluster]:
    """A running Kafka cluster: three local brokers, or as many as the marker ``kafka_cluster``
    says; the containers of the project that ``KAFKACLIENT_COMPOSE`` names; or the cluster that
    ``KAFKACLIENT_TEST_BOOTSTRAP`` names.

    Local brokers are started for the first test that asks for their number, and stopped at the end
    of the run. After each test paused brokers are resumed, stopped ones started, and all faults of
    the proxies ended. The cluster's coroutines can be awaited in any event loop; a test without an
    event loop uses ``asyncio.run``."""
    cluster = kafka_clusters.get(**_options(request, "kafka_cluster"))
    yield cluster
    kafka_clusters.heal(cluster)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic, which is deleted after the test: on ``fake_kafka`` if the test uses
    that fixture, else on ``kafka_cluster``. It has one partition and the cluster's replication
    factor, unless the marker ``kafka_topic`` says otherwise."""
    from pytest_kafkaclient import topics  # noqa: PLC0415

    name = topics.unique_name(request.node.name)
    options = _options(request, "kafka_topic")
    if "fake_kafka" in request.fixturenames:
        fake: FakeCluster = request.getfixturevalue("fake_kafka")
        topics.create_on_fake(fake, name, **options)
        yield name
        return
    cluster: LocalCluster | ExternalCluster = request.getfixturevalue("kafka_cluster")
    topics.create(cluster.bootstrap, name, **options)
    yield name
    request.getfixturevalue("kafka_clusters").heal(cluster)  # a dead broker deletes nothing
    topics.delete(cluster.bootstrap, name)


@pytest.fixture
def kafka_consumer(request: pytest.FixtureRequest) -> Iterator[Callable[..., SyncConsumer]]:
    """``kafka_consumer("orders", **options)``: a started :class:`~kafkaclient.SyncConsumer` of
    topics, which is closed after the test: of ``fake_kafka`` if the test uses that fixture, else of
    ``kafka_cluster``. It begins at the first record, in a group of its own unless the options
    have a ``group_id``."""
    from contextlib import ExitStack  # noqa: PLC0415

    from kafkaclient import SyncConsumer  # noqa: PLC0415
    from pytest_kafkaclient.topics import unique_name  # noqa: PLC0415

    cluster: FakeCluster | LocalCluster | ExternalCluster = request.getfixturevalue(
        "fake_kafka" if "fake_kafka" in request.fixturenames else "kafka_cluster"
    )
    with ExitStack() as stack:

        def consumer(*topics: str, **options: Any) -> SyncConsumer:
            group_id = unique_name(request.node.name)
            given = {"group_id": group_id, "auto_offset_reset": "earliest", **options}
            return stack.enter_context(SyncConsumer(cluster.bootstrap, topics=topics, **given))

        yield consumer


@pytest.fixture
def fake_kafka(request: pytest.FixtureRequest, real_loop_time: None) -> Iterator[FakeCluster]:
    """A :class:`~kafkaclient.testing.FakeCluster` on TCP ports of 127.0.0.1, new for each test: any
    client connects to ``fake_kafka.bootstrap``. A topic that a client uses is created with one
    partition. The arguments of the marker ``fake_kafka`` are those of FakeCluster."""
    from kafkaclient.testing import FakeCluster  # noqa: PLC0415

    with FakeCluster(**{"partitions": 1, **_options(request, "fake_kafka")}).serve() as fake:
        yield fake


@pytest.fixture
def real_loop_time() -> Iterator[None]:
    """Lets the timers of asyncio's event loops run while freezegun has stopped the time. The
    fixtures of clusters use it."""
    from pytest_kafkaclient.loop_time import keep_real  # noqa: PLC0415

    with keep_real():
        yield


def _options(request: pytest.FixtureRequest, marker: str) -> dict[str, Any]:
    """The arguments of the test's marker."""
    found = request.node.get_closest_marker(marker)
    return {} if found is None else dict(found.kwargs)
