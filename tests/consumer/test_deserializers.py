"""Deserializers, and what happens to records that cannot be deserialized."""

from __future__ import annotations

import asyncio
import json
import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Consumer, DeadLetters, Producer
from kafkaclient.errors import (
    ConfigError,
    ConsumerStateError,
    DeserializationError,
    InvalidTopicError,
    ProducerClosedError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kafkaclient import SerializationContext
    from kafkaclient.consumer import Record
    from kafkaclient.testing.fake import FakeCluster
    from tests.consumer.conftest import Tools

P = [TopicPartition("t", number) for number in range(4)]


def append(fake: FakeCluster, *values: bytes | None, partition: int = 0) -> None:
    builder = BatchBuilder(2**20)
    for number, value in enumerate(values):
        builder.append(1000 + number, b"k", value, [("h", b"x")])
    builder.seal(0)
    fake.append("t", partition, bytes(builder.buffer()))


async def values(consumer: Consumer, count: int) -> list[Any]:
    """The next values; the last one is finished."""
    found: list[Any] = []
    async for record in consumer:
        found.append(record.value)
        if len(found) == count:
            record.done()
            break
    return found


async def finish_all(records: AsyncIterator[Record], found: list[int]) -> None:
    async for record in records:
        record.done()
        found.append(record.value)


class Contextual:
    """Has Java's signature, and answers later every other time."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Any]] = []

    def deserialize(self, data: bytes, context: SerializationContext) -> Any:
        self.seen.append((context.topic, context.field, list(context.headers)))
        context.headers.append(("seen", b""))
        return data.decode() if len(self.seen) % 2 else self._later(data)

    async def _later(self, data: bytes) -> str:
        await asyncio.sleep(1)
        return data.decode()


@virtual_time
async def test_functions_and_objects_deserialize(fake: FakeCluster, tools: Tools) -> None:
    append(fake, b'{"a": 1}', None)
    seen = Contextual()
    async with tools.consumer(fake, key_deserializer=seen, value_deserializer=json.loads) as it:
        it.assign([P[0]])
        records: list[Record] = []
        async for record in it:
            records.append(record)
            if len(records) == 2:
                break
        assert [(r.key, r.value) for r in records] == [("k", {"a": 1}), ("k", None)]
        assert seen.seen[0] == ("t", "key", [("h", b"x")])
        first = records[0]
        assert first.raw.value == b'{"a": 1}'
        assert first.raw.raw is first.raw
        assert first.headers == (("h", b"x"),), "a deserializer's changes are its own"
        assert "{'a': 1}" in repr(first)
        assert pickle.loads(pickle.dumps(first)) == first  # noqa: S301
        await it.seek_to("earliest")
        async for batch in it.batches():
            assert [each.value for each in batch] == [b'{"a": 1}', None]
            break


@virtual_time
async def test_the_key_is_first_and_the_value_sees_its_headers(
    fake: FakeCluster, tools: Tools
) -> None:
    append(fake, b"v")
    both = Contextual()
    async with tools.consumer(fake, key_deserializer=both, value_deserializer=both) as it:
        it.assign([P[0]])
        assert await values(it, 1) == ["v"]
    assert [(field, len(headers)) for _, field, headers in both.seen] == [("key", 1), ("value", 2)]


@pytest.mark.parametrize("tracked", [False, True])
@virtual_time
async def test_a_failure_leaves_the_position_before_the_record(
    fake: FakeCluster, tools: Tools, tracked: bool
) -> None:
    append(fake, b"0", b"1", b"bad", b"3")
    async with tools.consumer(fake, group_id="g", value_deserializer=int) as it:
        it.assign([P[0]])
        loop = it.tracked if tracked else it.__aiter__
        for expected in ([0, 1], []):
            found: list[int] = []
            with pytest.raises(DeserializationError, match=r"the value of .* t-0, offset 2") as why:
                await finish_all(loop(), found)
            assert found == expected
            assert isinstance(why.value.__cause__, ValueError)
            assert it.position(P[0]) == 2
            error = why.value
            health = await it.healthy()
            assert not health, "its loop has ended"
            assert "t-0, offset 2" in str(health)
        stream = loop()
        for _ in range(2):  # also if one loop goes on
            with pytest.raises(DeserializationError):
                await anext(stream)
        await it.commit()
        assert tools.committed(fake, P[0]) == 2
        assert (error.topic_partition, error.offset, error.field) == (P[0], 2, "value")
        it.seek(error.topic_partition, error.offset + 1)
        async for record in loop():
            assert record.value == 3
            record.done()
            break
        assert await it.healthy(), "another loop has taken a record"
    assert tools.committed(fake, P[0]) == 4


@pytest.mark.parametrize("tracked", [False, True])
@virtual_time
async def test_records_are_skipped_counted_and_logged_now_and_then(
    fake: FakeCluster, tools: Tools, tracked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    append(fake, b"0", *[b"bad"] * 5, b"6")
    append(fake, b"bad", b"1", partition=1)
    options = {"value_deserializer": int, "on_error": "skip"}
    async with tools.consumer(fake, group_id="g", **options) as it:
        it.assign(P[:2])
        found = []
        async for record in it.tracked() if tracked else it:
            record.done()
            found.append(record.value)
            if len(found) == 3:
                break
        assert sorted(found) == [0, 1, 6]
        assert it.metrics().consumer["dropped-records-total"] == 6
        assert len(caplog.messages) == 2
        await asyncio.sleep(11)
        append(fake, b"bad", b"8")
        assert await values(it, 1) == [8]
        assert "4 others of this partition" in caplog.messages[-1]
    assert tools.committed(fake, P[0]) == 9


@virtual_time
async def test_dead_letters_have_bytes_and_headers(fake: FakeCluster, tools: Tools) -> None:
    fake.create_topic("dead", 1)
    append(fake, b"bad", b"1")
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        letters = DeadLetters(producer, "dead")
        async with tools.consumer(
            fake, group_id="g", value_deserializer=int, on_error=letters
        ) as it:
            it.assign([P[0]])
            async for record in it:
                await letters(record, ZeroDivisionError("by hand"))
                record.done()
                break
        assert tools.committed(fake, P[0]) == 2
    async with tools.consumer(fake) as it:
        it.assign([TopicPartition("dead", 0)])
        dead = []
        async for record in it:
            dead.append(record)
            if len(dead) == 2:
                break
    assert [(d.key, d.value, d.timestamp) for d in dead] == [
        (b"k", b"bad", 1000),
        (b"k", b"1", 1001),
    ]
    headers = dict(dead[0].headers)
    assert headers.pop("h") == b"x"
    assert b"Traceback" in headers.pop("__streams.errors.stacktrace")
    assert headers == {
        "__streams.errors.exception": b"builtins.ValueError",
        "__streams.errors.message": b"invalid literal for int() with base 10: b'bad'",
        "__streams.errors.topic": b"t",
        "__streams.errors.partition": b"0",
        "__streams.errors.offset": b"0",
    }
    assert dict(dead[1].headers)["__streams.errors.message"] == b"by hand"


@virtual_time
async def test_a_dead_letter_that_cannot_be_written_is_not_skipped(
    fake: FakeCluster, tools: Tools
) -> None:
    append(fake, b"bad")
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        letters = DeadLetters(producer, "dead")
    options = {"value_deserializer": int, "on_error": letters}
    async with tools.consumer(fake, group_id="g", **options) as it:
        it.assign([P[0]])
        with pytest.raises(ProducerClosedError) as raised:
            await values(it, 1)
        assert "t-0, offset 0" in raised.value.__notes__[0]
        assert it.position(P[0]) == 0
    assert tools.committed(fake, P[0]) in (0, None)


@virtual_time
async def test_errors_that_are_not_the_records_are_raised(fake: FakeCluster, tools: Tools) -> None:
    append(fake, b"0")
    answers: list[BaseException] = [ConfigError("no loop"), asyncio.CancelledError()]

    def deserialize(data: bytes) -> Any:
        if answers:
            raise answers.pop(0)
        return data

    async with tools.consumer(fake, value_deserializer=deserialize, on_error=lambda *_: None) as it:
        it.assign([P[0]])
        with pytest.raises(ConfigError, match="no loop"):
            await values(it, 1)
        append(fake, b"1")
        assert await values(it, 1) == [b"1"], "a cancellation by the deserializer is the record's"


def seek(consumer: Consumer) -> None:
    consumer.seek(P[0], 0)


def pause(consumer: Consumer) -> None:
    consumer.pause(P[0])
    asyncio.get_running_loop().call_later(5, consumer.resume, P[0])


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize(("change", "expected"), [(seek, [0, 0, 1, 2]), (pause, [0, 1, 2])])
@virtual_time
async def test_changes_while_a_deserializer_works(
    fake: FakeCluster,
    tools: Tools,
    tracked: bool,
    change: Callable[[Consumer], None],
    expected: list[int],
) -> None:
    append(fake, b"0", b"1", b"2")
    changes = [change]

    async def deserialize(data: bytes) -> int:
        await asyncio.sleep(1)
        if data == b"1" and changes:
            changes.pop()(it)
            await asyncio.sleep(1)
        return int(data)

    async with tools.consumer(fake, group_id="g", value_deserializer=deserialize) as it:
        it.assign([P[0]])
        found = []
        async for record in it.tracked() if tracked else it:
            found.append(record.value)
            record.done()
            if len(found) == len(expected):
                break
        assert found == expected
    assert tools.committed(fake, P[0]) == 3


@pytest.mark.parametrize("tracked", [False, True])
@virtual_time
async def test_a_cancelled_step_takes_no_record(
    fake: FakeCluster, tools: Tools, tracked: bool
) -> None:
    append(fake, b"0", b"1")
    waits = [100, 0, 0]

    async def deserialize(data: bytes) -> int:
        await asyncio.sleep(waits.pop(0))
        return int(data)

    async with tools.consumer(fake, group_id="g", value_deserializer=deserialize) as it:
        it.assign([P[0]])
        loop = it.tracked() if tracked else aiter(it)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(loop)
        assert it.position(P[0]) == 0
        for expected in (0, 1):
            record = await anext(loop)
            assert record.value == expected
            record.done()
    assert tools.committed(fake, P[0]) == 2


@virtual_time
async def test_polls_give_the_records_before_one_that_fails(
    fake: FakeCluster, tools: Tools
) -> None:
    append(fake, b"0", b"1", b"bad", b"3")
    append(fake, b"bad", partition=1)
    async with tools.consumer(fake, group_id="g", value_deserializer=int) as it:
        it.assign(P[:2])
        await asyncio.sleep(1)
        found: list[int] = []
        while len(found) < 2:
            with suppress(DeserializationError):
                got = await it.getmany(timeout_ms=1000)
                found += [record.value for record in got.get(P[0], [])]
        assert found == [0, 1]
        for where, offset in ((P[0], 2), (P[1], 0)):
            for _ in range(2):
                with pytest.raises(DeserializationError, match=f"{where}, offset {offset}"):
                    await it.getone(where)
            assert it.position(where) == offset
        await it.commit()
        assert tools.committed(fake, P[0]) == 2
        it.seek(P[0], 3)
        assert (await it.getone(P[0])).value == 3
    async with tools.consumer(fake, value_deserializer=int, on_error="skip") as it:
        it.assign(P[:2])
        values = [(await it.getone()).value for _ in range(3)]
        assert sorted(values) == [0, 1, 3]


@virtual_time
async def test_a_cancelled_poll_takes_no_record(fake: FakeCluster, tools: Tools) -> None:
    append(fake, b"0", b"1")
    waits = [0, 100, 0, 0]

    async def deserialize(data: bytes) -> int:
        await asyncio.sleep(waits.pop(0))
        return int(data)

    async with tools.consumer(fake, group_id="g", value_deserializer=deserialize) as it:
        it.assign([P[0]])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await it.getmany(timeout_ms=500)
        assert it.position(P[0]) == 0
        got = await it.getmany(timeout_ms=500)
        assert [record.value for record in got[P[0]]] == [0, 1]


def test_refused_options() -> None:
    producer = Producer("localhost:9092", value_serializer=json.dumps)
    with pytest.raises(ConfigError, match="without value_serializer"):
        DeadLetters(producer, "dead")
    with pytest.raises(InvalidTopicError):
        DeadLetters(Producer("localhost:9092"), "a topic")
    for bad in ({"on_error": "ignore"}, {"value_deserializer": Contextual}):
        with pytest.raises(ConfigError):
            Consumer("localhost:9092", **bad)


async def slow(data: bytes) -> bytes:
    await asyncio.sleep(1)
    return data


@virtual_time
async def test_a_seek_while_polled_records_are_deserialized(
    fake: FakeCluster, tools: Tools
) -> None:
    tools.fill(fake, 0, 6)
    async with tools.consumer(fake, value_deserializer=slow) as consumer:
        consumer.assign([P[0]])
        await consumer.wait_position(P[0])
        polled = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.5)
        consumer.seek(P[0], 4)
        assert (await polled).offset == 4


@virtual_time
async def test_two_tasks_cannot_take_from_one_loop_while_it_deserializes(
    fake: FakeCluster, tools: Tools
) -> None:
    """The record of the first would be finished before it was handed out."""
    tools.fill(fake, 0, 6)
    async with tools.consumer(fake, value_deserializer=slow) as consumer:
        consumer.assign([P[0]])
        records = aiter(consumer)
        assert (await anext(records)).offset == 0
        first = asyncio.create_task(anext(records))
        await asyncio.sleep(0.5)
        with pytest.raises(ConsumerStateError, match="two tasks take records"):
            await anext(records)
        assert (await first).offset == 1
        assert (await anext(records)).offset == 2


@virtual_time
async def test_skipped_records_do_not_prolong_a_poll(fake: FakeCluster, tools: Tools) -> None:
    async with tools.consumer(fake, value_deserializer=json.loads, on_error="skip") as consumer:
        consumer.assign([P[0]])
        await consumer.wait_position(P[0])
        polled = asyncio.create_task(consumer.getmany(timeout_ms=3000))
        for _ in range(4):
            await asyncio.sleep(1)
            append(fake, b"?")
        assert polled.done()
        assert not polled.result()
