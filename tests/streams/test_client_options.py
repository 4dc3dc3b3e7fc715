"""Which options an application passes to its clients, and which it rejects."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.streams.config import StreamsConfig


def config(**options: Any) -> StreamsConfig:
    return StreamsConfig(
        **{
            "bootstrap_servers": "localhost:1",
            "application_id": "app",
            "state_dir": "/nowhere",
            **options,
        }
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"auto_offset_reset": "none"}, r"auto\.offset\.reset is 'none'"),
        (
            {"consumer_options": {"auto_offset_reset": "latest"}},
            "have auto_offset_reset: use the application option auto_offset_reset",
        ),
        ({"consumer_options": {"group_id": "g"}}, "have group_id: .*application_id"),
        ({"consumer_options": {"isolation_level": "read_uncommitted"}}, "have isolation_level"),
        (
            {"consumer_options": {"value_deserializer": str}},
            "processors declare the types",
        ),
        ({"producer_options": {"transactional.id": "t"}}, r"have transactional\.id"),
        ({"producer_options": {"value_serializer": str}}, "have value_serializer"),
        ({"producer_options": {"acks": "1"}}, "must not have acks=.*: a commit could lose"),
        ({"producer_options": {"acks": 0}}, "must not have acks=.*: a commit could lose"),
        (
            {"producer_options": {"enable.idempotence": False}},
            r"have enable\.idempotence=.*reorder",
        ),
        ({"producer_options": {"retries": 0}}, "must not have retries=0: a retry could"),
        ({"security_options": {"linger_ms": 5}}, "has linger_ms, which is not a security option"),
        (
            {
                "security_options": {"security_protocol": "SSL"},
                "consumer_options": {"ssl_context": None},
            },
            "consumer_options must not have ssl_context: use security_options",
        ),
        (
            {
                "security_options": {"security_protocol": "SSL"},
                "producer_options": {"security.protocol": "SSL"},
            },
            r"producer_options has security\.protocol, but security_options is given",
        ),
        ({"security_options": {"sasl_username": "u"}}, "security_protocol is not"),
        (
            {"processing_guarantee": "exactly_once_v2", "commit_interval_ms": 10_000},
            r"less than transaction\.timeout\.ms, 10000",
        ),
    ],
)
def test_invalid_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**options)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("fetch_max_byte", 1, "unknown option fetch_max_byte: did you mean fetch_max_bytes"),
        ("fetch.max.bytes", "much", r"fetch\.max\.bytes='much' is not accepted"),
        ("max_poll_records", 10, "max_poll_records"),
        ("isolation.level", "read_uncommitted", r"have isolation\.level: the streams runtime"),
        ("session.timeout.ms", 1, "use the application option session_timeout_ms"),
        ("security.protocol", "SSL", r"have security\.protocol: use security_options"),
        ("fetch.max.wait.ms", 60_000, "must be below request_timeout_ms"),
    ],
)
def test_consumer_options_are_checked_at_once(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(consumer_options={name: value})


def test_consumer_options_reach_the_reader_under_each_spelling() -> None:
    assert config().reader_options == {
        "isolation_level": "read_committed",
        "fetch_max_wait_ms": 100,
    }
    given = {"fetch.max.wait.ms": 5, "client_rack": "a"}
    options = config(consumer_options=given, security_options={"security.protocol": "SSL"})
    assert options.reader_options == {
        "isolation_level": "read_committed",
        "security.protocol": "SSL",
        **given,
    }


def test_given_producer_options_override_the_defaults() -> None:
    options = {"transaction.timeout.ms": 60_000, "linger_ms": 3}
    found = config(processing_guarantee="exactly_once_v2", producer_options=options)
    assert found.transaction_timeout_s == 60
    assert found.producer_defaults == {**options, "allow_auto_create_topics": False}
    assert config().transaction_timeout_s is None


def test_security_options_reach_all_clients() -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl_password": "secret",
        "ssl_context": ssl.create_default_context(),
    }
    found = config(security_options=security, producer_options={"linger_ms": 1})
    assert found.client_options == {**security, "linger_ms": 1}
    assert found.producer_config.sasl_username == "alice"
    assert found.reader_options.items() >= security.items()


def test_a_static_member_needs_a_name() -> None:
    assert config(group_instance_id="a").group_instance_id == "a"
    with pytest.raises(ConfigError, match=r"group\.instance\.id is empty"):
        config(group_instance_id="")
    with pytest.raises(ConfigError, match="use the application option group_instance_id"):
        config(consumer_options={"group_instance_id": "a"})
