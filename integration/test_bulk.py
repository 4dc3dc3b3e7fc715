"""Records in bulk against real brokers, read back by another client's consumer."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafkaclient import Producer
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
