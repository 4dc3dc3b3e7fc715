"""Serializers that get a context, and serializers that are async: what they get, and the order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import SerializationContext
from kafkaclient.errors import (
    InvalidRecordError,
    SerializationError,
)
from kafkaclient.testing.clock import virtual_time
from tests.producer.scenarios.serializer_support import FirstUse, passes, texts
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer


# --- the context ------------------------------------------------------------------------------


@virtual_time
async def test_a_serializer_sees_and_changes_the_record(producing: StartProducer) -> None:
    """On the fast and on the slow way; the caller's own headers stay as they are."""
    seen: list[Any] = []

    class Tagging:
        def serialize(self, item: str, context: SerializationContext) -> bytes:
            seen.append((context.topic, context.field, list(context.headers)))
            context.headers.append((context.field, b"tagged"))
            return item.encode()

    fake, given = one_topic(1, brokers=1), [("own", b"1")]
    async with producing(
        fake, key_serializer=Tagging(), value_serializer=Tagging(), linger_ms=5
    ) as producer:
        for _ in range(2):  # the first one is slow: the topic is not known yet
            await producer.send("t", "v", "k", headers=given)
        producer.send_nowait("t", "v", headers={"own": b"2"})
        producer.send_nowait("t", None, None)
        await (await producer.send_many("t", ["v"], record_headers=[given]))
    first = [("own", b"1"), ("key", b"tagged"), ("value", b"tagged")]
    assert [list(record.headers) for record in fake.log("t", 0)] == [
        first,
        first,
        [("own", b"2"), ("value", b"tagged")],
        [],
        [("own", b"1"), ("value", b"tagged")],
    ]
    assert given == [("own", b"1")]
    assert seen[:2] == [("t", "key", [("own", b"1")]), ("t", "value", first[:2])]
    assert repr(SerializationContext("t", "key", [])) == (
        "SerializationContext(topic='t', field='key')"
    )


@virtual_time
async def test_a_callable_gets_the_value_alone(producing: StartProducer) -> None:
    class Both:
        def __call__(self, item: str) -> bytes:
            return item.encode()

        def serialize(self, item: str, context: SerializationContext) -> bytes:
            raise AssertionError

    fake = one_topic(1, brokers=1)
    async with producing(fake, value_serializer=Both()) as producer:
        await producer.send_and_wait("t", "plain")
    assert texts(fake) == ["plain"]


@virtual_time
async def test_headers_that_cannot_be_read(producing: StartProducer) -> None:
    known = FirstUse()
    known.answer("a")
    async with producing(one_topic(), value_serializer=known) as producer:
        for _ in range(2):
            with pytest.raises(InvalidRecordError, match="topic 't'"):
                await producer.send("t", "a:1", headers=5)  # type: ignore[arg-type]
            await producer.send("t", "a:1")


@virtual_time
async def test_a_batch_takes_no_async_serializer(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        batch = producer.create_batch()
        with pytest.raises(SerializationError, match=r"the value of a record of a batch.*async"):
            batch.append("a:1")
        serializer.answer("a")
        assert batch.append("a:2")
        await (await producer.send_batch(batch, "t"))
    assert texts(fake) == ["2"]


# --- order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("known_topic", [True, False])
@virtual_time
async def test_later_records_do_not_overtake(producing: StartProducer, known_topic: bool) -> None:
    """send, send_nowait and send_many behind a first use; other topics go on meanwhile."""
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    fake.create_topic("other", 1)
    serializer.answer("old")
    async with producing(fake, value_serializer=serializer) as producer:
        if known_topic:
            await producer.send_and_wait("t", "old:0")
        first = asyncio.create_task(producer.send("t", "new:1"))
        await passes()
        held = producer.send_nowait("t", "new:2")
        ready = producer.send_nowait("t", "old:3")
        behind = asyncio.create_task(producer.send("t", "old:4"))
        many = asyncio.create_task(producer.send_many("t", ["old:5", "old:6"]))
        await passes()
        last = producer.send_nowait("t", "old:7")
        await producer.send_and_wait("other", "old:x")
        assert not any(sent.done() for sent in (first, held, ready, behind, many))
        assert texts(fake) == ["0"] * known_topic
        serializer.answer("new")
        for sent in (await first, held, ready, await behind, await many, last):
            await sent
    assert texts(fake) == ["0"] * known_topic + ["1", "2", "3", "4", "5", "6", "7"]


@virtual_time
async def test_key_and_value_may_both_wait(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, key_serializer=serializer, value_serializer=serializer) as producer:
        held = producer.send_nowait("t", "v:value", "k:key", headers=iter([("own", b"")]))
        await passes()
        assert serializer.calls == ["k:key"]  # the value's serializer sees the key's headers
        serializer.answer("k")
        await passes()
        assert serializer.calls == ["k:key", "v:value"]
        serializer.answer("v")
        await held
    [record] = fake.log("t", 0)
    assert (record.key, record.value) == (b"key", b"value")
    assert list(record.headers) == [("own", b""), ("key-schema", b"k"), ("value-schema", b"v")]


@virtual_time
async def test_a_coroutine_function_as_a_serializer(producing: StartProducer) -> None:
    async def serialize(value: str) -> bytearray:
        await asyncio.sleep(0.001 if value == "0" else 0)  # later ones finish first
        return bytearray(value.encode())

    fake = one_topic(1, brokers=1)
    async with producing(fake, value_serializer=serialize) as producer:
        sent = [producer.send_nowait("t", str(number)) for number in range(5)]
        await asyncio.gather(*sent)
        await (await producer.send_many("t", ["5", "6"]))
    assert texts(fake) == ["0", "1", "2", "3", "4", "5", "6"]


@virtual_time
async def test_the_timestamp_is_the_time_of_the_call(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer, wall_clock=now) as producer:
        await asyncio.sleep(5)
        called = int(now() * 1000)
        held = producer.send_nowait("t", "a:1")
        await asyncio.sleep(2)
        serializer.answer("a")
        assert (await held).timestamp == called
