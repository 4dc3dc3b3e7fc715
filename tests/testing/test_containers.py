"""Containers as a fleet of brokers, with a stub for Docker that runs stubs for Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from kafkaclient.testing import control
from kafkaclient.testing.broker import free_ports, membership
from kafkaclient.testing.cluster import ComposeCluster
from kafkaclient.testing.containers import ContainerFleet
from kafkaclient.testing.errors import BrokerStartError, LocalClusterError
from kafkaclient.testing.jars import JarCache
from kafkaclient.testing.jvm import Java, Jvm
from kafkaclient.testing.settings import ClusterSpec

pytestmark = pytest.mark.full

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

TIMEOUT_S = 30.0
CLUSTER_ID = "mb3hKfJmS5aOZ3h2gTnq4A"

# A container is a directory: the process that `docker start` makes has its id in the file `pid`.
_DOCKER = r"""#!{python}
import json, os, signal, subprocess, sys, time
from pathlib import Path

root = Path({root!r})
command, *arguments = sys.argv[1:]

def state(name):
    try:
        pid = (root / name / "pid").read_text()
        letter = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return 0, "X"
    return (0, "X") if letter in "ZX" else (int(pid), letter)

def inspect(name):
    pid, letter = state(name)
    told = json.loads((root / name / "container.json").read_text())
    return told | {{"State": {{"Pid": pid, "Running": pid > 0, "Paused": letter in "Tt"}}}}

def signalled(name, number):
    pid, _ = state(name)
    if not pid:
        sys.exit(f"Error response from daemon: {{name}} is not running")
    os.kill(pid, number)

name = arguments[-1]
if command == "ps":
    wanted = "label=com.docker.compose.project=stub"
    print("\n".join(path.name for path in root.glob("broker-*") if arguments[-1] == wanted))
elif command == "inspect":
    print(json.dumps([inspect(name) for name in arguments]))
elif command == "start":
    java = [{java!r}, "-cp", "jars", "kafka.Kafka", str(root / name / "server.properties")]
    with open(root / name / "log", "wb") as log:
        process = subprocess.Popen(java, stdout=log, stderr=log, start_new_session=True)
    (root / name / "pid").write_text(str(process.pid))
elif command == "kill":
    signalled(name, signal.SIGKILL)
elif command == "stop":
    signalled(name, signal.SIGTERM)
    while state(name)[0]: time.sleep(0.01)
elif command == "wait":
    while state(name)[0]: time.sleep(0.01)
elif command in ("pause", "unpause"):
    signalled(name, signal.SIGSTOP if command == "pause" else signal.SIGCONT)
elif command == "logs":
    sys.stderr.write("INFO all is well\n")
