"""Starting, breaking and ending brokers, with a stub for Kafka."""

from __future__ import annotations

import inspect
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.testing.control import RemoteProxy
from kafkaclient.testing.errors import BrokerStartError, LocalClusterError
from kafkaclient.testing.fleet import Fleet
from kafkaclient.testing.jvm import Jvm
from kafkaclient.testing.proxy.fault_proxy import PROXY_FAULTS
from kafkaclient.testing.settings import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TIMEOUT_S = 30.0


@pytest.fixture
async def make(tmp_path: Path, stub_java: Path) -> AsyncIterator[Callable[..., Fleet]]:
    fleets = []
    work = tmp_path / "work"
    work.mkdir()

    def build(brokers: int = 2, said: list[str] | None = None, **config: object) -> Fleet:
        spec = ClusterSpec(brokers, None, config, "4.3.1")
        say = (said if said is not None else []).append
        fleet = Fleet(spec, Jvm(stub_java, ()), work, tmp_path / "template", say)
        fleets.append(fleet)
        return fleet

    yield build
    for fleet in fleets:
        await fleet.stop()


def states(fleet: Fleet) -> list[str]:
    return [broker["state"] for broker in fleet.describe()["brokers"]]


async def test_start_and_stop(make: Callable[..., Fleet]) -> None:
    fleet = make(2)
    await fleet.start(TIMEOUT_S)
    found = fleet.describe()
    assert [broker["state"] for broker in found["brokers"]] == ["running", "running"]
    assert [broker["controller"] for broker in found["brokers"]] == [True, False]
    direct = [f"127.0.0.1:{broker['port']}" for broker in found["brokers"]]
    proxied = [f"127.0.0.1:{broker['proxied_port']}" for broker in found["brokers"]]
    assert found["bootstrap"] == ",".join(direct)
    assert found["proxied_bootstrap"] == ",".join(proxied)
    assert len({*direct, *proxied}) == 4
    with pytest.raises(ConfigError, match="no broker 2; choose one of 0 to 1"):
        fleet.broker(2)
    await fleet.stop()
    assert states(fleet) == ["stopped", "stopped"]


async def test_formatting_is_done_once_for_all_clusters(make: Callable[..., Fleet]) -> None:
    for expected in (True, False):
        said: list[str] = []
        fleet = make(2, said)
        await fleet.start(TIMEOUT_S)
        await fleet.stop()
        assert ("formatting" in said) is expected


async def test_a_port_taken_meanwhile_is_replaced(
    make: Callable[..., Fleet], stub_java: Path
) -> None:
    (stub_java.parent / "taken").touch()
    said: list[str] = []
    fleet = make(2, said)
    await fleet.start(TIMEOUT_S)
    assert states(fleet) == ["running", "running"]
    assert any("another process uses a chosen port" in line for line in said)


async def test_a_broker_that_fails_takes_the_others_along(make: Callable[..., Fleet]) -> None:
    fleet = make(2, **{"fail.node": "1"})
    with pytest.raises(BrokerStartError, match=r"broker 1 ended with code 1(.|\n)*told to fail"):
        await fleet.start(TIMEOUT_S)
    assert states(fleet) == ["stopped", "stopped"]


async def test_settings_that_the_storage_tool_refuses(make: Callable[..., Fleet]) -> None:
    with pytest.raises(BrokerStartError, match=r"refuse\.me is not for me"):
        await make(1, **{"refuse.me": "x"}).start(TIMEOUT_S)


async def test_brokers_come_and_go(make: Callable[..., Fleet]) -> None:
    fleet = make(2)
    await fleet.start(TIMEOUT_S)
    ports = [broker["port"] for broker in fleet.describe()["brokers"]]
    await fleet.broker(0).kill()
    await fleet.broker(1).pause()
    assert states(fleet) == ["stopped", "paused"]
    with pytest.raises(LocalClusterError, match="broker 0 is not running"):
        await fleet.broker(0).pause()
    await fleet.start_broker(0, wait=True, timeout_s=TIMEOUT_S)
    await fleet.restart_broker(1, wait=True, timeout_s=TIMEOUT_S)
    assert states(fleet) == ["running", "running"]
    assert [broker["port"] for broker in fleet.describe()["brokers"]] == ports


@pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux only")
async def test_nobody_takes_the_port_of_a_stopped_broker(make: Callable[..., Fleet]) -> None:
    fleet = make(2)
    await fleet.start(TIMEOUT_S)
    await fleet.broker(0).kill()
    port = fleet.describe()["brokers"][0]["port"]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    await fleet.stop()
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_heal(make: Callable[..., Fleet]) -> None:
    fleet = make(3)
    await fleet.start(TIMEOUT_S)
    await fleet.broker(0).kill()
    await fleet.broker(1).pause()
    fleet.set_fault(2, "stall", {})
    await fleet.heal(TIMEOUT_S)
    assert states(fleet) == ["running"] * 3


async def test_faults_reach_the_proxy(make: Callable[..., Fleet]) -> None:
    fleet = make(1)
    await fleet.start(TIMEOUT_S)
    fleet.set_fault(0, "delay_produce", {"seconds": 0.02})
    fleet.set_fault(0, "corrupt_request", {"xor": [[-8, 255]], "api_key": 0, "times": 3})
    assert fleet.set_fault(0, "cut", {}) == 0
    assert fleet.proxy_stats()[0]["requests"] == {}
    with pytest.raises(ConfigError, match="unknown fault 'explode'"):
        fleet.set_fault(0, "explode", {})
    with pytest.raises(ConfigError, match="refused"):
        fleet.set_fault(0, "delay_produce", {"minutes": 1})


def test_the_remote_proxy_offers_every_fault() -> None:
    methods = inspect.getmembers(RemoteProxy, inspect.iscoroutinefunction)
    assert {name for name, _ in methods} - {"_fault"} == PROXY_FAULTS
