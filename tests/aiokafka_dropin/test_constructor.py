"""The constructor: aiokafka's parameters, errors and warnings, and the options they become.

Each row is compared with aiokafka's own constructor.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import ssl
from typing import Any

import aiokafka
import aiokafka.producer.producer
import pytest
from aiokafka.partitioner import DefaultPartitioner

from kafkaclient.aiokafka import AIOKafkaProducer
from kafkaclient.aiokafka.structs import CallablePartitioner
from kafkaclient.errors import ConfigError
from tests.aiokafka_dropin.support import made, same

SASL = {"security_protocol": "SASL_PLAINTEXT"}
USER = {"sasl_plain_username": "u", "sasl_plain_password": "p"}


def parameters(kind: type[Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(kind).parameters
    return {n: p for n, p in found.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_parameters_are_aiokafkas_in_order_with_its_defaults() -> None:
    ours, theirs = parameters(AIOKafkaProducer), parameters(aiokafka.AIOKafkaProducer)
    theirs.pop("metrics_collector", None)  # of 0.15: an unknown option here
    assert list(ours) == list(theirs)
    for name, parameter in theirs.items():
        if name == "partitioner":
            assert type(ours[name].default) is type(parameter.default) is DefaultPartitioner
        else:
            assert ours[name].default == parameter.default, name


@pytest.mark.parametrize(
    ("method", "leading"),
    [
        ("send", ["topic", "value", "key", "partition", "timestamp_ms", "headers"]),
        ("send_and_wait", ["topic", "value", "key", "partition", "timestamp_ms", "headers"]),
        ("send_batch", ["batch", "topic", "partition"]),
        ("partitions_for", ["topic"]),
        ("send_offsets_to_transaction", ["offsets", "group_id"]),
        *[(name, []) for name in ("start", "stop", "flush", "create_batch", "transaction")],
        *[(f"{name}_transaction", []) for name in ("begin", "commit", "abort")],
        (
            "_partition",
            ["topic", "partition", "key", "value", "serialized_key", "serialized_value"],
        ),
    ],
)
def test_a_methods_parameters_are_aiokafkas(method: str, leading: list[str]) -> None:
    for kind in (AIOKafkaProducer, aiokafka.AIOKafkaProducer):
        found = inspect.signature(getattr(kind, method)).parameters
        assert list(found)[1:] == leading
    ours, theirs = (
        inspect.signature(getattr(kind, method)).parameters.values()
        for kind in (AIOKafkaProducer, aiokafka.AIOKafkaProducer)
    )
    assert [(p.kind, p.default) for p in ours] == [(p.kind, p.default) for p in theirs]
    both = (getattr(AIOKafkaProducer, method), getattr(aiokafka.AIOKafkaProducer, method))
    assert len({inspect.iscoroutinefunction(function) for function in both}) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"acks": 122},
        {"acks": "1"},
        {"acks": None},
        {"acks": 1, "enable_idempotence": True},
        {"acks": 0, "transactional_id": "tx"},
        {"compression_type": "my_custom"},
        {"compression_type": "none"},
        {"security_protocol": "TLS"},
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_SSL", **USER},
        {**SASL},
        {**SASL, "sasl_plain_username": "u"},
        {**SASL, "sasl_mechanism": "NTLM"},
    ],
    ids=str,
)
async def test_a_value_error_is_aiokafkas(arguments: dict[str, Any]) -> None:
    kind, _ = await same(**arguments)
    assert kind is ValueError


@pytest.mark.parametrize("server", ["h:1,g:2", "h:x", "h:1:2"])
async def test_the_error_names_the_server_as_it_was_given(server: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AIOKafkaProducer(bootstrap_servers=[server])
    assert repr(server) in str(caught.value)


async def test_kerberos_needs_no_more_options() -> None:
    producer = AIOKafkaProducer(**SASL, sasl_mechanism="GSSAPI", sasl_kerberos_domain_name="lb")
    await producer.stop()
    assert producer._options["sasl_kerberos_service_name"] == "kafka"
    assert producer._options["sasl_kerberos_domain_name"] == "lb"


async def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ValueError, match="lingr_ms"):
        AIOKafkaProducer(lingr_ms=5)


def test_without_an_event_loop() -> None:
    with pytest.raises(RuntimeError, match="created within an async function or provide loop"):
        AIOKafkaProducer()


def test_the_loop_parameter_is_deprecated() -> None:
    """It still serves to create the producer where no loop runs."""
    loop = asyncio.new_event_loop()
    try:
        for kind in (AIOKafkaProducer, aiokafka.AIOKafkaProducer):
            with pytest.warns(DeprecationWarning, match="`loop` parameter") as caught:
                producer = kind(loop=loop)
            assert caught[0].filename == __file__
            loop.run_until_complete(producer.stop())
    finally:
        loop.close()


async def test_the_api_version_parameter_is_deprecated() -> None:
    for kind in (AIOKafkaProducer, aiokafka.AIOKafkaProducer):
        with pytest.warns(DeprecationWarning, match="`api_version` parameter") as caught:
            producer = kind(api_version="2.8.0")
        assert caught[0].filename == __file__
        await producer.stop()


async def test_start_in_another_loop() -> None:
    other = asyncio.new_event_loop()
    with pytest.warns(DeprecationWarning, match="loop"):
        producer = AIOKafkaProducer(loop=other)
    with pytest.raises(AssertionError, match="same loop as running with"):
        await producer.start()
    await producer.stop()
    other.close()


async def config(**arguments: Any) -> Any:
    producer = AIOKafkaProducer(**arguments)
    await producer.stop()
    return producer._producer.config


async def token() -> str:
    return "t"


def choose(_key: bytes | None, everything: list[int], _available: list[int]) -> int:
    return everything[0]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {"bootstrap_servers": (("localhost", 9092),)}),
        ({"bootstrap_servers": None}, {"bootstrap_servers": (("localhost", 9092),)}),
        ({"bootstrap_servers": []}, {"bootstrap_servers": (("localhost", 9092),)}),
        ({"bootstrap_servers": ""}, {"bootstrap_servers": (("localhost", 9092),)}),
        ({"bootstrap_servers": "a,b:1"}, {"bootstrap_servers": (("a", 9092), ("b", 1))}),
        ({"bootstrap_servers": ["a:1", "b"]}, {"bootstrap_servers": (("a", 1), ("b", 9092))}),
        ({"bootstrap_servers": "[::1]:5"}, {"bootstrap_servers": (("::1", 5),)}),
        ({"bootstrap_servers": "::1"}, {"bootstrap_servers": (("::1", 9092),)}),
        ({"bootstrap_servers": "[::1]"}, {"bootstrap_servers": (("::1", 9092),)}),
        ({"client_id": "mine"}, {"client_id": "mine"}),
        ({"metadata_max_age_ms": 7}, {"metadata_max_age_ms": 7}),
        ({"metadata_max_age_ms": 6.5}, {"metadata_max_age_ms": 7}),
        (
            {},
            {"request_timeout_ms": 40_000, "max_block_ms": 40_000, "delivery_timeout_ms": 80_000},
        ),
        (
            {"request_timeout_ms": 100, "linger_ms": 30},
            {"request_timeout_ms": 100, "max_block_ms": 100, "delivery_timeout_ms": 230},
        ),
        (
            {"request_timeout_ms": 100, "enable_idempotence": True},
            {"request_timeout_ms": 100, "max_block_ms": 100, "delivery_timeout_ms": 120_000},
        ),
        (
            {"request_timeout_ms": 70_000, "enable_idempotence": True},
            {"delivery_timeout_ms": 140_000},
        ),
        ({"request_timeout_ms": 99.5}, {"request_timeout_ms": 100}),
        ({}, {"acks": 1, "enable_idempotence": False, "max_in_flight_requests_per_connection": 1}),
        ({"acks": aiokafka.producer.producer._missing}, {"acks": 1}),
        ({"acks": "all"}, {"acks": -1, "enable_idempotence": False}),
        ({"acks": -1}, {"acks": -1}),
        ({"acks": 0}, {"acks": 0}),
        (
            {"enable_idempotence": True},
            {"acks": -1, "enable_idempotence": True, "max_in_flight_requests_per_connection": 5},
        ),
        ({"compression_type": "lz4"}, {"compression_type": "lz4"}),
        ({}, {"compression_type": "none"}),
        ({"max_batch_size": 5}, {"batch_size": 5}),
        ({}, {"partitioner": "late"}),
        ({"partitioner": None}, {"partitioner": "late"}),
        ({"partitioner": DefaultPartitioner()}, {"partitioner": "late"}),
        ({"partitioner": "random"}, {"partitioner": "random"}),
        ({"max_request_size": 5000}, {"max_request_size": 5000}),
        ({"linger_ms": 0.5}, {"linger_ms": 0.5}),
        ({"retry_backoff_ms": 7}, {"retry_backoff_ms": 7, "retry_backoff_max_ms": 7}),
        ({"connections_max_idle_ms": None}, {"connections_max_idle_ms": -1}),
        ({"connections_max_idle_ms": 9}, {"connections_max_idle_ms": 9}),
        (
            {"transactional_id": "tx", "transaction_timeout_ms": 8},
            {"transactional_id": "tx", "transaction_timeout_ms": 8, "enable_idempotence": True},
        ),
        # Without transactions, TLS or SASL their parameters have no effect, as in aiokafka.
        ({"transaction_timeout_ms": 8}, {"transaction_timeout_ms": 60_000}),
        (USER, {"security_protocol": "PLAINTEXT", "sasl_username": None}),
        (
            {**SASL, **USER},
            {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"},
        ),
        (
            {**SASL, **USER, "sasl_mechanism": "SCRAM-SHA-256"},
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "u"},
        ),
        # kafkaclient's own options
        ({"delivery_timeout_ms": 99_000}, {"delivery_timeout_ms": 99_000}),
        (
            {"max_in_flight_requests_per_connection": 3},
            {"max_in_flight_requests_per_connection": 3},
        ),
        ({"batch_size": 9, "max_batch_size": 8}, {"batch_size": 9}),
        (
            {"partitioner_rack_aware": True, "client_rack": "r"},
            {"partitioner_rack_aware": True, "client_rack": "r"},
        ),
        (
            {**SASL, "sasl_username": "u", "sasl_password": "p"},
            {"sasl_mechanism": "PLAIN", "sasl_username": "u"},
        ),
    ],
)
async def test_what_a_parameter_becomes(arguments: Any, options: dict[str, Any]) -> None:
    found = await config(**arguments)
    assert {name: getattr(found, name) for name in options} == options


async def test_tls() -> None:
    context = ssl.create_default_context()
    assert (await config(security_protocol="SSL", ssl_context=context)).ssl_context is context
    assert (await config(ssl_context=context)).ssl_context is None  # PLAINTEXT
    found = await config(security_protocol="SSL", ssl_truststore_location="ca.pem")
    assert str(found.ssl_truststore_location) == "ca.pem"


async def test_objects_are_wrapped() -> None:
    found = await config(partitioner=choose)
    assert isinstance(found.partitioner, CallablePartitioner)
    found = await config(
        **SASL, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=token, client_id="c"
    )
    assert found.sasl_oauth_token_provider is token  # an async function is kafkaclient's own kind


async def test_client_ids_are_counted() -> None:
    first = (await config()).client_id
    second = (await config()).client_id
    numbers = [int(name.removeprefix("aiokafka-producer-")) for name in (first, second)]
    assert numbers[1] == numbers[0] + 1


@pytest.mark.parametrize(
    ("acks", "idempotent"), list(itertools.product([0, 1, -1, "all"], [True, False]))
)
async def test_acks_and_idempotence_as_in_aiokafka(acks: Any, idempotent: bool) -> None:
    arguments = {"acks": acks, "enable_idempotence": idempotent}
    theirs = await made(aiokafka.AIOKafkaProducer, **arguments)
    assert await made(AIOKafkaProducer, **arguments) == theirs
