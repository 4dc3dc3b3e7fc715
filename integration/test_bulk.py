"""Records in bulk against real brokers, read back by another client's consumer."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from kafkaclient import Producer
from kafkaclient.errors import BrokerError
from kafkaclient.wire.murmur2 import partition_for_key

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_send_many(kafka_cluster, topic, create_topic, read_topic, codec):
    await create_topic(topic, 6)
    values = [b"%06d" % n * 15 for n in range(50_000)]
    keys = [b"%d" % (n % 100) if n % 3 else None for n in range(50_000)]
    async with Producer(
        kafka_cluster.bootstrap, compression_type=codec, buffer_memory=1_000_000
    ) as producer:
        delivery = await producer.send_many(topic, values, keys=keys, headers={"h": b"x"})
        metadata = await delivery
    read = await read_topic(topic)
    assert metadata.records == len(read) == 50_000
    assert {r.headers for r in read} == {(("h", b"x"),)}
    for partition, ranges in metadata.partitions.items():
        offsets = [r.offset for r in read if r.partition == partition]
        assert offsets == [n for first, count in ranges for n in range(first, first + count)]
        expected = [
            value
            for value, key in zip(values, keys, strict=True)
            if key is not None and partition_for_key(key, 6) == partition
        ]
        assert [r.value for r in read if r.partition == partition and r.key] == expected
    assert sorted(r.value for r in read) == values


async def test_send_arrow(kafka_cluster, topic, create_topic, read_topic):
    await create_topic(topic, 3)
    count = 20_000
    table = pa.table(
        {
            "key": pa.array([f"key {n % 50}" if n % 2 else None for n in range(count)]),
            "value": pa.array([b"%d" % n if n % 7 else None for n in range(count)]),
            "headers": pa.array(
                [[("n", b"%d" % n)] for n in range(count)], pa.map_(pa.string(), pa.binary())
            ),
            "timestamp": pa.array([n * 1000 for n in range(count)], pa.timestamp("us", "UTC")),
            "partition": pa.array(
                [n % 3 if n % 5 == 0 else None for n in range(count)], pa.int32()
            ),
        }
    )
    async with Producer(kafka_cluster.bootstrap) as producer:
        metadata = await (await producer.send_arrow(topic, table))
    assert metadata.records == count
    rows = {}
    for r in await read_topic(topic):
        n = int(r.headers[0][1])
        rows[n] = r
        assert r.timestamp == n
        assert r.key == (b"key %d" % (n % 50) if n % 2 else None)
        assert r.value == (b"%d" % n if n % 7 else None)
        if n % 5 == 0:
            assert r.partition == n % 3
    assert sorted(rows) == list(range(count))


@pytest.mark.local_cluster(not_in_containers="reads the broker's files")
@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_send_batch(kafka_cluster, topic, create_topic, read_topic, codec):
    """The log has the caller's batches as they were made, between those of other records."""
    await create_topic(topic, 1)
    async with Producer(kafka_cluster.bootstrap, compression_type=codec, linger_ms=50) as producer:
        deliveries, expected, batches = [], [], []
        for n in range(20):
            await producer.send(topic, b"before")
            batch = producer.create_batch()
            for part in range(n + 1):
                key, headers = b"%d" % n, [("part", b"%d" % part)]
                assert batch.append(b"%d" % part * 50, key, timestamp_ms=part, headers=headers)
            deliveries.append(await producer.send_batch(batch, topic))
            expected += [(b"before", None, ())]
            expected += [(b"%d" % p * 50, b"%d" % n, (("part", b"%d" % p),)) for p in range(n + 1)]
            batches += [1, n + 1]
        placed = [await delivery for delivery in deliveries]
        leader = (await producer.partitions_for(topic))[0].leader
    read = await read_topic(topic)
    assert [(r.value, r.key, r.headers) for r in read] == expected
    for n, first in enumerate(placed):
        assert (first.partition, first.timestamp) == (0, 0)
        own = read[first.offset : first.offset + n + 1]
        assert [(r.offset, r.timestamp) for r in own] == [
            (first.offset + part, part) for part in range(n + 1)
        ]
    (segment,) = (kafka_cluster.log_dir(leader) / f"{topic}-0").glob("*.log")
    dump = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--files", str(segment)
    )
    assert dump.returncode == 0
    assert [
        int(count) for count in re.findall(r"^baseOffset: .* count: (\d+)", dump.stdout, re.M)
    ] == (batches)
    assert set(re.findall(r"^baseOffset: .* compresscodec: (\w+)", dump.stdout, re.M)) >= {codec}


async def test_a_rejected_record_fails_its_batch(kafka_cluster, topic, create_topic, read_topic):
    """A compacted topic refuses records without key, which the broker names."""
    await create_topic(topic, 1, config={"cleanup.policy": "compact"})
    async with Producer(kafka_cluster.bootstrap) as producer:
        await producer.send(topic, b"before", key=b"k")
        batch = producer.create_batch()
        for n in range(5):
            batch.append(b"%d" % n, None if n in (1, 3) else b"k")
        delivery = await producer.send_batch(batch, topic)
        await producer.send(topic, b"after", key=b"k")
        with pytest.raises(
            BrokerError, match=r"5 records .* rejected for record 1.*, record 3"
        ) as e:
            await delivery
        assert e.value.code == 87
    assert [r.value for r in await read_topic(topic)] == [b"before", b"after"]
