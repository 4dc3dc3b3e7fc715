"""docker-compose.yml describes the cluster that LocalCluster starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.compose import run
from kafkaclient.testing.settings import (
    DEFAULT_VERSION,
    HEAP_MB,
    ClusterSpec,
    Ports,
    broker_properties,
)

COMPOSE = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text("utf-8"))
BROKERS = range(3)
# Where containers differ: their own names between them, another place for the data.
ADDRESSES = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}
NOT_PROPERTIES = {"CLUSTER_ID", "KAFKA_HEAP_OPTS"}


def service(broker: int) -> dict[str, Any]:
    return COMPOSE["services"][f"broker-{broker}"]


def properties(broker: int) -> dict[str, str]:
    """As the image derives them: KAFKA_NUM_PARTITIONS is num.partitions."""
    environment = service(broker)["environment"]
    assert all(isinstance(value, str) for value in environment.values())
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name not in NOT_PROPERTIES
    }


def listeners(text: str) -> dict[str, tuple[str, int]]:
    found = re.findall(r"([A-Z]+)://([^:,]+):(\d+)", text)
    return {name: (host, int(port)) for name, host, port in found}


def expected(broker: int) -> dict[str, str]:
    spec = ClusterSpec(len(BROKERS), None, {}, DEFAULT_VERSION)
    ports = [Ports(19092 + n, 29092 + n, 39092 + n, 9094, 9093) for n in BROKERS]
    return broker_properties(spec, broker, ports, "data")


def test_one_service_per_broker_and_nothing_else() -> None:
    assert set(COMPOSE["services"]) == {f"broker-{broker}" for broker in BROKERS}


@pytest.mark.parametrize("broker", BROKERS)
def test_settings_are_the_local_cluster_s(broker: int) -> None:
    ours, theirs = expected(broker), properties(broker)
    assert set(theirs) == set(ours)
    assert {k: v for k, v in theirs.items() if k not in ADDRESSES} == {
        k: v for k, v in ours.items() if k not in ADDRESSES
    }


@pytest.mark.parametrize("broker", BROKERS)
def test_listeners_have_the_same_names_and_ports(broker: int) -> None:
    ours, theirs = expected(broker), properties(broker)
    for key in ("listeners", "advertised.listeners"):
        mine, other = listeners(ours[key]), listeners(theirs[key])
        assert {n: port for n, (_, port) in mine.items()} == {
            n: port for n, (_, port) in other.items()
        }


@pytest.mark.parametrize("broker", BROKERS)
def test_clients_are_sent_to_127_0_0_1_and_nothing_else_is_published(broker: int) -> None:
    advertised = listeners(properties(broker)["advertised.listeners"])
    assert {name: host for name, (host, _) in advertised.items()} == {
        "DIRECT": "127.0.0.1",
        "PROXIED": "127.0.0.1",
        "INTERNAL": f"broker-{broker}",
    }
    bound = listeners(properties(broker)["listeners"])
    assert service(broker)["ports"] == [
        f"127.0.0.1:{bound[name][1]}:{bound[name][1]}" for name in ("DIRECT", "PROXIED")
    ]
    assert advertised["PROXIED"][1] != bound["PROXIED"][1]


def test_voters_are_the_brokers() -> None:
    for broker in BROKERS:
        voters = properties(broker)["controller.quorum.voters"].split(",")
        assert voters == [f"{n}@{service(n)['hostname']}:9093" for n in BROKERS]


@pytest.mark.parametrize("broker", BROKERS)
def test_same_kafka_and_same_heap(broker: int) -> None:
    assert service(broker)["image"] == f"apache/kafka:{DEFAULT_VERSION}"
    assert service(broker)["environment"]["KAFKA_HEAP_OPTS"] == f"-Xmx{HEAP_MB}m"


@pytest.mark.parametrize("broker", BROKERS)
def test_make_compose_test_starts_these_brokers(broker: int) -> None:
    assert run.BROKERS == BROKERS
    assert service(broker)["image"] == run.IMAGE
    assert service(broker)["environment"]["KAFKA_LOG_DIRS"] == run.LOGS
    assert set(service(broker)) & {"volumes", "container_name"} == set(), "run.py adds volumes"
