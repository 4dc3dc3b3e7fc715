"""Streaming reads on real Spark whose records, topics or start are gone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from integration.spark_support import fill
from kafkaclient.admin import Admin

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(300),
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


async def test_a_first_batch_whose_start_is_not_known_any_more(
    spark, spark_options, topic, create_topic, read_topic, tmp_path
):
    """Spark keeps the end of a batch, and not where the first began: that must not be guessed."""
    await create_topic(topic, 1)
    await fill(spark_options["kafka.bootstrap.servers"], topic, range(10), 1)

    def start(fails: bool, **extra: str) -> Any:
        def work(batch: Any, number: int) -> None:
            if fails:
                raise RuntimeError("the first batch fails")
            counted.append(batch.count())

        frame = spark.readStream.format("kafkaclient").options(
            **spark_options, **extra, subscribe=topic
        )
        stream = frame.load().writeStream.foreachBatch(work)
        return stream.option("checkpointLocation", str(tmp_path)).start()

    counted: list[int] = []
    query = start(fails=True)
    deadline = time.monotonic() + 60
    while not query.recentProgress and query.isActive and time.monotonic() < deadline:
        time.sleep(0.2)  # noqa: ASYNC251 - Spark blocks the whole test
    await fill(spark_options["kafka.bootstrap.servers"], topic, range(10, 20), 1)
    with pytest.raises(Exception, match="the first batch fails"):
        query.awaitTermination(60)
    again = start(fails=False)
    with pytest.raises(Exception, match="stopped in its first batch"):
        again.awaitTermination(60)
    assert counted == []


async def test_a_deleted_topic_ends_the_query_and_not_its_checkpoint(
    spark, spark_options, topic, create_topic, kafka_cluster, tmp_path
):
    bootstrap, other = spark_options["kafka.bootstrap.servers"], f"{topic}-b"
    for name in (topic, other):
        await create_topic(name, 1)
        await fill(bootstrap, name, range(10), 1)

    def run(**extra: str) -> int:
        counted: list[int] = []
        frame = spark.readStream.format("kafkaclient").options(**spark_options, **extra)
        frame = frame.options(subscribe=f"{topic},{other}", startingOffsets="earliest").load()
        writer = frame.writeStream.foreachBatch(lambda batch, _: counted.append(batch.count()))
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)
        return sum(counted)

    assert run() == 20
    async with Admin(kafka_cluster.bootstrap) as admin:
        await admin.delete_topics([other])
    await fill(bootstrap, topic, range(5), 1)
    for _ in range(2):
        with pytest.raises(Exception, match=f"partition {other}-0 is gone; it was read to"):
            run()
    assert [each.name for each in (tmp_path / "offsets").glob("[0-9]*")] == ["0"]
    assert run(failOnDataLoss="false") == 5
    assert run() == 0
    await create_topic(other, 1)
    await fill(bootstrap, other, range(3), 1)
    assert run() == 3
    async with Admin(kafka_cluster.bootstrap) as admin:
        await admin.delete_topics([other])
    await create_topic(other, 1)
    await fill(bootstrap, other, range(6), 1)
    with pytest.raises(Exception, match=f"topic {other} was deleted and created again"):
        run()
    assert run(failOnDataLoss="false") == 6


@pytest.mark.parametrize("fails_on_loss", [True, False])
async def test_a_topic_that_is_created_again_is_another_topic(
    spark, spark_options, topic, create_topic, kafka_cluster, tmp_path, fails_on_loss
):
    """It has more records than were read of the old one, so the offsets do not show the loss."""
    await create_topic(topic, 1)
    bootstrap = spark_options["kafka.bootstrap.servers"]
    await fill(bootstrap, topic, range(10), 1)
    found: list[str] = []

    async def found_at_least(number: int) -> None:
        async with asyncio.timeout(120):
            while len(found) < number:
                if not query.isActive:
                    raise query.exception()
                await asyncio.sleep(0.2)

    frame = spark.readStream.format("kafkaclient").options(**spark_options, subscribe=topic)
    frame = frame.options(startingOffsets="earliest", failOnDataLoss=str(fails_on_loss)).load()
    writer = frame.writeStream.foreachBatch(
        lambda batch, _: found.extend(row.value.decode() for row in batch.collect())
    )
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        await found_at_least(10)
        async with Admin(kafka_cluster.bootstrap) as admin:
            await admin.delete_topics([topic])
        await create_topic(topic, 1)
        await fill(bootstrap, topic, range(100, 125), 1)
        if fails_on_loss:
            with pytest.raises(Exception, match=f"topic {topic} was deleted and created again"):
                query.awaitTermination(60)
        else:
            await found_at_least(35)
        assert len(found) == (10 if fails_on_loss else 35), (found, query.recentProgress)
        assert len(set(found)) == len(found)
    finally:
        query.stop()
