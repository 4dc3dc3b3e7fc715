"""docs/how-to/migrate-from-*.md and docs/reference/from-*.md against the installed clients and this
package.

The snippets with kafkaclient run on the fake cluster here. integration/test_migration.py runs those
with the other clients as well, and compares what both have written.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import dataclasses
import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.aio import AIOProducer
from hypothesis import given
from hypothesis import strategies as st

import kafkaclient
import kafkaclient.wire.codec  # imports kafka-python without its warnings
from kafkaclient import Consumer, Delivery, Producer, errors
from kafkaclient.admin import Admin
from kafkaclient.broker_errors import BROKER_ERRORS, broker_error
from kafkaclient.cluster.view import ClusterView, PartitionView, TopicView
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.testing import FakeCluster
from kafkaclient.wire.murmur2 import partition_for_key
from tests.code_blocks import Block, runs, select
from tests.migration_pages import PAGES, Page, counterpart, names

kafka = import_module("kafka")
futures = import_module("kafka.producer.future")
AIOKAFKA, CONFLUENT, KAFKA_PYTHON = PAGES
OPTIONS = {name: option for option in ProducerConfig.OPTIONS.values() for name in option.spellings}
NO_LITERAL = "\N{EN DASH}"
"""A default that is required, calculated or an object."""
describes_installed = pytest.mark.skipif(
    confluent_kafka.libversion()[1] < 0x020F00FF, reason="the page is about newer versions"
)
each_page = pytest.mark.parametrize(
    "page",
    [AIOKAFKA, pytest.param(CONFLUENT, marks=describes_installed), KAFKA_PYTHON],
    ids=lambda page: page.module,
)


# --- snippets -----------------------------------------------------------------------------------


@runs("docs/how-to/migrate-from-*.md", having="from kafkaclient")
def test_our_snippets_write_what_they_say(block: Block) -> None:
    fake = FakeCluster(transactions_v2="transaction" in block.source)
    fake.create_topic("flights", 7, 3)
    block.run(dialer=fake)
    written = sum(len(fake.log("flights", partition)) for partition in range(7))
    many = 100 if "range(100)" in block.source else 1
    assert written >= many
    assert written <= many + 1  # the second example of a section, or a transaction's marker


@runs("docs/how-to/migrate-from-*.md", without="from kafkaclient")
def test_their_snippets_write_as_many(block: Block, fake_kafka: FakeCluster) -> None:
    fake_kafka.create_topic("flights", 7, 3)
    block.run({"__name__": "__main__"}, replaced={"localhost:9092": fake_kafka.bootstrap})
    written = sum(len(fake_kafka.log("flights", partition)) for partition in range(7))
    many = 100 if "range(100)" in block.source else 1
    assert many <= written <= many + 1  # a transaction's marker


@pytest.mark.parametrize("client", ["aiokafka", "confluent-kafka", "kafka-python"])
def test_each_snippet_has_its_counterpart(client: str) -> None:
    page = f"docs/how-to/migrate-from-{client}.md"
    theirs = select(page, "python", without="from kafkaclient")
    assert len(theirs) >= 6
    for block in theirs:
        assert "from kafkaclient" in counterpart(block).source


# --- options ------------------------------------------------------------------------------------


@cache
def _librdkafka_options() -> dict[str, str]:
    """The producer's options that are text, with their defaults, as librdkafka prints them."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*"))
    if not found:
        pytest.skip("this wheel of confluent-kafka has librdkafka elsewhere")
    libc, librdkafka = ctypes.CDLL(None), ctypes.CDLL(str(found[0]))
    libc.tmpfile.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.tmpfile())
    librdkafka.rd_kafka_conf_properties_show(file)
    size = libc.ftell(file)
    libc.rewind(file)
    text = ctypes.create_string_buffer(size)
    libc.fread(text, 1, size, file)
    libc.fclose(file)
    options: dict[str, str] = {}
    for line in text.value.decode().splitlines():
        name, _, rest = line.partition("|")
        role, *fields = (cell.strip() for cell in rest.split("|"))
        if role in ("P", "*") and "see dedicated API" not in line:
            options.setdefault(name.strip(), fields[1])
    assert len(options) > 100
    return options


def _literal(value: Any) -> str:
    """A default as the tables show it."""
    try:
        ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        return NO_LITERAL
    return f"`{value!r}`"


def _their_defaults(page: Page) -> dict[str, str]:
    if page is CONFLUENT:
        # The list has the consumer's default of this one, and says so.
        defaults = {**_librdkafka_options(), "allow.auto.create.topics": "true"}
        return {name: f"`{text}`" if text else NO_LITERAL for name, text in defaults.items()}
    if page is KAFKA_PYTHON:
        return {name: _literal(value) for name, value in kafka.KafkaProducer.DEFAULT_CONFIG.items()}
    parameters = inspect.signature(aiokafka.AIOKafkaProducer).parameters
    return {name: _literal(parameter.default) for name, parameter in parameters.items()}


