"""The producer against real brokers, read back by another client's consumer."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from kafkaclient import Producer, RecordMetadata
from kafkaclient.errors import (
    BootstrapError,
    InvalidRecordError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerStateError,
    RecordTooLargeError,
)

pytestmark = pytest.mark.timeout(180)


async def test_a_record_arrives_with_all_it_was_given(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 3)
    headers = [("a", b"1"), ("a", b"2"), ("ünïcode", "ü".encode())]
    async with Producer(kafka_cluster.bootstrap) as producer:
        metadata = await producer.send_and_wait(
            topic, b"value", key=b"UA", headers=headers, timestamp_ms=1_500_000_000_000, partition=2
        )
    assert metadata == RecordMetadata(topic, 2, 0, 1_500_000_000_000, 0, 0)
    assert await read_topic(topic) == [
        (2, 0, 1_500_000_000_000, b"UA", b"value", tuple(headers)),
    ]


async def test_the_metadata_tell_whose_timestamp_it_is(kafka_cluster, topic, create_topic):
    await create_topic(topic, 1, config={"message.timestamp.type": "LogAppendTime"})
    async with Producer(kafka_cluster.bootstrap) as producer:
        before = time.time() * 1000
        metadata = await producer.send_and_wait(topic, b"v", timestamp_ms=1_500_000_000_000)
    assert metadata.timestamp == pytest.approx(before, abs=60_000)
    assert (metadata.timestamp_type, metadata.log_start_offset) == (1, 0)


async def test_no_value_no_key_and_empty_ones_are_different_things(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 1)
    async with Producer(kafka_cluster.bootstrap) as producer:
        for value, key in ((None, b"k"), (b"", None), (b"v", b"")):
            await producer.send(topic, value, key=key)
    read = await read_topic(topic)
    assert [(r.value, r.key) for r in read] == [(None, b"k"), (b"", None), (b"v", b"")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read_by_others(kafka_cluster, topic, read_topic, create_topic, codec):
    """In batches of the usual size, and in some of a megabyte, which are compressed aside."""
    await create_topic(topic, 2)
    values = [b"%05d " % n * 20 for n in range(16_000)]
    options = {"bootstrap.servers": kafka_cluster.bootstrap, "compression.type": codec}
    async with Producer(options) as producer:
        deliveries = [producer.send_nowait(topic, v, key=v[:1]) for v in values[:3000]]
        await producer.flush()
    async with Producer(options, batch_size=700_000, linger_ms=50) as producer:
        deliveries += [producer.send_nowait(topic, v) for v in values[3000:]]
        await producer.flush()
        assert producer.metrics().producer["records-per-request-avg"] > 3000
    places = [await d for d in deliveries]
    read = await read_topic(topic)
    assert {(r.partition, r.offset): r.value for r in read} == {
        (p.partition, p.offset): v for p, v in zip(places, values, strict=True)
    }


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks(kafka_cluster, topic, create_topic, read_topic, acks):
    await create_topic(topic, 1)
    async with Producer(kafka_cluster.bootstrap, acks=acks, enable_idempotence=False) as producer:
        places = [await producer.send_and_wait(topic, b"%d" % n) for n in range(10)]
    assert [p.offset for p in places] == ([-1] * 10 if acks == 0 else list(range(10)))
    async with asyncio.timeout(30):
        while len(read := await read_topic(topic)) < 10:
            await asyncio.sleep(0.1)
    assert [r.value for r in read] == [b"%d" % n for n in range(10)]


async def test_an_unknown_topic_is_created_also_for_send_nowait(kafka_cluster, topic, read_topic):
    async with Producer(kafka_cluster.bootstrap) as producer:
        deliveries = [producer.send_nowait(topic, b"%d" % n, key=b"k") for n in range(100)]
        places = await asyncio.gather(*deliveries)
        assert len(await producer.partitions_for(topic)) == 6
    assert [p.offset for p in places] == list(range(100))
    assert [r.value for r in await read_topic(topic)] == [b"%d" % n for n in range(100)]


@pytest.mark.local_cluster
async def test_keys_go_where_javas_producer_puts_them(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 7)
    keys = [f"key-{n}-{'ü' * (n % 9)}" for n in range(60)]
    async with Producer(kafka_cluster.bootstrap) as producer:
        deliveries = [producer.send_nowait(topic, b"ours", key.encode()) for key in keys]
        ours = [(await delivery).partition for delivery in deliveries]
    result = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka_cluster.bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        stdin="".join(f"{key}:java\n" for key in keys).encode(),
    )
    assert result.returncode == 0, result.stderr
    javas = {r.key.decode(): r.partition for r in await read_topic(topic) if r.value == b"java"}
    assert javas == dict(zip(keys, ours, strict=True))


async def test_a_batch_too_large_for_its_topic_is_split(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 1, config={"max.message.bytes": "4000"})
    async with Producer(kafka_cluster.bootstrap, batch_size=65536, linger_ms=50) as producer:
        deliveries = [producer.send_nowait(topic, b"%04d" % n + b"x" * 996) for n in range(20)]
        too_large = producer.send_nowait(topic, b"x" * 8000)
        deliveries += [producer.send_nowait(topic, b"%04d" % n + b"y" * 996) for n in range(20, 40)]
        places = [await d for d in deliveries]
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes") as caught:
            await too_large
        assert caught.value.code == 10
        assert producer.metrics().producer["batch-split-total"] > 0
    assert [p.offset for p in places] == list(range(40))
    assert [r.value[:4] for r in await read_topic(topic)] == [b"%04d" % n for n in range(40)]


@pytest.mark.local_cluster
async def test_dump_log_segments_accepts_what_was_written(kafka_cluster, topic, create_topic):
    """Java reads it all, also frames of several blocks."""
    await create_topic(topic, 1)
    for codec in ("none", "zstd", "lz4", "snappy", "gzip"):
        options = {"compression_type": codec, "max_request_size": 2_000_000}
        async with Producer(kafka_cluster.bootstrap, **options) as producer:
            if codec != "none":
                await producer.send(topic, b"large" * 300_000, b"key", headers={"h": b"x"})
            for n in range(500):
                await producer.send(topic, b"value %d" % n * 5, b"key", headers={"h": b"x"})
    leader = None
    for broker in kafka_cluster.brokers:
        segment = kafka_cluster.log_dir(broker) / f"{topic}-0" / "00000000000000000000.log"
        leader = segment if segment.exists() else leader
    assert leader is not None
    dump = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(leader)
    )
    assert dump.returncode == 0, dump.stderr
    batches = re.findall(r"baseOffset: .* isvalid: (\w+)", dump.stdout)
    records = re.findall(r"\| offset: \d+ .* headerKeys: \[h\]", dump.stdout)
    assert batches, dump.stdout[:2000]
    assert set(batches) == {"true"}
    assert len(records) == 2504


# --- bad input ---------------------------------------------------------------------------------


async def test_an_unknown_topic_without_auto_creation_ends_by_max_block(kafka_cluster, topic):
    async with Producer(
        kafka_cluster.bootstrap, allow_auto_create_topics=False, max_block_ms=1500
    ) as producer:
        began = time.monotonic()
        with pytest.raises(MetadataTimeoutError, match=topic):
            await producer.send(topic, b"v")
        parked = producer.send_nowait(topic, b"v")
        with pytest.raises(MetadataTimeoutError, match=topic):
            await parked
        assert 2.5 < time.monotonic() - began < 20


async def test_bad_records_are_refused_at_once_and_harm_no_other(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 2)
    async with Producer(kafka_cluster.bootstrap, max_request_size=2000) as producer:
        good = [producer.send_nowait(topic, b"good", partition=0)]
        for send in (producer.send, producer.send_nowait):
            for error, arguments in (
                (InvalidRecordError, {"value": "text"}),
                (InvalidRecordError, {"value": b"", "key": 7}),
                (InvalidRecordError, {"value": b"", "headers": [("k", "text")]}),
                (InvalidRecordError, {"value": b"", "timestamp_ms": -5}),
                (InvalidRecordError, {"value": b"", "partition": -1}),
                (PartitionOutOfRangeError, {"value": b"", "partition": 2}),
                (RecordTooLargeError, {"value": bytes(2001)}),
            ):
                with pytest.raises(error):
                    await send(topic, **arguments)
            good.append(await producer.send(topic, b"good", partition=0))
        for delivery in good:
            await delivery
    assert [r.value for r in await read_topic(topic)] == [b"good"] * 3


async def test_use_before_start_and_after_stop(kafka_cluster, topic):
    producer = Producer(kafka_cluster.bootstrap)
    with pytest.raises(ProducerStateError, match="has not been started"):
        producer.send_nowait(topic, b"v")
    await producer.start()
    with pytest.raises(ProducerStateError):
        await producer.start()
    assert await producer.stop() == 0
    assert await producer.stop() == 0
    with pytest.raises(ProducerClosedError, match="is stopped"):
        await producer.send(topic, b"v")


async def test_an_unreachable_bootstrap_server_is_told_by_max_block():
    began = time.monotonic()
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1\b"):
        await Producer("127.0.0.1:1", max_block_ms=700).start()
    assert time.monotonic() - began < 8, "not by bootstrap.connect.timeout.ms, after 10 s"
