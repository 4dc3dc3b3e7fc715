"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.testing.external import ExternalCluster

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


def test_loading_the_plugin_loads_nothing_else() -> None:
    code = (
        "import sys, pytest, kafkaclient.testing.plugin;"
        "print(sorted(n for n in sys.modules if n.startswith(('kafka.', 'jgo', 'kafkaclient.'))))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "['kafkaclient.testing', 'kafkaclient.testing.plugin']\n"


@pytest.mark.parametrize("bootstrap", ["", "  ", "localhost", "a:1,b"])
def test_a_bootstrap_that_is_none(bootstrap: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        ExternalCluster(bootstrap)