"""


@pytest.fixture
def project(
    tmp_path: Path, stub_java: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[int]]:
    """Three stopped containers of the project ``stub``; their direct and proxied ports."""
    root = tmp_path / "containers"
    ports = free_ports(9)
    for node, (direct, proxied, proxy) in enumerate(zip(*[iter(ports)] * 3, strict=True)):
        container = root / f"broker-{node}"
        (container / "data").mkdir(parents=True)
        (container / "data" / "meta.properties").write_text(f"cluster.id={CLUSTER_ID}\n")
        listeners = f"DIRECT://127.0.0.1:{direct}"
        (container / "server.properties").write_text(f"node.id={node}\nlisteners={listeners}\n")
        environment = {
            "CLUSTER_ID": CLUSTER_ID,
            "KAFKA_NODE_ID": str(node),
            "KAFKA_LOG_DIRS": "/tmp/logs",  # noqa: S108 - in the container
            "KAFKA_LISTENERS": f"DIRECT://0.0.0.0:{direct},PROXIED://0.0.0.0:{proxied},"
            "INTERNAL://0.0.0.0:9094,CONTROLLER://0.0.0.0:9093",
            "KAFKA_ADVERTISED_LISTENERS": f"DIRECT://127.0.0.1:{direct},"
            f"PROXIED://127.0.0.1:{proxy},INTERNAL://broker-{node}:9094",
        }
        told = {
            "Id": container.name,
            "Config": {"Env": [f"{name}={value}" for name, value in environment.items()]},
            "LogPath": str(container / "log"),
            "Mounts": [{"Destination": "/tmp/logs", "Source": str(container / "data")}],  # noqa: S108
        }
        (container / "container.json").write_text(json.dumps(told))
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(_DOCKER.format(python=sys.executable, root=str(root), java=str(stub_java)))
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    yield ports
    for pid in root.glob("broker-*/pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
async def make(project: list[int], tmp_path: Path) -> AsyncIterator[Callable[..., ContainerFleet]]:
    fleets = []

    def build(name: str = "stub", brokers: int = 3) -> ContainerFleet:
        spec = ClusterSpec(brokers, None, {}, "4.3.1")
        jvm = Jvm(tmp_path / "none", ())
        fleet = ContainerFleet(name, spec, jvm, tmp_path, tmp_path / "template", print)
        fleets.append(fleet)
        return fleet

    yield build
    for fleet in fleets:
        await fleet.stop()


@pytest.fixture
async def fleet(make: Callable[..., ContainerFleet]) -> ContainerFleet:
    """All three up."""
    await started()
    fleet = make()
    await fleet.start(TIMEOUT_S)
    return fleet


async def started() -> None:
    for node in range(3):
        process = await asyncio.create_subprocess_exec("docker", "start", f"broker-{node}")
        assert await process.wait() == 0


def states(fleet: ContainerFleet) -> list[str]:
    return [broker["state"] for broker in fleet.describe()["brokers"]]


async def test_everything_is_read_from_the_containers(
    fleet: ContainerFleet, project: list[int], tmp_path: Path
) -> None:
    found = fleet.describe()
    assert found["cluster_id"] == CLUSTER_ID
    assert found["bootstrap"] == ",".join(f"127.0.0.1:{port}" for port in project[::3])
    assert found["proxied_bootstrap"] == ",".join(f"127.0.0.1:{port}" for port in project[2::3])
    assert [broker["node_id"] for broker in found["brokers"]] == [0, 1, 2]
    assert states(fleet) == ["running"] * 3
    place = tmp_path / "containers" / "broker-1"
    assert found["brokers"][1]["log_dir"] == str(place / "data")
    assert found["brokers"][1]["log_file"] == str(place / "log")


async def test_containers_are_killed_paused_and_started(fleet: ContainerFleet) -> None:
    pids = [broker["pid"] for broker in fleet.describe()["brokers"]]
    await fleet.broker(0).kill()
    await fleet.broker(0).kill()
    await fleet.broker(1).pause()
    await fleet.broker(1).pause()
    assert states(fleet) == ["stopped", "paused", "running"]
    for act in (fleet.broker(0).pause, fleet.broker(0).resume):
        with pytest.raises(LocalClusterError, match="broker 0 is not running"):
            await act()
    with pytest.raises(LocalClusterError, match="broker 1 cannot start: it is already paused"):
        await fleet.broker(1).start()
    await fleet.broker(1).terminate()
    await fleet.broker(1).terminate()
    assert states(fleet) == ["stopped", "stopped", "running"]
    await fleet.start_broker(1, wait=True, timeout_s=TIMEOUT_S)
    await fleet.restart_broker(2, wait=True, timeout_s=TIMEOUT_S)
    await fleet.heal(TIMEOUT_S)
    assert states(fleet) == ["running"] * 3
    assert not {broker["pid"] for broker in fleet.describe()["brokers"]} & set(pids)


async def test_heal_and_stop_leave_the_containers_running(
    fleet: ContainerFleet, project: list[int]
) -> None:
    await fleet.broker(0).kill()
    await fleet.broker(1).pause()
    fleet.set_fault(2, "stall", {})
    await fleet.heal(TIMEOUT_S)
    await fleet.stop()
    assert states(fleet) == ["running"] * 3
    assert await membership(project[0]) is not None
    assert await membership(project[2]) is None  # the proxy


async def test_a_project_that_is_not_up(make: Callable[..., ContainerFleet]) -> None:
    with pytest.raises(
        LocalClusterError, match="'other' has 0 containers, but needs 3, one for each"
    ):
        await make("other").start(TIMEOUT_S)
    with pytest.raises(LocalClusterError, match="'stub' has 3 containers"):
        await make(brokers=2).start(TIMEOUT_S)


async def test_a_broker_that_does_not_serve(make: Callable[..., ContainerFleet]) -> None:
    await started()
    process = await asyncio.create_subprocess_exec("docker", "pause", "broker-1")
    assert await process.wait() == 0
    with pytest.raises(BrokerStartError, match=r"broker 1 is not ready(.|\n)*all is well"):
        await make().start(0.5)


async def test_a_proxys_address_that_is_taken(
    make: Callable[..., ContainerFleet], project: list[int]
) -> None:
    await started()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", project[2])
    async with server:
        with pytest.raises(
            LocalClusterError, match=f"ports {project[2]}, .*another process uses one"
        ):
            await make().start(TIMEOUT_S)


async def test_what_docker_says_is_told(
    fleet: ContainerFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "docker").write_text("#!/bin/sh\necho no such container >&2; exit 1\n")
    with pytest.raises(LocalClusterError, match="docker pause broker-0 failed: no such container"):
        await fleet.broker(0).pause()
    (tmp_path / "bin" / "docker").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(LocalClusterError, match="cannot find `docker` on the PATH"):
        await fleet.broker(0).pause()


async def test_the_users_side(
    project: list[int], stub_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the fixture ``kafka_cluster`` uses it, with a supervisor process between."""
    java = Java(stub_java, 17, "stub")
    monkeypatch.setattr(control, "find_java", lambda: java)
    monkeypatch.setattr(JarCache, "ensure", lambda self, jars: ())
    await started()
    cluster = ComposeCluster("stub")
    assert repr(cluster) == "<ComposeCluster stub: not in use>"
    async with cluster:
        assert cluster.brokers == (0, 1, 2)
        assert cluster.bootstrap == ",".join(f"127.0.0.1:{port}" for port in project[::3])
        assert cluster.address(1) == ("127.0.0.1", project[3])
        await cluster.kill(2)
        await cluster.proxy(0).stall()
        await cluster.heal()
        assert {broker.state for broker in await cluster.status()} == {"running"}
        pids = [broker.pid for broker in await cluster.status()]
    assert all(psutil.pid_exists(pid) for pid in pids if pid is not None)
