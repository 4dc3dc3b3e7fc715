"""docs/how-to/aiokafka.md and docs/reference/aiokafka.md against the drop-in."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from functools import partial
from typing import Any

import aiokafka
import pytest
from aiokafka import errors as theirs
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

import kafkaclient.aiokafka
from kafkaclient import errors as ours
from kafkaclient.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafkaclient.aiokafka.errors import BASES, aiokafka_error
from kafkaclient.config import ProducerConfig
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.records import BatchBuilder
from tests.aiokafka_dropin.support import same
from tests.code_blocks import Block, runs
from tests.migration_pages import Page, names

REFERENCE = Page("reference/aiokafka", "aiokafka")


def _parameters(title: str) -> dict[str, list[str]]:
    """Parameter -> the options that it sets."""
    (table,) = REFERENCE.tables(title)
    told = {name: [name] for name in REFERENCE.unchanged(title)[1:]}  # behind the client's name
    return told | {name: names(row[1]) for row in table for name in names(row[0])}


PARAMETERS = _parameters("What becomes of the parameters?")
CONSUMERS_OWN = _parameters("What becomes of a consumer's parameters?")
CONSUMER_PARAMETERS = {
    name: CONSUMERS_OWN.get(name) or PARAMETERS.get(name) or []
    for name, parameter in inspect.signature(AIOKafkaConsumer).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}
(ERRORS,) = REFERENCE.tables("Which errors are raised?")
OPTIONS = {name for option in ProducerConfig.OPTIONS.values() for name in option.spellings}
CONSUMER_OPTIONS = {name for option in ConsumerConfig.OPTIONS.values() for name in option.spellings}


# --- snippets -----------------------------------------------------------------------------------


@runs("docs/how-to/aiokafka.md", having="async def publish")
def test_the_first_snippet_writes_a_record(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCluster()
    fake.create_topic("flights", 1)
    monkeypatch.setattr(
        kafkaclient.aiokafka, "AIOKafkaProducer", partial(AIOKafkaProducer, dialer=fake)
    )
    asyncio.run(block.run()["publish"](fake.bootstrap))
    assert [(record.key, record.value) for record in fake.log("flights", 0)] == [(b"UA", b"value")]


@runs("docs/how-to/aiokafka.md", having="async def consume")
def test_the_second_snippet_reads_a_record(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCluster()
    fake.create_topic("flights", 1)
    made = partial(AIOKafkaConsumer, dialer=fake, auto_offset_reset="earliest")
    monkeypatch.setattr(kafkaclient.aiokafka, "AIOKafkaConsumer", made)
    builder = BatchBuilder(1000)
    builder.append(1000, b"UA", b"value", [])
    builder.seal(0)
    fake.append("flights", 0, bytes(builder.buffer()))
    seen: list[tuple[object, ...]] = []

    def note(*printed: object) -> None:
        seen.append(printed)
        raise KeyError

    consume = block.run()["consume"]
    consume.__globals__["print"] = note
    with pytest.raises(KeyError):
        asyncio.run(consume(fake.bootstrap))
    assert seen == [(b"UA", b"value")]


@runs("docs/how-to/aiokafka.md", having=".install()")
def test_the_second_snippet_installs(block: Block) -> None:
    try:
        block.run()
        assert aiokafka.AIOKafkaProducer is AIOKafkaProducer
    finally:
        kafkaclient.aiokafka.uninstall()


async def test_acks_1_with_idempotence_is_refused_as_the_page_says() -> None:
    kind, _ = await same(enable_idempotence=True, acks=1)
    assert kind is ValueError


# --- differences --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "title",
    [
        "Records that are not delivered",
        "Partitions, batches and order",
        "`start` and `stop`",
        "Transactions",
        "The constructor",
    ],
)
def test_every_difference_has_its_reason(title: str) -> None:
    (rows,) = REFERENCE.tables(title)
    assert rows
    for row in rows:
        assert len(row) == 4
        assert all(row), row
        _what, aiokafkas, dropins, _why = row
        assert aiokafkas != dropins


# --- parameters ---------------------------------------------------------------------------------


async def _token() -> str:
    return "token"


async def _other_token() -> str:
    return "other"


CONTEXT = ssl.create_default_context()
TLS = {"security_protocol": "SSL", "ssl_context": CONTEXT}
SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_plain_username": "u",
    "sasl_plain_password": "p",
}
OTHER_VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    "loop": ({}, None),
    "bootstrap_servers": ({}, "h:1"),
    "client_id": ({"client_id": "a"}, "b"),
    "metadata_max_age_ms": ({}, 7),
    "request_timeout_ms": ({}, 7),
    "api_version": ({}, None),
    "acks": ({}, 0),
    "key_serializer": ({}, bytes),
    "value_serializer": ({}, bytes),
    "compression_type": ({}, "gzip"),
    "max_batch_size": ({}, 7),
    "partitioner": ({}, "random"),
    "max_request_size": ({}, 7),
    "linger_ms": ({}, 7),
    "retry_backoff_ms": ({}, 7),
    "security_protocol": (TLS, "PLAINTEXT"),
    "ssl_context": (TLS, ssl.create_default_context()),
    "connections_max_idle_ms": ({}, None),
    "enable_idempotence": ({}, True),
    "transactional_id": ({}, "tx"),
    "transaction_timeout_ms": ({"transactional_id": "tx"}, 7),
    "sasl_mechanism": (SASL, "SCRAM-SHA-256"),
    "sasl_plain_password": (SASL, "q"),
    "sasl_plain_username": (SASL, "v"),
    "sasl_kerberos_service_name": (SASL, "k"),
    "sasl_kerberos_domain_name": (SASL, "k"),
    "sasl_oauth_token_provider": (
        {**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _token},
        _other_token,
    ),
}
"""Parameter -> (other parameters, a value that is not the default)."""


def test_the_parameters_are_complete() -> None:
    parameters = inspect.signature(AIOKafkaProducer).parameters.values()
    keywords = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert PARAMETERS.keys() == keywords
    assert CONSUMER_PARAMETERS.keys() == CONSUMERS_OWN.keys() | (
        PARAMETERS.keys() & CONSUMER_PARAMETERS.keys()
    )


@pytest.mark.parametrize(("name", "options"), PARAMETERS.items())
async def test_a_parameter_sets_the_options_of_the_page(name: str, options: list[str]) -> None:
    assert set(options) <= OPTIONS
    others, value = OTHER_VALUES[name]
    before, after = await _options(others), await _options({**others, name: value})
    changed = {option for option in before | after if before.get(option) != after.get(option)}
    if name == "security_protocol":
        changed.discard("ssl_context")  # without TLS it has no effect
    assert changed == set(options)


async def _options(arguments: dict[str, Any]) -> dict[str, Any]:
    producer = AIOKafkaProducer(**{"client_id": "c", **arguments})
    await producer.stop()
    return producer._options


OTHER_CONSUMER_VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    **{name: OTHER_VALUES[name] for name in OTHER_VALUES if "serializer" not in name},
    "request_timeout_ms": ({}, 7000),
    "group_id": ({}, "g"),
    "group_instance_id": ({"group_id": "g"}, "i"),
    "key_deserializer": ({}, bytes),
    "value_deserializer": ({}, bytes),
    "fetch_max_wait_ms": ({}, 7),
    "fetch_max_bytes": ({}, 7),
    "fetch_min_bytes": ({}, 7),
    "max_partition_fetch_bytes": ({}, 7),
    "auto_offset_reset": ({}, "earliest"),
    "enable_auto_commit": ({}, False),
    "auto_commit_interval_ms": ({}, 7),
    "check_crcs": ({}, False),
    "partition_assignment_strategy": ({}, (RangePartitionAssignor,)),
    "max_poll_interval_ms": ({}, 7),
    "rebalance_timeout_ms": ({}, 7),
    "session_timeout_ms": ({}, 7000),
    "heartbeat_interval_ms": ({}, 7),
    "consumer_timeout_ms": ({}, 7),
    "max_poll_records": ({}, 7),
    "exclude_internal_topics": ({}, False),
    "isolation_level": ({}, "read_committed"),
    "client_rack": ({}, "a"),
}


@pytest.mark.filterwarnings("ignore:.* has no effect in kafkaclient")
@pytest.mark.parametrize(("name", "options"), CONSUMER_PARAMETERS.items())
async def test_a_parameter_of_a_consumer_sets_the_options_of_the_page(
    name: str, options: list[str]
) -> None:
    assert set(options) <= CONSUMER_OPTIONS
    others, value = OTHER_CONSUMER_VALUES[name]
    before = await _consumer_options(others)
    after = await _consumer_options({**others, name: value})
    changed = {option for option in before | after if before.get(option) != after.get(option)}
    if name == "security_protocol":
        changed.discard("ssl_context")  # without TLS it has no effect
    assert changed == set(options)


async def _consumer_options(arguments: dict[str, Any]) -> dict[str, Any]:
    consumer = AIOKafkaConsumer(**{"client_id": "c", **arguments})
    await consumer.stop()
    return consumer._options


# --- errors -------------------------------------------------------------------------------------


def _told() -> dict[str, list[str]]:
    """kafkaclient's class -> aiokafka's classes. Rows with "because of" or a code are the special
    cases of test_errors.py."""
    return {
        name: names(classes)
        for kinds, classes in ERRORS
        if "because of" not in kinds and "with a code" not in kinds
        for name in names(kinds) or ["KafkaError"]
    }


def test_each_error_is_of_the_classes_in_the_page() -> None:
    """A class that the page does not name is like its nearest base class."""
    told = _told()
    kinds = [kind for kind in vars(ours).values() if _is_plain(kind)]
    assert len(kinds) > 20
    for kind in kinds:
        nearest = next(base.__name__ for base in kind.__mro__ if base.__name__ in told)
        found: Any = aiokafka_error(kind("x"))
        assert [base.__name__ for base in found._bases] == told[nearest], kind


def test_the_page_names_every_class_of_the_table() -> None:
    covered = {getattr(ours, name) for name in _told()}
    for kind in BASES:
        assert any(issubclass(each, kind) for each in covered), kind


def test_the_errors_of_the_page_exist() -> None:
    for kinds, classes in ERRORS:
        assert all(hasattr(ours, name) for name in names(kinds))
        for name in names(classes):
            assert hasattr(theirs, name) or name in {"TypeError", "ValueError", "AssertionError"}


def _is_plain(kind: Any) -> bool:
    is_error = isinstance(kind, type) and issubclass(kind, ours.KafkaError)
    return is_error and not issubclass(kind, (ours.BrokerError, ours.ConfigError))
