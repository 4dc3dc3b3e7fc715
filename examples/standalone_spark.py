"""A standalone Spark cluster on 127.0.0.1: a master and workers, from PySpark's own jars."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyspark

from kafkaclient.testing import jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_START_TIMEOUT_S = 180.0  # a JVM on a busy machine
HOME = Path(pyspark.__file__).parent


@contextmanager
def standalone_spark(
    directory: Path, *, memory: str = "1g", python: str = sys.executable, home: Path = HOME
) -> Iterator[str]:
    """The master's URL, for the length of the block. There are two workers with one core each and
    ``memory`` for their executors. Their logs are in ``directory``. ``home`` is the PySpark whose
    jars run, and ``python`` the interpreter that has it."""
    directory.mkdir(parents=True, exist_ok=True)
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    running = partial(_running, python, home)
    with ExitStack() as stack:
        log = directory / "master.log"
        stack.enter_context(running(log, f"{_DEPLOY}.master.Master", *here))
        master = _wait_for_log(log, r"spark://127\.0\.0\.1:\d+")
        # Two names, because Spark starts a speculative copy of a task on another host only.
        for host in ("127.0.0.1", "localhost"):
            log = directory / f"worker-{host}.log"
            limits = ("--cores", "1", "--memory", memory, "--work-dir", str(directory / host))
            worker = (f"{_DEPLOY}.worker.Worker", *here, "--host", host, *limits, master)
            stack.enter_context(running(log, *worker))
            _wait_for_log(log, "Successfully registered with master")
        yield master


def executors(spark: Any = None) -> list[psutil.Process]:
    """The JVMs that run the tasks of this session, or of all sessions, on a cluster that this
    process has started."""
    wanted = {_EXECUTOR} | ({spark.sparkContext.applicationId} if spark else set())
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if wanted <= {*process.cmdline()}:
                found.append(process)
    return found


@contextmanager
def _running(python: str, home: Path, log: Path, *arguments: str) -> Iterator[None]:
    command = [str(jvm.find_java().path), "-Xmx256m", "-cp", str(home / "jars" / "*"), *arguments]
    environ = {
        **os.environ,
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",  # as Spark's own scripts set it; a worker looks for it
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environ)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _wait_for_log(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[0]
        time.sleep(0.2)
    raise TimeoutError(f"no {pattern} in {log}:\n{log.read_text(errors='replace')}")
