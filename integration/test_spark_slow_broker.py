"""A broker stands still (SIGSTOP) while Spark writes."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.admin import Admin
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [
    pytest.mark.full,
    pytest.mark.local_cluster,
    pytest.mark.timeout(300),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

STOPPED = 2
ROWS = 3_000
SCHEMA = "value string, partition int"


def rows(spark: Any) -> Any:
    """Row n has the value n, for partition n % 3. ``createDataFrame`` makes the session that of
    this thread: elsewhere Spark does not find Python's data sources."""
    numbers = [(str(n), n % 3) for n in range(ROWS)]
    return spark.createDataFrame(numbers, SCHEMA).repartition(2)  # the session runs two tasks


def write_batch(spark: Any, options: dict[str, str], topic: str, _path: Path) -> None:
    writer = rows(spark).write.format("kafkaclient").mode("append")
    writer.options(**options, topic=topic).save()


def write_stream(spark: Any, options: dict[str, str], topic: str, path: Path) -> None:
    """In two micro-batches, of a file each."""
    rows(spark).write.parquet(str(path / "rows"))
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    writer = files.parquet(str(path / "rows")).writeStream.format("kafkaclient")
    writer = writer.options(**options, topic=topic, checkpointLocation=str(path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


@asynccontextmanager
async def stopped_broker(kafka_cluster: Any) -> AsyncIterator[None]:
    await kafka_cluster.pause(STOPPED)
    try:
        yield
    finally:
        await kafka_cluster.resume(STOPPED)


async def test_rows_for_the_other_brokers_are_written_meanwhile(
    spark, spark_options, kafka_cluster, topic, create_topic, read_topic, tmp_path
) -> None:
    await create_topic(topic, assignments={number: [number] for number in range(3)})
    well = [TopicPartition(topic, number) for number in range(3) if number != STOPPED]
    async with Admin(kafka_cluster.bootstrap) as admin:
        async with stopped_broker(kafka_cluster):
            writing = asyncio.create_task(
                asyncio.to_thread(write_stream, spark, spark_options, topic, tmp_path)
            )
            stopped_at = time.monotonic()
            async with asyncio.timeout(100):  # on a busy machine Spark takes a minute to begin
                while min((await admin.end_offsets(well)).values()) == 0:
                    assert not writing.done()
                    await asyncio.sleep(0.2)
            assert not writing.done()
            await asyncio.sleep(max(0.0, 20 - (time.monotonic() - stopped_at)))
            assert not writing.done()
        await asyncio.wait_for(writing, 120)
    found = [record.value for record in await read_topic(topic)]
    assert sorted(found) == sorted(b"%d" % n for n in range(ROWS))


@pytest.mark.parametrize("write", [write_batch, write_stream])
async def test_a_broker_that_stays_away_ends_the_write(
    spark, spark_options, kafka_cluster, topic, create_topic, tmp_path, write
) -> None:
    await create_topic(topic, assignments={number: [number] for number in range(3)})
    options = {
        **spark_options,
        "kafka.delivery.timeout.ms": "15000",
        "kafka.request.timeout.ms": "5000",
    }
    async with stopped_broker(kafka_cluster):
        with pytest.raises(Exception, match=r"partition \d of the frame") as failed:
            async with asyncio.timeout(60):
                await asyncio.to_thread(write, spark, options, topic, tmp_path)
    text = str(failed.value)
    assert f" to {topic}-{STOPPED}: not acknowledged within" in text
    assert "delivery.timeout.ms=15000" in text
    assert "if Spark runs the task again, it writes them again" in text
