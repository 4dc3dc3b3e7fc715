"""Names of topics: the same ones as Java's ``Topic.validate``, whoever is given them."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient import Producer
from kafkaclient.admin import Admin, NewTopic
from kafkaclient.errors import BrokerError, InvalidRecordError, InvalidTopicError, KafkaError
from kafkaclient.reader import Reader
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.topic_names import check_topic_name

# Java's TopicTest: shouldThrowOnInvalidTopicNames and what is beside it.
BAD = ["", "foo bar", "..", "foo:bar", "foo=bar", ".", "x" * 250, "x" * 40_000]
UNENCODABLE = ["\ud800", "a\udfffb", "\x00", "ä", "日本", "a\n", "a\ud83d"]
NO_NAMES = [None, b"t", 5, ("t",)]
GOOD = ["valid", "TOPIC", "nAmEs", "ar6", "VaL1d", "_0-9_.", "...", "x" * 249, "__consumer_offsets"]


class Named(StrEnum):
    GOOD = "good"
    BAD = "not good"


@pytest.mark.parametrize("name", [*GOOD, Named.GOOD])
def test_legal_names(name: Any) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", [*BAD, *UNENCODABLE, *NO_NAMES, Named.BAD])
def test_illegal_names(name: Any) -> None:
    with pytest.raises(InvalidTopicError) as caught:
        check_topic_name(name)
    error = caught.value
    assert isinstance(error, InvalidRecordError)
    assert isinstance(error, BrokerError)
    assert (error.code, error.name, error.retriable) == (17, "INVALID_TOPIC_EXCEPTION", False)
    assert len(str(error)) < 250
    str(error).encode()


@given(st.text(max_size=300))
def test_by_javas_rule(name: str) -> None:
    legal = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    java = 0 < len(name) <= 249 and name not in (".", "..") and set(name) <= legal
    try:
        check_topic_name(name)
    except InvalidTopicError:
        assert not java
    else:
        assert java


async def _nowait(producer: Producer, name: str) -> None:
    producer.send_nowait(name, b"x")


WAYS = {
    "send_nowait": _nowait,
    "send": lambda producer, name: producer.send(name, b"x"),
    "send_and_wait": lambda producer, name: producer.send_and_wait(name, b"x", partition=0),
    "send_many": lambda producer, name: producer.send_many(name, [b"x"]),
    "send_arrow": lambda producer, name: producer.send_arrow(name, _table()),
    "partitions_for": lambda producer, name: producer.partitions_for(name),
}


def _table() -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({"value": [b"x"]})


@pytest.mark.parametrize("bad", ["\ud800", "no good", "x" * 40_000, "", None])
@pytest.mark.parametrize("way", WAYS)
@virtual_time
async def test_one_bad_name_harms_nobody_else(way: str, bad: Any) -> None:
    """It is refused at once, and nothing else is held up: not another topic, not a new leader."""
    fake = FakeCluster(brokers=2, partitions=2)
    loop = asyncio.get_running_loop()
    async with Producer(fake.bootstrap, dialer=fake, max_block_ms=5000) as producer:
        await producer.send_and_wait("good", b"1", partition=0)
        began = loop.time()
        with pytest.raises(InvalidTopicError):
            await WAYS[way](producer, bad)
        assert loop.time() == began
        await producer.send_and_wait("other", b"1")
        fake.move_leader("good", 0, 1 - fake.leader("good", 0))
        await producer.send_and_wait("good", b"2", partition=0)
        await asyncio.sleep(3600)
        await producer.send_and_wait("later", b"1")
        assert loop.time() < began + 3602


@virtual_time
async def test_readers_and_admins_refuse_them_at_once() -> None:
    fake = FakeCluster(brokers=1, partitions=1)
    fake.create_topic("good", 1)
    loop = asyncio.get_running_loop()
    async with (
        Reader(fake.bootstrap, dialer=fake) as reader,
        Admin(fake.bootstrap, dialer=fake) as admin,
    ):
        began = loop.time()
        for call in (
            reader.partitions("\ud800"),
            reader.offsets("a b", "latest"),
            reader.offsets([("a b", 0)], "latest"),
            admin.describe_topic("\ud800"),
            admin.create_topic("a b", 1),
            admin.add_partitions("..", 2),
            admin.delete_topic("x" * 250),
        ):
            with pytest.raises(InvalidTopicError):
                await call
        with pytest.raises(InvalidTopicError):
            reader.read({("\ud800", 0): 0})
        assert loop.time() - began < 1
        assert len(await reader.partitions("good")) == 1
        outcomes = await admin.create_topics(
            [NewTopic(name, 1, 1, {}, {}) for name in ("a", "\ud800", "b")]
        )
        assert [type(outcome) for outcome in outcomes.values()] == [
            type(None),
            InvalidTopicError,
            type(None),
        ]
        outcomes = await admin.delete_topics(["a", "\ud800", "b"])
        assert [name for name, outcome in outcomes.items() if outcome is None] == ["a", "b"]


@virtual_time
async def test_what_cannot_be_encoded_fails_alone() -> None:
    """A name, a group or a number that has no form in the protocol: whoever asks is told, and the
    connection serves the others."""
    fake = FakeCluster(brokers=1, partitions=1)
    fake.create_topic("good", 1)
    async with Admin(fake.bootstrap, dialer=fake) as admin:
        for call in (
            admin.describe_group("\ud800"),
            admin.committed_offsets("\ud800", [("good", 0)]),
        ):
            with pytest.raises(KafkaError, match="was not sent") as caught:
                await asyncio.wait_for(call, 5)
            assert isinstance(caught.value, ValueError)
            assert not caught.value.retriable
        dials = len(fake.requests)
        assert await admin.list_topics() == ["good"]
        assert len(fake.requests) == dials + 1, "over the connection that is there"


@pytest.mark.parametrize("option", ["client_id", "transactional_id"])
@virtual_time
async def test_an_option_that_cannot_be_encoded(option: str) -> None:
    fake = FakeCluster(brokers=1, partitions=1)
    loop = asyncio.get_running_loop()
    producer = Producer(fake.bootstrap, dialer=fake, **{option: "\ud800"})
    with pytest.raises(KafkaError, match="cannot be encoded"):
        await producer.start()
    assert loop.time() < 1
