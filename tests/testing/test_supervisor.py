"""The process that owns the brokers, and its user's side; the brokers are stubs."""

from __future__ import annotations

import asyncio
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psutil
import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.control import SupervisorClient, launch_supervisor
from kafkaclient.testing.errors import (
    BrokerStartError,
    ClusterNotRunningError,
    LocalClusterError,
)
from kafkaclient.testing.jvm import Jvm
from kafkaclient.testing.settings import DEFAULT_VERSION, ClusterSpec
from kafkaclient.testing.supervisor import LAUNCH_FILE, Launch

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

TIMEOUT_S = 30.0
Start = Callable[..., tuple[SupervisorClient, "subprocess.Popen[bytes]"]]


@pytest.fixture
def start(tmp_path: Path, stub_java: Path) -> Iterator[Start]:
    started = []

    def launch(
        *, attached: bool = True, **config: str
    ) -> tuple[SupervisorClient, subprocess.Popen[bytes]]:
        directory = tmp_path / "run"
        directory.mkdir()
        spec = ClusterSpec(2, None, config, "4.3.1")
        jvm = Jvm(stub_java, (), tmp_path / "classes.jsa", 17)
        what = Launch(spec, jvm, tmp_path / "template", keep=False)
        process = launch_supervisor(directory, what, attached=attached)
        started.append(process)
        control = SupervisorClient(directory)
        control.wait(process)
        return control, process

    yield launch
    for process in started:
        process.terminate()
        process.wait(TIMEOUT_S)
        if process.stdin is not None:
            process.stdin.close()


def brokers(control: SupervisorClient) -> list[psutil.Process]:
    return [psutil.Process(broker["pid"]) for broker in control.call("describe")["brokers"]]


def all_gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=TIMEOUT_S)[1]


def test_start_command_and_stop(start: Start) -> None:
    control, process = start()
    mode = (control.directory / "control.sock").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600, "only the user may command"
    said: list[str] = []
    control.call("start", timeout_s=TIMEOUT_S, say=said.append)
    assert "broker 1 is ready" in said
    running = brokers(control)
    control.call("kill", broker=0)
    assert control.call("describe")["brokers"][0]["state"] == "stopped"
    control.call("stop")
    assert process.wait(TIMEOUT_S) == 0
    assert all_gone(running)
    assert not control.directory.exists()


def test_errors_come_back_as_what_they_were(start: Start) -> None:
    control, _ = start()
    control.call("start", timeout_s=TIMEOUT_S)
    with pytest.raises(ConfigError, match="no broker 9"):
        control.call("kill", broker=9)
    with pytest.raises(ConfigError, match="unknown command 'explode'"):
        control.call("explode")
    with pytest.raises(LocalClusterError, match="unexpected keyword"):
        control.call("kill", brokers=1)
    with pytest.raises(LocalClusterError, match="broker 0 cannot start: it is already running"):
        control.call("start_broker", broker=0, wait=True, timeout_s=1)


def test_a_cluster_that_cannot_start_ends(start: Start) -> None:
    control, process = start(**{"fail.node": "0"})
    with pytest.raises(BrokerStartError, match="told to fail"):
        control.call("start", timeout_s=TIMEOUT_S)
    process.wait(TIMEOUT_S)
    assert not control.directory.exists()
    with pytest.raises(ClusterNotRunningError):
        control.call("describe")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends orphans")
def test_brokers_do_not_survive_a_killed_supervisor(start: Start) -> None:
    control, process = start(attached=False)
    control.call("start", timeout_s=TIMEOUT_S)
    running = brokers(control)
    process.kill()
    assert all_gone(running)


@pytest.mark.parametrize(
    "number",
    [
        None,
        signal.SIGTERM,
        *(pytest.param(other, marks=pytest.mark.full) for other in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_its_lifeline_or_a_signal_ends_it_in_order(
    start: Start, number: signal.Signals | None
) -> None:
    control, process = start(attached=number is None)
    control.call("start", timeout_s=TIMEOUT_S)
    running = brokers(control)
    if number is not None:
        process.send_signal(number)
    else:
        assert process.stdin is not None
        process.stdin.close()
    assert process.wait(TIMEOUT_S) == 0
    assert all_gone(running)
    assert not control.directory.exists()


def test_a_supervisor_that_fails_says_why(tmp_path: Path) -> None:
    spec = ClusterSpec(1, None, {}, "4.3.1")
    object.__setattr__(spec, "brokers", 0)
    what = Launch(spec, Jvm(tmp_path / "java", ()), tmp_path / "template", keep=True)
    process = launch_supervisor(tmp_path, what, attached=True)
    with pytest.raises(LocalClusterError, match=r"did not start(.|\n)*brokers must be 1 to"):
        SupervisorClient(tmp_path).wait(process)
    process.communicate(timeout=TIMEOUT_S)


def test_a_handle_of_a_cluster_that_does_not_run() -> None:
    cluster = LocalCluster()
    assert repr(cluster) == f"<LocalCluster of 3, Kafka {DEFAULT_VERSION}: not running>"
    with pytest.raises(ClusterNotRunningError):
        _ = cluster.bootstrap
    with pytest.raises(ClusterNotRunningError):
        asyncio.run(cluster.kill(0))
    asyncio.run(cluster.stop())


def test_security_accepts_what_it_can_do() -> None:
    with pytest.raises(ConfigError, match="security must be a ClusterSecurity or None"):
        LocalCluster(security="tls")  # type: ignore[arg-type]


def test_a_cluster_of_another_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / LAUNCH_FILE).write_text('{"brokers": 3, "classpath": []}', "utf-8")
    with pytest.raises(LocalClusterError, match="another version of kafkaclient; stop it with"):
        Launch.read(tmp_path)
