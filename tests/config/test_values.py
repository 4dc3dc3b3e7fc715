"""What an option may be given, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaclient.config.kinds import INT32_MAX
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.errors import ConfigError

BOOTSTRAP = "localhost:9092"
SERIALIZER = (
    "a function (value) -> bytes or None, or an object with a method serialize(value, context)"
)


class Serializing:
    def serialize(self, value: str, _context: object) -> bytes:
        return value.encode()


def build(*, mapping: dict[str, Any] | None = None, **options: Any) -> ProducerConfig:
    return ProducerConfig.build({"bootstrap.servers": BOOTSTRAP, **(mapping or {})}, options)


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"acks": "all"}, "acks", -1),
        ({"acks": "-1"}, "acks", -1),
        ({"acks": " 1 ", "linger.ms": "0"}, "acks", 1),
        ({"acks": 0}, "acks", 0),
        ({"linger.ms": "0.5"}, "linger_ms", 0.5),
        ({"linger.ms": 2.5}, "linger_ms", 2.5),
        ({"linger.ms": "20"}, "linger_ms", 20),
        ({"batch.size": "0"}, "batch_size", 0),
        ({"enable.idempotence": "False"}, "enable_idempotence", False),
        ({"compression.type": "zstd"}, "compression_type", "zstd"),
        ({"compression.zstd.level": "-5"}, "compression_zstd_level", -5),
        ({"compression.gzip.level": -1}, "compression_gzip_level", -1),
        ({"compression.threads": "8"}, "compression_threads", 8),
        ({"compression.gzip.level": None}, "compression_gzip_level", None),
        ({"connections.max.idle.ms": -1}, "connections_max_idle_ms", -1),
        ({"max.block.ms": 2**40}, "max_block_ms", 2**40),
        ({"client.id": ""}, "client_id", ""),
        ({"client.rack": " eu-1a "}, "client_rack", "eu-1a"),
        ({"partitioner": " late "}, "partitioner", "late"),
        ({"partitioner": "uniform-sticky"}, "partitioner", "uniform-sticky"),
        ({"partitioner.share.floor": "0.25"}, "partitioner_share_floor", 0.25),
        ({"partitioner.share.floor": 1}, "partitioner_share_floor", 1),
    ],
)
def test_values_read(options: dict[str, Any], field: str, value: object) -> None:
    read = getattr(build(mapping=options), field)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("linger_ms", "soon", "a number of 0 or more"),
        ("linger_ms", -1, "a number of 0 or more"),
        ("linger_ms", float("nan"), "a number of 0 or more"),
        ("linger_ms", float("inf"), "a number of 0 or more"),
        ("linger_ms", "inf", "a number of 0 or more"),
        ("linger_ms", True, "a number of 0 or more"),
        ("linger_ms", None, "a number of 0 or more"),
        ("batch_size", 1.5, "a whole number of 0 or more"),
        ("batch_size", "1.5", "a whole number of 0 or more"),
        ("batch_size", False, "a whole number of 0 or more"),
        ("batch_size", -1, "a whole number of 0 or more"),
        ("batch_size", 2**31, "a whole number of 0 or more"),
        ("acks", True, "all (or -1), 1 or 0"),
        ("acks", 2, "all (or -1), 1 or 0"),
        ("acks", "most", "all (or -1), 1 or 0"),
        ("acks", 1.0, "all (or -1), 1 or 0"),
        ("enable_idempotence", 1, "true or false"),
        ("enable_idempotence", "yes", "true or false"),
        ("max_in_flight_requests_per_connection", 0, "a whole number of 1 or more"),
        ("metadata_max_idle_ms", 4999, "a whole number of 5000 or more"),
        ("availability_timeout_ms", -1, "a whole number of 0 or more"),
        ("compression_type", "brotli", "one of none, gzip, snappy, lz4, zstd"),
        ("compression_type", 1, "one of none, gzip, snappy, lz4, zstd"),
        ("compression_gzip_level", 0, "a whole number from 1 to 9 or -1, or None"),
        ("compression_lz4_level", 18, "a whole number from 1 to 17, or None"),
        ("compression_threads", 0, "a whole number from 1 to 256, or None"),
        ("client_id", 5, "a string"),
        ("partitioner_share_floor", 1.01, "a number from 0 to 1"),
        ("partitioner_share_floor", -0.1, "a number from 0 to 1"),
        ("value_serializer", "org.example.Json", f"{SERIALIZER}, or None"),
        ("on_delivery", 5, "a function (delivery), or None"),
    ],
)
def test_values_refused(name: str, value: object, accepted: str) -> None:
    for spelling in (name, name.replace("_", ".")):
        with pytest.raises(ConfigError) as caught:
            build(mapping={spelling: value})
        assert str(caught.value) == f"{spelling}={value!r} is not accepted: give {accepted}"


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        build(linger_ms="x" * 10_000)
    assert len(str(caught.value)) < 200


def test_numbers_that_are_not_ints_but_count_like_them() -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    assert build(batch_size=Index()).batch_size == 7


def test_linger_is_clipped_to_an_int() -> None:
    assert build(linger_ms=2**40).linger_ms == INT32_MAX


def test_the_class_of_a_serializer_is_refused() -> None:
    with pytest.raises(ConfigError, match="key_serializer=Serializing is not"):
        build(key_serializer=Serializing)


def test_functions_are_kept() -> None:
    def hook(*_: object) -> None: ...

    async def serialize(value: str) -> bytes:
        return value.encode()

    config = build(value_serializer=str.encode, on_error=hook)
    assert config.on_error is hook
    assert config.value_serializer is str.encode
    with_context = Serializing()
    config = build(value_serializer=with_context, key_serializer=serialize)
    assert config.value_serializer is with_context
    assert config.key_serializer is serialize


# --- the partitioner ---------------------------------------------------------------------------


class Chooser:
    def partition(self, *_: object) -> int:
        return 0


class Waiter:
    async def partition(self, *_: object) -> int:
        return 0


class Word:
    partition = "0"


def test_a_partitioner_of_ones_own_is_kept() -> None:
    chooser = Chooser()
    assert build(partitioner=chooser).partitioner is chooser


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Chooser, "Chooser"),
        (Waiter(), None),
        (Word(), None),
        (5, "5"),
        (None, "None"),
        (lambda *_: 0, "<lambda>"),
        ("round_robin", "'round_robin'"),
    ],
)
def test_partitioners_refused(value: object, shown: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        build(partitioner=value)
    assert str(caught.value).endswith(
        " is not accepted: give one of late, kip794, sticky, uniform-sticky, round-robin, random, "
        "or an object with a method partition(topic, key, value, cluster, load) -> int"
    )
    assert shown is None or f"partitioner={shown} " in str(caught.value)


def test_javas_partitioner_class_is_told_the_names_to_give() -> None:
    java = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    with pytest.raises(ConfigError, match="give partitioner=round-robin, uniform-sticky or sticky"):
        build(mapping={"partitioner.class": java})


def test_rack_awareness_needs_a_rack() -> None:
    """As Java 4.4 (KIP-1123)."""
    aware = build(mapping={"partitioner.rack.aware": "true", "client.rack": "eu-1a"})
    assert aware.partitioner_rack_aware
    assert build(mapping={"client.rack": "eu-1a"}).partitioner_rack_aware is False
    for rack in ({}, {"client.rack": " "}):
        with pytest.raises(ConfigError) as caught:
            build(mapping={"partitioner.rack.aware": "true", **rack})
        assert str(caught.value) == (
            "partitioner.rack.aware=True needs client_rack: give the rack of this client"
        )


# --- bootstrap servers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("a:9092", (("a", 9092),)),
        (" a:9092 , b-1.example.org:9093,", (("a", 9092), ("b-1.example.org", 9093))),
        ("[::1]:9092,10.0.0.1:1", (("::1", 9092), ("10.0.0.1", 1))),
        ("[fe80::1%eth0]:9092", (("fe80::1%eth0", 9092),)),
        ("PLAINTEXT://a:9092", (("a", 9092),)),
        (["a:9092", "b:9092", "a:9092"], (("a", 9092), ("b", 9092))),
        ({"a:9092": 1}.keys(), (("a", 9092),)),
        ((("a", 9092), ["::1", 9093]), (("a", 9092), ("::1", 9093))),
    ],
)
def test_bootstrap_servers_read(given: object, read: object) -> None:
    assert ProducerConfig.build({"bootstrap.servers": given}).bootstrap_servers == read


@pytest.mark.parametrize(
    "given",
    [
        "",
        " , ",
        "localhost",
        "localhost:",
        ":9092",
        "localhost:0",
        "localhost:65536",
        "localhost:http",
        "::1:9092",
        "HTTP://a:9092",
        "a:9092;b:9092",
        [],
        [9092],
        [("a", "9092")],
        [("", 9092)],
        9092,
        None,
        {"a": 9092},
    ],
)
def test_bootstrap_servers_refused(given: object) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap_servers=.* is not accepted: give host:port"):
        ProducerConfig.build(None, {"bootstrap_servers": given})


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is required: give host:port"):
        ProducerConfig.build({}, {"linger_ms": 1})
