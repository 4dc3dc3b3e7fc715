"""The query's driver, in a process of its own or in a Spark Connect server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkaclient.testing.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CONTINUOUS", "UNTIL_THE_END", "Driver", "pyspark_home", "spark_python"]

_ROOT = Path(__file__).parents[2]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CONTINUOUS: Final = {"processingTime": "0 seconds"}
UNTIL_THE_END: Final = {"availableNow": True}


def spark_python(version: str) -> Path:
    """The interpreter of the environment that ``make spark-chaos`` makes for a PySpark."""
    return _ROOT / "build" / f"spark-{version}" / "bin" / "python"


def pyspark_home(python: Path) -> Path:
    """Where the interpreter's environment has PySpark."""
    (home,) = (python.parents[1] / "lib").glob("python*/site-packages/pyspark")
    return home


class Driver:
    """The driver as often as it is started; its output is in ``folder``.

    ``config``: of the session. ``read`` and ``write``: the query's options. With ``connect`` the
    query runs in a Connect server, which starts and ends with its client.
    """

    def __init__(
        self,
        python: Path,
        folder: Path,
        master: str,
        config: Mapping[str, str],
        read: Mapping[str, str],
        write: Mapping[str, str],
        *,
        connect: bool,
    ) -> None:
        self._python = python
        self._folder = folder
        self._master = master
        self._config = {"spark.executorEnv.PYTHONPATH": str(_ROOT), **config}
        self._options = {"read": dict(read), "write": dict(write)}
        self._connect = connect
        self._processes: list[subprocess.Popen[bytes]] = []
        self.starts = 0

    def start(self, trigger: Mapping[str, Any] = CONTINUOUS) -> None:
        """Start it, also after it was killed or has ended."""
        self.kill()
        self.starts += 1
        master, config = self._master, self._config
        if self._connect:
            master, config = self._start_server(), {}
        given = {"master": master, "config": config, "trigger": dict(trigger), **self._options}
        query = [str(self._python), "-m", "experiments.spark_chaos.query", json.dumps(given)]
        self._run(self._log, query)

    def _start_server(self) -> str:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = {
            "spark.master": self._master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            **self._config,
        }
        command = [str(pyspark_home(self._python) / "bin" / "spark-submit"), "--class", _SERVER]
        command += [word for name in config for word in ("--conf", f"{name}={config[name]}")]
        self._run(self._folder / f"server-{self.starts}.log", [*command, "spark-internal"])
        return f"sc://127.0.0.1:{port}"

    def _run(self, log: Path, command: list[str]) -> None:
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().path.resolve().parent.parent),
            "PYTHONPATH": str(_ROOT),
            "PYSPARK_PYTHON": str(self._python),
            "PYTHONWARNINGS": "ignore",
            "SPARK_HOME": str(pyspark_home(self._python)),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - no words from outside
                command,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=_ROOT,
                start_new_session=True,
            )
        self._processes.append(process)

    @property
    def _log(self) -> Path:
        return self._folder / f"driver-{self.starts}.log"

    @property
    def batches(self) -> int:
        """How many batches the running driver has told of."""
        text = self._log.read_text(errors="replace") if self.starts else ""
        return sum(line.startswith("batch ") for line in text.splitlines())

    @property
    def status(self) -> int | None:
        """The exit status of the driver, or of its client; None while it runs."""
        return self._processes[-1].poll() if self._processes else None

    @property
    def last_words(self) -> str:
        """The line that says best why the driver has ended."""
        lines = self._log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return (errors or lines or [""])[-1].strip()[:500]

    def kill(self) -> None:
        """SIGKILL. The Python workers find out by themselves."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes = []

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
