"""The data source on the versions of PySpark that `make spark-versions` installs: in a session of
its own, and through Spark Connect."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.spark_versions_job import ROWS
from kafkaclient.testing.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[1]
WITHOUT_STREAMS = ("4.0", "4.1")
VERSIONS = (*WITHOUT_STREAMS, "4.2", "4.3")


def _python(version: str) -> Path:
    python = ROOT / "build" / f"spark-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no PySpark {version}: make spark-versions")
    return python


def _environment(python: Path) -> dict[str, str]:
    home = str(find_java().path.resolve().parent.parent)
    return {
        **os.environ,
        "JAVA_HOME": home,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": str(python),
        "PYTHONWARNINGS": "ignore",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def _connect_server(python: Path, log: Path) -> Iterator[str]:
    """A Connect server on this machine, until the end of the block: its URL."""
    (spark,) = (python.parents[1] / "lib").glob("python*/site-packages/pyspark")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [str(spark / "bin" / "spark-submit")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name in settings for word in ("--conf", f"{name}={settings[name]}")]
    environment = _environment(python) | {"SPARK_HOME": str(spark)}
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"], env=environment, stdout=output, stderr=output, cwd="/"
        )
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.parametrize("way", ["session", "connect"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_batches_everywhere_and_streams_from_4_2_on(
    version, way, kafka_cluster, topic, create_topic, read_topic, tmp_path
):
    python = _python(version)
    await create_topic(topic, 2)
    await create_topic(f"{topic}-out", 2)

    def run(master: str) -> dict:
        job = [python, "-m", "integration.spark_versions_job", kafka_cluster.bootstrap, topic]
        done = subprocess.run(
            [*job, master, str(tmp_path / "checkpoint")],
            env=_environment(python),
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    if way == "connect":
        with _connect_server(python, tmp_path / "connect.log") as url:
            found = run(url)
    else:
        found = run("local[2]")
    assert found["spark"].startswith(version)

    written = [
        (
            r.partition,
            r.offset,
            r.key and r.key.decode(),
            r.value.decode(),
            dict(r.headers).get("n"),
        )
        for r in await read_topic(topic)
    ]
    expected = {
        (n % 2, f"k{n}" if n % 3 else None, f"v{n}", None if n % 7 else b"x") for n in range(ROWS)
    }
    assert {(p, *rest) for p, _, *rest in written} == expected
    assert len(written) == ROWS
    read = [(p, o, k, v, h and h.encode()) for p, o, k, v, h in found["rows"]]
    assert read == sorted((r for r in written if r[:2] >= (0, 10)), key=lambda r: r[:2])

    copied = [record.value for record in await read_topic(f"{topic}-out", "read_committed")]
    if version in WITHOUT_STREAMS:
        assert f"streams need Spark 4.2 or newer, and this is Spark {version}" in found["stream"]
        assert not copied
    else:
        assert not found["stream"]
        assert sorted(copied) == sorted(b"v%d" % n for n in range(ROWS))


PLAIN = """
import sys
from kafkaclient.spark import register
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
try:
    register(spark)
except Exception as error:
    print(type(error).__name__, error)
spark.stop()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_package_that_the_workers_lack_is_named_in_one_line(version, tmp_path):
    """Where the session's Python is not activated, workers run the first `python3` of the PATH."""
    driver = _python(version)
    plain = tmp_path / "plain"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", plain], check=True)
    environment = _environment(driver) | {"PATH": f"{plain / 'bin'}:/usr/bin:/bin"}
    del environment["PYSPARK_PYTHON"]
    # The driver's way to this package; a worker would have it, too, through PYTHONPATH.
    del environment["PYTHONPATH"]
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{PLAIN}"
    done = subprocess.run(
        [driver, "-c", code],
        env=environment,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    (line,) = done.stdout.strip().splitlines()
    assert re.match(r"ConfigError the Python of Spark's workers lacks packages: \S*plain\S*", line)
    assert "has no kafkaclient, kafka, crc32c, lz4, cramjam, pyarrow: run pip install" in line
    assert f"this program's is {driver}" in line
