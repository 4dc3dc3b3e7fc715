"""What brokers are told."""

from __future__ import annotations

import base64

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.testing.settings import (
    ClusterSpec,
    Ports,
    broker_properties,
    controller_ids,
    new_uuid,
    shared_settings,
)


def spec(brokers: int = 3, **given: object) -> ClusterSpec:
    arguments = {"racks": None, "config": {}, "version": "4.3.1"} | given
    return ClusterSpec(brokers, **arguments)  # type: ignore[arg-type]


def ports(brokers: int) -> list[Ports]:
    return [Ports(*(100 * broker + n for n in range(5))) for broker in range(brokers)]


@pytest.mark.parametrize(
    ("brokers", "controllers"),
    [(1, (0,)), (2, (0,)), (3, (0, 1, 2)), (4, (0, 1, 2)), (5, (0, 1, 2))],
)
def test_three_controllers_where_there_are_three_brokers(
    brokers: int, controllers: tuple[int, ...]
) -> None:
    assert controller_ids(brokers) == controllers


def test_a_broker_that_is_a_controller_too() -> None:
    properties = broker_properties(spec(3), 1, ports(3), "/data")
    assert properties["process.roles"] == "broker,controller"
    assert properties["listeners"] == (
        "DIRECT://127.0.0.1:100,PROXIED://127.0.0.1:101,"
        "INTERNAL://127.0.0.1:103,CONTROLLER://127.0.0.1:104"
    )
    assert properties["advertised.listeners"] == (
        "DIRECT://127.0.0.1:100,PROXIED://127.0.0.1:102,INTERNAL://127.0.0.1:103"
    )
    assert properties["controller.quorum.voters"] == "0@127.0.0.1:4,1@127.0.0.1:104,2@127.0.0.1:204"


def test_a_broker_that_is_not() -> None:
    properties = broker_properties(spec(5), 3, ports(5), "/data")
    assert properties["process.roles"] == "broker"
    assert "CONTROLLER://" not in properties["listeners"]


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_replication_fits_the_cluster(brokers: int, replicas: str, in_sync: str) -> None:
    settings = shared_settings(brokers)
    for key, value in settings.items():
        if key.endswith("replication.factor"):
            assert value == replicas, key
        if key.endswith(("min.isr", "min.insync.replicas")):
            assert value == in_sync, key
    assert settings["num.partitions"] == "6"
    assert settings["auto.create.topics.enable"] == "true"


def test_config_goes_over_the_defaults_and_racks_to_their_brokers() -> None:
    config = {"num.partitions": 12, "auto.create.topics.enable": False, "message.max.bytes": "9"}
    given = spec(3, racks=["a", "b", "c"], config=config)
    properties = broker_properties(given, 2, ports(3), "/data")
    assert properties["num.partitions"] == "12"
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["message.max.bytes"] == "9"
    assert properties["broker.rack"] == "c"
    assert "broker.rack" not in broker_properties(spec(3), 2, ports(3), "/data")


@pytest.mark.parametrize(
    ("brokers", "given", "message"),
    [
        (0, {}, "brokers must be 1 to"),
        (99, {}, "brokers must be 1 to"),
        (3, {"racks": ["a"]}, "one rack for each of 3 brokers"),
        (3, {"racks": "abc"}, "one rack for each of 3 brokers"),
        (3, {"config": {"listeners": "X://0.0.0.0:1"}}, "listeners cannot be set"),
        (3, {"config": {"num.partitions": None}}, "num.partitions must be"),
    ],
)
def test_what_cannot_be_is_refused(brokers: int, given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spec(brokers, **given)


def test_ids_are_kafka_s_notation_of_16_bytes() -> None:
    for _ in range(200):
        text = new_uuid()
        assert not text.startswith("-")
        assert len(base64.urlsafe_b64decode(text + "==")) == 16
