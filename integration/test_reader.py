"""The reader on real brokers: what other clients wrote, held against aiokafka's consumer."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from kafkaclient import Producer, TopicPartition
from kafkaclient.errors import OffsetOutOfRangeError
from kafkaclient.reader import Reader
from tests.code_blocks import runs

pytestmark = pytest.mark.timeout(120)

COMMITTED = {"isolation_level": "read_committed"}


async def everything(bootstrap: str, topic: str, **options) -> list[tuple]:
    """As the fixture ``read_topic`` has it, but for the order of partitions."""
    async with Reader(bootstrap, **options) as reader:
        starts = await reader.offsets(topic, at="earliest")
        ends = await reader.offsets(topic, at="latest")
        ranges = {tp: (starts[tp], ends[tp]) for tp in starts}
        reading = reader.read(ranges, headers=True)
        records = [
            (r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
            async for batch in reading
            for r in batch
        ]
        assert reading.positions == {tp: end for tp, end in ends.items() if end > starts[tp]}
    return records


async def test_what_aiokafka_wrote(kafka_cluster, topic, create_topic, read_topic):
    """Every codec, with and without keys, values and headers."""
    await create_topic(topic, 3)
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka_cluster.bootstrap, compression_type=codec, linger_ms=5
        )
        await producer.start()
        try:
            for n in range(600):
                await producer.send(
                    topic,
                    None if n % 51 == 0 else b"%d " % n * 20,
                    key=None if n % 3 else b"k%d" % n,
                    partition=n % 3,
                    headers=[("name", b"%d" % n), ("é", b"")] if n % 2 else None,
                )
        finally:
            await producer.stop()
    ours = await everything(kafka_cluster.bootstrap, topic, max_partition_fetch_bytes=5000)
    theirs = [tuple(record) for record in await read_topic(topic)]
    assert len(ours) == 3000
    assert sorted(ours, key=lambda r: r[:2]) == sorted(theirs, key=lambda r: r[:2])


@pytest.mark.local_cluster
async def test_what_java_wrote(kafka_cluster, topic, create_topic, read_topic):
    await create_topic(topic, 3)
    words = (
        *("--bootstrap-server", kafka_cluster.bootstrap, "--topic", topic),
        *("--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--command-property", "compression.type=zstd"),
    )
    done = await kafka_cluster.run_tool("org.apache.kafka.tools.ProducerPerformance", *words)
    assert done.returncode == 0, done.stderr
    ours = await everything(kafka_cluster.bootstrap, topic)
    theirs = [tuple(record) for record in await read_topic(topic)]
    assert len(ours) == 20_000
    assert sorted(ours, key=lambda r: r[:2]) == sorted(theirs, key=lambda r: r[:2])


async def test_transactions(kafka_cluster, topic, create_topic):
    await create_topic(topic, 2)
    bootstrap = kafka_cluster.bootstrap
    kept, dropped = [], []
    async with Producer(bootstrap, transactional_id=topic) as producer:
        for n in range(10):
            await producer.begin_transaction()
            values = [b"%d-%d" % (n, m) for m in range(20)]
            for m, value in enumerate(values):
                await producer.send(topic, value, partition=m % 2)
            if n % 3 == 1:
                dropped += values
                await producer.flush()  # or they would never leave
                await producer.abort_transaction()
            else:
                kept += values
                await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        committed = await everything(bootstrap, topic, **COMMITTED)
        assert sorted(r[4] for r in committed) == sorted(kept)
        piecemeal = await everything(bootstrap, topic, max_partition_fetch_bytes=1, **COMMITTED)
        assert sorted(piecemeal) == sorted(committed)
        plain = await everything(bootstrap, topic)
        assert sorted(r[4] for r in plain) == sorted([*kept, *dropped, b"open"])
        async with Reader(bootstrap, **COMMITTED) as reader, Reader(bootstrap) as witness:
            last_stable = await reader.offsets(topic, at="latest")
            ends = await witness.offsets(topic, at="latest")
            assert last_stable[TopicPartition(topic, 0)] == ends[TopicPartition(topic, 0)] - 1
            # What is open is waited for.
            tp = TopicPartition(topic, 0)
            reading = reader.read({tp: last_stable[tp]})
            waiting = asyncio.create_task(anext(reading))
            await asyncio.sleep(1)
            assert not waiting.done()
            await producer.commit_transaction()
            assert [r.value for r in await waiting] == [b"open"]
            reading.close()


async def test_by_time_and_what_has_been_deleted(kafka_cluster, topic, create_topic):
    await create_topic(topic, 1)
    tp = TopicPartition(topic, 0)
    began = int(time.time() * 1000) - 100_000
    async with Producer(kafka_cluster.bootstrap) as producer:
        for n in range(100):
            await producer.send(topic, b"%d" % n, timestamp_ms=began + n * 1000)
    async with Reader(kafka_cluster.bootstrap) as reader:
        found = await reader.list_topics([topic, f"{topic}-none"])
        assert [each.partitions for each in found.values()] == [(tp,)]
        assert (await reader.list_topics())[topic] == found[topic]
        assert await reader.offsets([tp], at=began + 41_500) == {tp: 42}
        assert await reader.offsets([tp], at=began + 99_001) == {tp: None}
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({tp: RecordsToDelete(before_offset=30)})
        finally:
            await admin.close()
        for offset in (29, 101):
            with pytest.raises(OffsetOutOfRangeError, match="from 30 to 99") as caught:
                await anext(reader.read({tp: offset}))
            assert caught.value.available == (30, 100)
            assert caught.value.topic_partition == tp
        batch = await anext(reader.read({tp: (30, 100)}))
        assert [r.value for r in batch] == [b"%d" % n for n in range(30, 100)]


@pytest.mark.full
@pytest.mark.local_cluster
async def test_a_broker_killed_in_the_middle(kafka_cluster, topic, create_topic):
    """The partitions it led are read on at their new leaders; nothing is lost or given twice."""
    await create_topic(topic, 6, 3)
    async with Producer(kafka_cluster.bootstrap) as producer:
        await (await producer.send_many(topic, [b"%d" % n * 10 for n in range(200_000)]))
    options = {"max_partition_fetch_bytes": 30_000, "fetch_max_bytes": 200_000}
    async with Reader(kafka_cluster.bootstrap, **options) as reader:
        ends = await reader.offsets(topic, at="latest")
        reading = reader.read({tp: (0, end) for tp, end in ends.items()})
        offsets = {tp: [] for tp in ends}
        values = []
        try:
            async for batch in reading:
                if len(values) < 50_000 <= len(values) + len(batch):
                    await kafka_cluster.kill(0)
                offsets[batch.topic_partition] += [r.offset for r in batch]
                values += [r.value for r in batch]
        finally:
            await kafka_cluster.heal()
    assert offsets == {tp: list(range(end)) for tp, end in ends.items()}
    assert sorted(values) == sorted(b"%d" % n * 10 for n in range(200_000))


@runs("docs/how-to/reader.md", having="asyncio.run")
async def test_the_example_of_the_page(kafka_cluster, topic, create_topic, block):
    await create_topic(topic, 2)
    async with Producer(kafka_cluster.bootstrap) as producer:
        place = await producer.send_and_wait(topic, b"late again", key=b"UA")
    code = block.text({"localhost:9092": kafka_cluster.bootstrap, "flights": topic})
    script = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await script.communicate()
    assert out.decode() == f"{place.partition} 0 b'UA' b'late again'\n"
    assert script.returncode == 0
