"""Records that cannot be deserialized, dead letters and hooks of consumers, on real brokers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Consumer, DeadLetters, Hooks, Producer
from kafkaclient.errors import DeserializationError, RecordTooLargeError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkaclient import SerializationContext
    from kafkaclient.consumer import Record
    from kafkaclient.hooks import ConsumedBatch, FinishedCommit
    from kafkaclient.testing.cluster import ClusterHandle

    CreateTopic = Callable[..., Awaitable[None]]

pytestmark = pytest.mark.timeout(120)

RECORDS = 10
BAD = 5
RUBBISH = b"\xff{not JSON"
GOOD = [{"n": n} for n in range(RECORDS) if n != BAD]


class Orders:
    """A topic of one partition, whose record 5 is not JSON, and the consumers of one group."""

    def __init__(self, cluster: ClusterHandle, topic: str) -> None:
        self.bootstrap = cluster.bootstrap
        self.topic = topic
        self.where = TopicPartition(topic, 0)

    def consumer(self, **options: Any) -> Consumer:
        given = {"value_deserializer": json.loads, "auto_offset_reset": "earliest", **options}
        return Consumer(self.bootstrap, group_id=f"g-{self.topic}", topics=[self.topic], **given)

    async def committed(self) -> int | None:
        async with Consumer(self.bootstrap, group_id=f"g-{self.topic}") as consumer:
            return (await consumer.committed([self.where]))[self.where]


async def values(consumer: Consumer, count: int) -> list[Any]:
    """The values of the next records. The last one is finished."""
    found: list[Any] = []
    async with asyncio.timeout(60):
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                record.done()
                break
    return found


async def letters(orders: Orders, topic: str, count: int) -> list[Record]:
    """The records of a topic, which has no others."""
    async with Consumer(orders.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        async with asyncio.timeout(60):
            found = [await consumer.getone() for _ in range(count)]
        assert await consumer.getmany(timeout_ms=500) == {}
    return found


@pytest.fixture
async def orders(kafka_cluster: ClusterHandle, topic: str, create_topic: CreateTopic) -> Orders:
    await create_topic(topic, 1)
    async with Producer(kafka_cluster.bootstrap) as producer:
        for n in range(RECORDS):
            value = RUBBISH if n == BAD else json.dumps({"n": n}).encode()
            await producer.send(topic, value, b"k%d" % n, headers=[("h", b"%d" % n)])
    return Orders(kafka_cluster, topic)


async def test_a_record_that_fails_stops_the_loop_until_it_is_passed(orders: Orders) -> None:
    """Each loop begins with it, also in the next process; nothing of it is committed."""
    async with orders.consumer() as consumer:
        assert await values(consumer, BAD) == GOOD[:BAD]
        for _ in range(2):
            with pytest.raises(DeserializationError) as raised:
                await values(consumer, 1)
            error = raised.value
            assert (error.topic_partition, error.offset, error.field) == (
                orders.where,
                BAD,
                "value",
            )
            assert f"{orders.where}, offset {BAD}" in str(error)
        with pytest.raises(DeserializationError):
            await consumer.getmany(timeout_ms=10_000)
    assert await orders.committed() == BAD
    async with orders.consumer() as consumer:
        with pytest.raises(DeserializationError):
            await values(consumer, 1)
        consumer.seek(orders.where, BAD + 1)
        assert await values(consumer, RECORDS - BAD - 1) == GOOD[BAD:]
    assert await orders.committed() == RECORDS


async def test_a_record_that_fails_is_skipped(orders: Orders) -> None:
    async with orders.consumer(on_error="skip") as consumer:
        assert await values(consumer, RECORDS - 1) == GOOD
    assert await orders.committed() == RECORDS


async def test_a_record_that_fails_becomes_a_dead_letter(
    orders: Orders, create_topic: CreateTopic
) -> None:
    """With its bytes, its headers and those of KIP-1034. Then it is committed."""
    dead = f"{orders.topic}-dead"
    await create_topic(dead, 1)
    async with (
        Producer(orders.bootstrap) as producer,
        orders.consumer(on_error=DeadLetters(producer, dead)) as consumer,
    ):
        assert await values(consumer, RECORDS - 1) == GOOD
    assert await orders.committed() == RECORDS
    (letter,) = await letters(orders, dead, 1)
    assert (letter.key, letter.value) == (b"k%d" % BAD, RUBBISH)
    told = {name: value or b"" for name, value in letter.headers}
    assert told.pop("h") == b"%d" % BAD
    about = {name.removeprefix("__streams.errors."): value for name, value in told.items()}
    assert b"UnicodeDecodeError" in about.pop("exception")
    assert b"Traceback" in about.pop("stacktrace")
    assert b"can't decode" in about.pop("message")
    assert about == {"topic": orders.topic.encode(), "partition": b"0", "offset": b"%d" % BAD}


async def test_a_dead_letter_that_cannot_be_written_stops_the_loop(
    orders: Orders, create_topic: CreateTopic
) -> None:
    """The record is not committed. The next consumer writes it to a topic that the brokers
    create."""
    dead = f"{orders.topic}-dead"
    await create_topic(dead, 1, config={"max.message.bytes": "100"})
    async with Producer(orders.bootstrap) as producer:
        async with orders.consumer(on_error=DeadLetters(producer, dead)) as consumer:
            with pytest.raises(RecordTooLargeError) as raised:
                await values(consumer, RECORDS - 1)
            assert f"offset {BAD}, cannot be deserialized" in "".join(raised.value.__notes__)
        assert await orders.committed() == BAD
        new = DeadLetters(producer, f"{dead}-new")
        async with orders.consumer(on_error=new) as consumer:
            assert await values(consumer, RECORDS - BAD - 1) == GOOD[BAD:]
    assert await orders.committed() == RECORDS
    assert await letters(orders, new.topic, 1)


async def test_an_async_deserializer_gets_topic_and_headers(orders: Orders) -> None:
    class Slow:
        async def deserialize(self, data: bytes, context: SerializationContext) -> Any:
            await asyncio.sleep(0.001)
            ((name, number),) = context.headers
            assert number is not None
            if data == RUBBISH:
                data = b"null"
            return context.topic, context.field, name, int(number), json.loads(data)

    async with orders.consumer(value_deserializer=Slow()) as consumer:
        found = await values(consumer, RECORDS)
    expected = [None if n == BAD else {"n": n} for n in range(RECORDS)]
    assert found == [(orders.topic, "value", "h", n, value) for n, value in enumerate(expected)]
    assert await orders.committed() == RECORDS


async def test_hooks_see_each_batch_and_commit_once(orders: Orders) -> None:
    """What a hook raises harms nothing."""

    class Seen(Hooks):
        def __init__(self) -> None:
            self.offsets: list[int] = []
            self.commits: list[FinishedCommit] = []
            self.assigned: list[TopicPartition] = []

        def on_consume(self, batch: ConsumedBatch) -> None:
            self.offsets += range(batch.base_offset, batch.next_offset)

        def on_commit(self, commit: FinishedCommit) -> None:
            self.commits.append(commit)

        def on_assigned(self, partitions: Any) -> None:
            self.assigned += partitions

    class Raises(Seen):
        def on_consume(self, batch: ConsumedBatch) -> None:
            super().on_consume(batch)
            raise ZeroDivisionError

        def on_commit(self, commit: FinishedCommit) -> None:
            super().on_commit(commit)
            raise ZeroDivisionError

        def on_assigned(self, partitions: Any) -> None:
            super().on_assigned(partitions)
            raise ZeroDivisionError

    seen = [Raises(), Seen()]
    options: dict[str, Any] = {"hooks": seen, "enable_auto_commit": False, "on_error": "skip"}
    async with orders.consumer(**options) as consumer:
        assert await values(consumer, RECORDS - 1) == GOOD
        for offset in (3, RECORDS):
            await consumer.commit({orders.where: offset})
    for each in seen:
        assert each.offsets == list(range(RECORDS))
        assert [(commit.offsets, commit.error) for commit in each.commits] == [
            ({orders.where: offset}, None) for offset in (3, RECORDS)
        ]
        assert each.assigned == [orders.where]
    assert await orders.committed() == RECORDS


async def test_a_handler_makes_dead_letters_too(orders: Orders, create_topic: CreateTopic) -> None:
    """The letter has the record's bytes, also after it was deserialized."""
    dead = f"{orders.topic}-dead"
    await create_topic(dead, 1)

    async def handle(record: Record) -> None:
        if record.value["n"] == RECORDS - 1:
            raise ValueError("refused")

    async with (
        Producer(orders.bootstrap) as producer,
        orders.consumer(on_error=DeadLetters(producer, dead)) as consumer,
    ):
        dead_letters = DeadLetters(producer, dead)
        async with asyncio.timeout(60):
            async for record in consumer:
                try:
                    await handle(record)
                except ValueError as error:
                    await dead_letters(record, error)
                    break
    found = await letters(orders, dead, 2)
    assert [letter.value for letter in found] == [
        RUBBISH,
        json.dumps({"n": RECORDS - 1}).encode(),
    ]
    assert dict(found[1].headers)["__streams.errors.message"] == b"refused"
