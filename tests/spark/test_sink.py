"""A task's writing, on the fake cluster."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from kafkaclient import Producer
from kafkaclient.errors import BulkDeliveryError, InvalidRecordError, KafkaError
from kafkaclient.spark.options import WriteOptions
from kafkaclient.spark.rows import WriteColumns
from kafkaclient.spark.sink import (
    KafkaStreamWriter,
    KafkaWriter,
    TaskWriter,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kafkaclient.spark.client_cache import ClientCache

SCHEMA = StructType().add("value", StringType()).add("topic", StringType())
VALUES = StructType().add("value", StringType())
TO_TOPICS = WriteColumns.check(SCHEMA, None)
TO_PARTITIONS = WriteColumns.check(SCHEMA.add("partition", IntegerType()), "t")


@asynccontextmanager
async def sink(fake, columns: WriteColumns, **options: object) -> AsyncIterator[TaskWriter]:
    producer = Producer(fake.bootstrap, dialer=fake, **options)
    await producer.start()
    try:
        yield TaskWriter(producer, columns)
    finally:
        await producer.stop(timeout=0)


def values(fake, topic: str) -> list[bytes | None]:
    return [record.value for n in range(3) for record in fake.log(topic, n)]


async def test_every_row_is_acknowledged(fake) -> None:
    fake.create_topic("u", 3)
    async with sink(fake, TO_TOPICS) as task:
        for n in range(200):
            topics = ["t", "u", "t"] if n % 2 else ["t", "t", "t"]
            await task.take(pa.record_batch({"value": [f"{n}", None, "x"], "topic": topics}))
        await task.finish()
    assert len(values(fake, "t")) == 500
    assert sorted(v for v in values(fake, "u") if v) == []
    assert values(fake, "u").count(None) == 100


async def test_a_bad_row_is_named(fake) -> None:
    async with sink(fake, TO_PARTITIONS) as task:
        good = {"value": ["a", "b"], "topic": ["-", "-"], "partition": [0, None]}
        bad = {**good, "partition": pa.array([1, 9], pa.int32())}
        await task.take(pa.record_batch({**good, "partition": pa.array([0, None], pa.int32())}))
        with pytest.raises(InvalidRecordError, match=r"row 3 of the task \(value .*9") as refused:
            await task.take(pa.record_batch(bad))
        assert refused.value.__cause__ is not None


@pytest.mark.parametrize(
    ("topics", "row", "said"),
    [
        (["t", "u", None, "u", "t"], 2, "topic None.*column topic is null"),
        (["t", "u", "u", "", None], 3, "topic .*empty"),
        (["t", "no topic", "u", "", None], 1, "topic no topic, value of 1 bytes.*no topic"),
        (["t", None, "u", "?", "big"], 1, "topic None.*column topic is null"),
        (["u", "t", "big", "t", "?"], 2, "topic u, value of 2000 bytes.*max.request.size"),
        (
            ["u", "missing", "t", None, "u"],
            1,
            "topic missing.*does not exist|topic missing.*within",
        ),
    ],
)
async def test_the_first_bad_row_of_several_topics(fake, topics, row, said) -> None:
    """In the order of the batch, although rows are sent by topic."""
    fake.create_topic("u", 3)
    given = {"max_request_size": 1000, "max_block_ms": 50, "allow_auto_create_topics": False}
    async with sink(fake, TO_TOPICS, **given) as task:
        await task.take(pa.record_batch({"value": ["a"], "topic": ["t"]}))
        values = ["x" * 2000 if topic == "big" else "x" for topic in topics]
        names = ["u" if topic == "big" else topic for topic in topics]
        with pytest.raises(KafkaError, match=rf"row {1 + row} of the task \({said}") as refused:
            await task.take(pa.record_batch({"value": values, "topic": names}))
        assert "Rows of the task that were sent before may be in their topics" in str(refused.value)
        await task.finish()
    sent = sum(len(fake.log(topic, n)) for topic in ("t", "u") for n in range(3))
    assert 1 + topics[:row].count(topics[0]) <= sent < 1 + len(topics), "all but the bad topic's"


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, "max.request.size=1048576"),
        ({"max_request_size": 2**22, "buffer_memory": 2**20}, "buffer.memory=1048576"),
        ({"max_request_size": 2**22}, "the topic's max.message.bytes"),
    ],
)
async def test_a_row_that_is_too_large_says_for_what(fake, given, limit: str) -> None:
    async def write() -> None:
        async with sink(fake, WriteColumns.check(VALUES, "t"), **given) as task:
            await task.take(pa.record_batch({"value": ["x" * 2**21]}))
            await task.finish()

    with pytest.raises(KafkaError, match=limit) as refused:
        await write()
    assert ".." not in str(refused.value)


async def test_a_record_that_brokers_reject_fails_the_task(fake) -> None:
    """The task must not succeed with a record that is not in the log."""
    for number in range(3):
        fake.fail_produce("t", number, 29)  # TOPIC_AUTHORIZATION_FAILED
    columns = WriteColumns.check(VALUES, "t")
    async with sink(fake, columns) as task:
        await task.take(pa.record_batch({"value": ["a"]}))
        with pytest.raises(
            BulkDeliveryError, match=r"in rows 0 to 0 of the task: 1 of 1 .*topic 't'"
        ):
            await task.finish()


def test_a_task_from_its_rows_to_its_commit_message(
    fake, cache: ClientCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkaclient.spark.client_cache.WORKER_CACHE", cache)
    given = {"kafka.bootstrap.servers": fake.bootstrap, "topic": "t"}
    options, columns = WriteOptions.parse(given, "batch"), WriteColumns.check(VALUES, "t")
    batches = [pa.record_batch({"value": ["a", "b"]}) for _ in range(5)]
    for writer in (KafkaWriter(options, columns), KafkaStreamWriter(options, columns)):
        writer.write(iter(batches))
    assert len(values(fake, "t")) == 20


def test_a_task_whose_rows_end_in_an_error(
    fake, cache: ClientCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails with that error, and its records are dropped."""
    monkeypatch.setattr("kafkaclient.spark.client_cache.WORKER_CACHE", cache)
    given = {"kafka.bootstrap.servers": fake.bootstrap, "topic": "t", "kafka.linger.ms": "60000"}
    writer = KafkaWriter(WriteOptions.parse(given, "batch"), WriteColumns.check(VALUES, "t"))

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["a"]})
        raise LookupError("no more rows")

    with pytest.raises(LookupError, match="no more rows"):
        writer.write(rows())
    assert not any(fake.connections(broker) for broker in range(3))