def _our_defaults(spellings: list[str]) -> str:
    defaults = [OPTIONS[spelling].default for spelling in spellings]
    shown = [NO_LITERAL if each is dataclasses.MISSING else _literal(each) for each in defaults]
    return ", ".join(dict.fromkeys(shown))


def _plain(default: str) -> str:
    """A default without its notation: librdkafka's are text, in small letters, empty for none."""
    text = default.strip("`'").lower()
    return "" if text in (NO_LITERAL, "none") else text


def _is_refused(name: str) -> bool:
    try:
        ProducerConfig.build("localhost:9092", {name: "another value"})
    except ConfigError:
        return name not in OPTIONS
    return False


@each_page
def test_the_options_are_complete_and_their_defaults_right(page: Page) -> None:
    table, *without = page.tables("Which option becomes which?")
    theirs = _their_defaults(page)
    for theirs_cell, their_default, ours, our_default, _ in table:
        (name,) = names(theirs_cell)
        assert their_default == theirs[name], name
        if ours == "same":
            assert our_default == _our_defaults([name])
        elif names(ours):
            assert name not in OPTIONS, f"{name} is an option of kafkaclient, too"
            assert our_default == _our_defaults(names(ours))
        else:
            assert ours in ("not needed", "not available")
            assert _is_refused(name), name
    unchanged = page.unchanged("Which option becomes which?")
    for name in unchanged:
        assert _plain(theirs[name]) == _plain(_our_defaults([name])), name
    told = [*unchanged, *(names(row[0])[0] for row in table)]
    if page is CONFLUENT:
        refused = [name for part in without[:2] for row in part for name in names(row[0])]
        assert all(map(_is_refused, refused))
        told += refused
    assert len(told) == len(set(told))
    assert set(told) == set(theirs) - {"metrics_collector"}  # new in aiokafka 0.15


def test_errors_about_options_of_librdkafka_say_what_the_page_says() -> None:
    table, *without = CONFLUENT.tables("Which option becomes which?")
    renamed = {names(row[0])[0]: names(row[2]) for row in table if names(row[2])}
    assert len(renamed) > 10
    left_out = [name for row in without[0] for name in names(row[0])]
    for name in [*renamed, *left_out]:
        with pytest.raises(ConfigError) as caught:
            ProducerConfig.build("localhost:9092", {name: "another value"})
        for ours in renamed.get(name, ()):
            assert f"{name} is an option of librdkafka: give " in str(caught.value)
            assert ours in str(caught.value)
        assert "similar name" not in str(caught.value)
        assert "did you mean" not in str(caught.value)


@describes_installed
def test_confluent_kafka_knows_every_name_of_the_page() -> None:
    *tables, own = CONFLUENT.tables("Which option becomes which?")
    told = CONFLUENT.unchanged("Which option becomes which?")
    told += [name for table in tables for row in table for name in names(row[0])]
    told += [names(row[0])[0] for row in own]
    for name in told:
        value = {} if name == "default.topic.config" else "\0"
        try:
            confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", name: value})
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            assert "No such configuration property" not in str(error), name  # noqa: PT017
    with pytest.raises(confluent_kafka.KafkaException, match="No such configuration property"):
        confluent_kafka.Producer({"no.such.option": "\0"})


# --- methods, results, errors -------------------------------------------------------------------


def _public(*kinds: type) -> set[str]:
    found = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    return {name for name in found if all(callable(getattr(k, name, print)) for k in kinds)}


def _our_object(name: str) -> Any:
    kinds = {
        "Admin": Admin,
        "Delivery": Delivery,
        "Producer": Producer,
        "RecordMetadata": kafkaclient.RecordMetadata,
    }
    kind, _, attribute = name.rpartition(".")
    if name in kinds:
        return kinds[name]
    return getattr(kinds[kind or "Producer"], attribute)


@each_page
def test_the_methods_are_complete_and_exist(page: Page) -> None:
    (table,) = page.tables("Which method becomes which?")
    theirs = {
        AIOKAFKA: _public(aiokafka.AIOKafkaProducer),
        CONFLUENT: _public(confluent_kafka.Producer, AIOProducer) | {"len(producer)"},
        KAFKA_PYTHON: _public(kafka.KafkaProducer) | {"KafkaProducer"},
    }[page]
    told = {name: f"`{name}`" for name in page.unchanged("Which method becomes which?")}
    told |= {names(row[0])[0]: row[1] for row in table}
    assert told.keys() == theirs
    for name, ours in told.items():
        for each in names(ours):
            assert _our_object(each) is not None
        if name in names(ours):
            continue
        assert names(ours) or ours in ("not needed", "not available")
        assert not hasattr(Producer, name), f"kafkaclient has {name} as well"


