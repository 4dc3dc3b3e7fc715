"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.testing import cluster
from kafkaclient.testing.cluster import ExternalCluster
from kafkaclient.testing.jars import JarCache
from kafkaclient.testing.jre import Java

if TYPE_CHECKING:
    from pathlib import Path

_TESTS = """
import pytest

def test_gets_the_cluster(kafka_cluster):
    assert kafka_cluster.bootstrap == "127.0.0.1:1,127.0.0.1:2"
    assert kafka_cluster.proxied_bootstrap == kafka_cluster.bootstrap

@pytest.mark.local_cluster
def test_stops_brokers(kafka_cluster):
    raise AssertionError
"""


def test_an_external_cluster_is_used_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKACLIENT_BOOTSTRAP", "127.0.0.1:1, 127.0.0.1:2")
    (tmp_path / "test_it.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-rs", "--strict-markers", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed, 1 skipped" in result.stdout
    assert "KAFKACLIENT_BOOTSTRAP is 127.0.0.1:1, 127.0.0.1:2" in result.stdout


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


def test_with_containers_only_what_they_cannot_do_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKACLIENT_COMPOSE", "project")
    (tmp_path / "test_it.py").write_text(_IN_CONTAINERS)
    command = [sys.executable, "-m", "pytest", "-rs", "--no-fold-skipped", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed, 2 skipped" in result.stdout, result.stdout + result.stderr
    assert "test_looks_at_processes - Skipped: asks for pids" in result.stdout
    assert "test_starts_its_own - Skipped: starts its own brokers" in result.stdout


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