def test_the_methods_of_aiokafkas_consumer_are_complete_and_exist() -> None:
    (table,) = AIOKAFKA.tables("Which method of a consumer becomes which?")
    told = {
        name: [name] for name in AIOKAFKA.unchanged("Which method of a consumer becomes which?")
    }
    told |= {names(row[0])[0]: names(row[1]) for row in table}
    assert told.keys() == _public(aiokafka.AIOKafkaConsumer)
    for name, ours in told.items():
        assert ours
        assert all(hasattr(Consumer, each) for each in ours)
        assert name in ours or not hasattr(Consumer, name), f"kafkaclient has {name} as well"


@each_page
def test_the_results_are_complete_and_exist(page: Page) -> None:
    (table,) = page.tables("Which result becomes which?")
    told = {name: f"`{name}`" for name in page.unchanged("Which result becomes which?")}
    told |= {name: row[1] for row in table for name in names(row[0])}
    fields = {
        AIOKAFKA: aiokafka.structs.RecordMetadata._fields,
        CONFLUENT: (),
        KAFKA_PYTHON: futures.RecordMetadata._fields,
    }[page]
    assert {f"RecordMetadata.{field}" for field in fields} <= told.keys()
    kinds = {
        "Message": confluent_kafka.Message,
        "FutureRecordMetadata": futures.FutureRecordMetadata,
    }
    for name, ours in told.items():
        kind, _, attribute = name.partition(".")
        assert kind == "RecordMetadata" or hasattr(kinds[kind], attribute), name
        for each in names(ours):
            assert _our_object(each) is not None
        if ours == "not available":
            assert not hasattr(kafkaclient.RecordMetadata, attribute)
            assert not hasattr(Delivery, attribute)


_OF_THIS_CLIENT = {
    10: errors.RecordTooLargeError,
    33: errors.UnsupportedSaslMechanismError,
    58: errors.SaslAuthenticationError,
}
"""Codes that reach the caller as an error of the client."""


def _code_of(page: Page, name: str) -> int | None:
    """A broker's error code, None for an error that arises in the client."""
    if hasattr(builtins, name):
        return None
    if page is CONFLUENT:
        code: int = getattr(confluent_kafka.KafkaError, name)
        return code if code > 0 else None
    return getattr(getattr(import_module(f"{page.module}.errors"), name), "errno", None)


@each_page
def test_the_errors_exist_and_their_codes_are_the_same(page: Page) -> None:
    (table,) = page.tables("Which error becomes which?")
    told = [(names(theirs), names(ours)) for theirs, ours, _ in table]
    told += [([name], [name]) for name in page.unchanged("Which error becomes which?")]
    for name, ours in ((name, ours) for theirs, ours in told for name in theirs):
        for each in ours:
            assert issubclass(getattr(errors, each), KafkaError)
        code = _code_of(page, name)
        if code is not None:
            assert code in BROKER_ERRORS
            kind = _OF_THIS_CLIENT.get(code) or type(broker_error(code))
            assert kind.__name__ in ours, name


# --- the partition of a key -----------------------------------------------------------------------


def _view(partitions: int) -> ClusterView:
    known = tuple(PartitionView(number, 0, 0) for number in range(partitions))
    return ClusterView(topics={"t": TopicView("t", None, known)})


def _consistent_random() -> Any:
    (block,) = select("docs/how-to/*", "python", having="class ConsistentRandom")
    return block.run(replaced={"asyncio.run(main())": ""})["ConsistentRandom"]()


@given(st.binary(min_size=1), st.integers(1, 50))
def test_the_partitioner_of_the_page_is_librdkafkas(key: bytes, partitions: int) -> None:
    chosen = _consistent_random().partition("t", key, None, _view(partitions), None)
    assert chosen == confluent_kafka.cimpl.consistent(key, partitions)


@pytest.mark.parametrize("key", [None, b""])
def test_the_partitioner_of_the_page_spreads_records_without_key(key: bytes | None) -> None:
    partitioner, view = _consistent_random(), _view(3)
    assert {partitioner.partition("t", key, None, view, None) for _ in range(200)} == {0, 1, 2}


@given(st.binary(), st.integers(1, 50))
def test_the_default_is_librdkafkas_murmur2(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == confluent_kafka.cimpl.murmur2(key, partitions)


@pytest.mark.parametrize("client", ["aiokafka.partitioner", "kafka.partitioner"])
@given(key=st.binary(), partitions=st.integers(1, 50))
def test_the_default_is_the_others_murmur2(client: str, key: bytes, partitions: int) -> None:
    hashed = import_module(client).murmur2(key) & 0x7FFFFFFF
    assert partition_for_key(key, partitions) == hashed % partitions
