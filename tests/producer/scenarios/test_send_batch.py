"""``send_batch`` through whole producers: one record batch, written as a whole or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BrokerError,
    BufferFullError,
    DeliveryTimeoutError,
    InvalidRecordError,
    MetadataTimeoutError,
    PartitionerError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerStateError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, CLOSE_ANSWER, DROP, DROP_ANSWER, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import CompressionType
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from kafkaclient.producer.bulk.batch_builder import RecordBatchBuilder
    from kafkaclient.producer.producer import Producer
    from tests.producer.support import Look, StartProducer, Values


def batch_of(
    producer: Producer, *values: bytes, batch_size: int | None = None
) -> RecordBatchBuilder:
    batch = producer.create_batch(batch_size=batch_size)
    for value in values:
        assert batch.append(value)
    return batch


def sizes(fake: FakeCluster, partition: int = 0) -> list[int]:
    """The number of records of each batch in the log."""
    return [header.record_count for header in fake.batches("t", partition)]


# --- what arrives -----------------------------------------------------------------------------


@virtual_time
async def test_each_record_has_what_it_was_given(producing: StartProducer) -> None:
    fake = one_topic(3, brokers=1)
    async with producing(fake, wall_clock=lambda: 12.5) as producer:
        batch = producer.create_batch()
        batch.append(b"v", b"k", timestamp_ms=77, headers={"a": b"1"})
        batch.append(None, b"l", headers=[("b", None), ("b", b"2")])
        batch.append(b"w", timestamp_ms=3)
        metadata = await (await producer.send_batch(batch, "t", partition=2))
        assert metadata[:4] == ("t", 2, 0, 77)
        assert batch.closed
    assert [(r.value, r.key, r.timestamp, r.headers) for r in fake.log("t", 2)] == [
        (b"v", b"k", 77, (("a", b"1"),)),
        (None, b"l", 12_500, (("b", None), ("b", b"2"))),
        (b"w", None, 3, ()),
    ]
    (header,) = fake.batches("t", 2)
    assert (header.record_count, header.max_timestamp) == (3, 12_500)


@virtual_time
async def test_records_before_are_before_and_later_ones_after(
    producing: StartProducer, values: Values
) -> None:
    """The open batch of the partition is closed; nothing is added to the batch."""
    fake = one_topic(2, brokers=1)
    async with producing(fake, linger_ms=1000, partitioner="kip794") as producer:
        await producer.send("t", b"1", partition=0)
        producer.send_nowait("t", b"2", partition=0)
        await producer.send("t", b"elsewhere", partition=1)
        delivery = await producer.send_batch(batch_of(producer, b"3", b"4"), "t", partition=0)
        producer.send_nowait("t", b"5", partition=0)
        await producer.send_many("t", [b"6", b"7"], partition=0)
        other = await producer.send_batch(batch_of(producer, b"8"), "t", partition=0)
        assert [(await d).offset for d in (delivery, other)] == [2, 7]
        assert now() < 0.5  # a full batch does not linger, nor do those before it
    assert values(fake, "t") == [b"%d" % n for n in range(1, 9)]
    assert sizes(fake) == [2, 2, 3, 1]


@pytest.mark.parametrize("partitioner", ["late", "kip794", "sticky", "round-robin", "random"])
@virtual_time
async def test_without_partition_it_goes_to_one(partitioner: str, producing: StartProducer) -> None:
    fake, n = one_topic(4, brokers=2), 0
    async with producing(fake, partitioner=partitioner, linger_ms=20) as producer:
        deliveries = []
        for n in range(60):
            await producer.send("t", b"single %d" % n)
            batch = producer.create_batch()
            for part in range(3):  # the keys choose nothing
                batch.append(b"%d.%d" % (n, part), b"key %d" % part)
            deliveries.append(await producer.send_batch(batch, "t"))
            if n % 7 == 0:
                await asyncio.sleep(0.005)
        placed = [await delivery for delivery in deliveries]
    for n, metadata in enumerate(placed):
        log = fake.log("t", metadata.partition)
        three = log[metadata.offset : metadata.offset + 3]
        assert [r.value for r in three] == [b"%d.%d" % (n, part) for part in range(3)]
        headers = fake.batches("t", metadata.partition)
        assert [h.record_count for h in headers if h.base_offset == metadata.offset] == [3]
    if partitioner != "kip794":  # it stays with a partition for batch.size bytes
        assert len({metadata.partition for metadata in placed}) > 1
    assert sum(len(fake.log("t", p)) for p in range(4)) == 240


@virtual_time
async def test_a_custom_partitioner_is_asked_once_for_a_batch(producing: StartProducer) -> None:
    asked: list[Any] = []

    class Partitioner:
        def partition(self, topic: str, key: Any, value: Any, *_: object) -> int:
            asked.append((topic, key, value))
            if len(asked) > 1:
                raise ValueError("no")
            return 2

    fake = one_topic(3, brokers=1)
    async with producing(fake, partitioner=Partitioner()) as producer:
        batch = producer.create_batch()
        batch.append(b"v", b"k")
        assert (await (await producer.send_batch(batch, "t"))).partition == 2
        assert asked == [("t", None, None)]
        refused = batch_of(producer, b"w", b"x")
        with pytest.raises(PartitionerError):
            await producer.send_batch(refused, "t")
        assert (await (await producer.send_batch(refused, "t", partition=1))).partition == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd", "snappy"])
@virtual_time
async def test_the_sending_producer_compresses(
    codec: str, producing: StartProducer, values: Values
) -> None:
    """A small batch in the sender's pass, and a large one in a thread."""
    fake = one_topic(1, brokers=1)
    async with producing(fake) as maker, producing(fake, compression_type=codec) as producer:
        small = batch_of(maker, *[b"%0100d" % n for n in range(20)])
        large = batch_of(maker, *[b"%0100d" % n for n in range(4000)], batch_size=10**6)
        first = await producer.send_batch(small, "t")
        assert (await (await producer.send_batch(large, "t"))).offset == 20
        assert (await first).offset == 0
    assert sizes(fake) == [20, 4000]
    assert {CompressionType(h.attributes & 7).name.lower() for h in fake.batches("t", 0)} == {codec}
    assert values(fake, "t")[20:] == [b"%0100d" % n for n in range(4000)]


@virtual_time
async def test_serializers_are_those_of_the_producer_that_made_it(
    producing: StartProducer, values: Values
) -> None:
    fake = one_topic(1, brokers=1)
    async with (
        producing(fake, value_serializer=str.encode) as maker,
        producing(fake, value_serializer=lambda _: b"wrong") as producer,
    ):
        batch = maker.create_batch()
        batch.append("text")
        await (await producer.send_batch(batch, "t"))
    assert values(fake, "t") == [b"text"]


@pytest.mark.parametrize("acks", [0, 1])
@virtual_time
async def test_acks(acks: int, producing: StartProducer, values: Values) -> None:
    fake = one_topic(1, brokers=1)
    async with producing(fake, acks=acks, enable_idempotence=False) as producer:
        metadata = await (await producer.send_batch(batch_of(producer, b"1", b"2"), "t"))
        assert metadata.offset == (0 if acks else -1)
    assert values(fake, "t") == [b"1", b"2"]


@virtual_time
async def test_metrics_count_its_records(producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        await (await producer.send_batch(batch_of(producer, b"1", b"2", b"3"), "t"))
        metrics = producer.metrics().producer
        assert metrics["record-send-total"] == 3
        fake.fail_produce("t", 0, 29)
        with pytest.raises(BrokerError):
            await (await producer.send_batch(batch_of(producer, b"4", b"5"), "t"))
        assert producer.metrics().producer["record-error-total"] == 2


# --- what is refused, and what waits ------------------------------------------------------------


@virtual_time
async def test_a_batch_that_its_own_serializer_closes(producing: StartProducer) -> None:
    box: list[Any] = []

    def close(value: str) -> bytes:
        if value == "close":
            box[0].close()
        return value.encode()

    def headers() -> Any:
        box[0].close()
        yield "name", b"value"

    fake = FakeCluster(1)
    fake.create_topic("t", 1)
    async with producing(fake, value_serializer=close) as producer:
        for options in ({"value": "close"}, {"value": "v", "headers": headers()}):
            box[:] = [producer.create_batch()]
            box[0].append("first")
            with pytest.raises(ProducerStateError, match="the batch is closed"):
                box[0].append(**options)
            assert box[0].record_count == 1


@virtual_time
async def test_what_is_not_accepted(producing: StartProducer) -> None:
    fake = FakeCluster(1, auto_create_topics=False)
    fake.create_topic("t", 1)
    async with producing(fake, max_block_ms=500) as producer:
        with pytest.raises(InvalidRecordError, match="the batch has no records"):
            await producer.send_batch(producer.create_batch(), "t")
        with pytest.raises(TypeError, match="create_batch"):
            await producer.send_batch([b"v"], "t")  # type: ignore[arg-type]
        batch = batch_of(producer, b"v")
        with pytest.raises(PartitionOutOfRangeError):
            await producer.send_batch(batch, "t", partition=7)
        with pytest.raises(MetadataTimeoutError):
            await producer.send_batch(batch, "unknown")
        assert batch.closed
        await (await producer.send_batch(batch, "t"))  # it was not sent before
        with pytest.raises(ProducerStateError, match="sent already"):
            await producer.send_batch(batch, "t")
    with pytest.raises(ProducerClosedError):
        await producer.send_batch(batch, "t")
    assert sizes(fake) == [1]


@virtual_time
async def test_a_batch_that_waits_is_not_sent_twice(
    producing: StartProducer, values: Values
) -> None:
    """It waits for metadata, in the order of the calls. A canceled call gives it back."""
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        batch, given_up = batch_of(producer, b"2", b"3"), batch_of(producer, b"5", b"6")
        producer.send_nowait("t", b"1")
        calls = [asyncio.create_task(producer.send_batch(b, "t")) for b in (batch, given_up)]
        producer.send_nowait("t", b"4")
        await asyncio.sleep(0)
        with pytest.raises(ProducerStateError, match="sent already"):
            await producer.send_batch(batch, "t")
        calls[1].cancel()
        await (await calls[0])
        await producer.flush()
        await (await producer.send_batch(given_up, "t"))
    assert values(fake, "t") == [b"1", b"4", b"2", b"3", b"5", b"6"]


@virtual_time
async def test_buffer_memory(producing: StartProducer) -> None:
    """A batch is charged with its records, and waits for space up to max.block.ms."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, buffer_memory=10_000, max_block_ms=1000) as producer:
        await producer.send_and_wait("t", b"first")
        buffer_pool = inspect(producer).accumulator.buffer_pool
        fake.stall_broker(0)
        batches = [batch_of(producer, *[bytes(95)] * 60) for _ in range(3)]
        delivery = await producer.send_batch(batches[0], "t")
        assert buffer_pool.total - buffer_pool.available == batches[0].size > 6000
        with pytest.raises(BufferFullError):
            await producer.send_batch(batches[1], "t")
        waiting = asyncio.create_task(producer.send_batch(batches[2], "t"))
        await asyncio.sleep(0.5)
        fake.resume_broker(0)
        assert [(await delivery).offset, (await (await waiting)).offset] == [1, 61]
        assert (await (await producer.send_batch(batches[1], "t"))).offset == 121
    assert sizes(fake) == [1, 60, 60, 60]


@virtual_time
async def test_batches_wait_for_no_other_topic(producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first")
        lost = asyncio.create_task(producer.send_batch(batch_of(producer, b"v"), "unknown"))
        await asyncio.sleep(0)
        assert (await (await producer.send_batch(batch_of(producer, b"v"), "t"))).offset == 1
        lost.cancel()


# --- faults -------------------------------------------------------------------------------------

FAULTS = [CLOSE, CLOSE_ANSWER, DROP, DROP_ANSWER]


@pytest.mark.parametrize("fault", FAULTS, ids=["close", "close answer", "drop", "drop answer"])
@virtual_time
async def test_a_lost_request_or_answer(
    fault: Any, producing: StartProducer, values: Values
) -> None:
    """It is sent again with its sequence: the log has it once, as one batch."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, request_timeout_ms=1000) as producer:
        await producer.send_and_wait("t", b"0")
        fake.control(ApiKey.PRODUCE, fault)
        deliveries = [
            await producer.send("t", b"1"),
            await producer.send_batch(batch_of(producer, b"2", b"3", b"4"), "t"),
            await producer.send("t", b"5"),
        ]
        assert [(await d).offset for d in deliveries] == [1, 2, 5]
    assert values(fake, "t") == [b"%d" % n for n in range(6)]
    assert sizes(fake) == [1, 1, 3, 1]
    assert [h.base_sequence for h in fake.batches("t", 0)] == [0, 1, 2, 5]


@pytest.mark.parametrize("partition", [0, None])
@virtual_time
async def test_the_leader_moves(
    partition: int | None, producing: StartProducer, values: Values
) -> None:
    fake = one_topic(1, brokers=2, replication_factor=2)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"0")
        fake.move_leader("t", 0, 1)
        batch = batch_of(producer, b"1", b"2")
        delivery = await producer.send_batch(batch, "t", partition=partition)
        await producer.send("t", b"3", partition=partition)
        assert (await delivery).offset == 1
    assert values(fake, "t") == [b"0", b"1", b"2", b"3"]
    assert sizes(fake) == [1, 2, 1]


@virtual_time
async def test_it_expires_as_a_whole(producing: StartProducer) -> None:
    fake, unseen = one_topic(1, brokers=1), []
    options = {"delivery_timeout_ms": 5000, "request_timeout_ms": 2000, "linger_ms": 0}
    async with producing(fake, on_error=unseen.append, **options) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        delivery = await producer.send_batch(batch_of(producer, b"1", b"2", b"3"), "t")
        dropped = await producer.send_batch(batch_of(producer, b"4", b"5"), "t")
        kept = await producer.send_batch(batch_of(producer, *[b"x"] * 10), "t")
        del dropped
        with pytest.raises(DeliveryTimeoutError, match=r"^3 records") as caught:
            await delivery
        assert caught.value.maybe_written
        await asyncio.sleep(1)
        assert sum(failure.records for failure in unseen) == 2
        assert producer.metrics().producer["record-error-total"] == 15
        assert isinstance(kept.exception(), DeliveryTimeoutError)
        fake.resume_broker(0)
        kept = await producer.send_batch(batch_of(producer, *[b"x"] * 10), "t")
        await kept
        del kept
        await asyncio.sleep(1)
    assert sum(failure.records for failure in unseen) == 2


@virtual_time
async def test_a_failure_that_is_never_read_counts_all_records(producing: StartProducer) -> None:
    fake, unseen = one_topic(1, brokers=1), []
    async with producing(fake, on_error=unseen.append) as producer:
        fake.fail_produce("t", 0, 29)
        delivery = await producer.send_batch(batch_of(producer, b"1", b"2", b"3"), "t")
        await producer.flush()
        assert not unseen
        del delivery
        await asyncio.sleep(1)
    assert sum(failure.records for failure in unseen) == 3


@virtual_time
async def test_on_delivery_is_called_once(producing: StartProducer) -> None:
    seen: list[Any] = []
    fake = one_topic(1, brokers=1)
    async with producing(fake, on_delivery=seen.append) as producer:
        delivery = await producer.send_batch(batch_of(producer, b"1", b"2", b"3"), "t")
        await producer.flush()
        await asyncio.sleep(0)
        assert seen == [delivery]
        assert delivery.result().offset == 0


@virtual_time
async def test_too_large_for_the_topic(producing: StartProducer, values: Values) -> None:
    """It is not split: none of its records is written, and the sequence goes on behind it."""
    fake = one_topic(1, brokers=1, max_message_bytes=1024)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")
        deliveries = [
            await producer.send("t", b"1"),
            await producer.send_batch(batch_of(producer, *[bytes(95)] * 40), "t"),
            await producer.send("t", b"2"),
        ]
        with pytest.raises(
            RecordTooLargeError, match=r"40 records .* max\.message\.bytes"
        ) as caught:
            await deliveries[1]
        assert not caught.value.maybe_written
        assert [(await d).offset for d in (deliveries[0], deliveries[2])] == [1, 2]
        assert producer.metrics().producer["batch-split-total"] == 0
    assert values(fake, "t") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("rejected", [[0], [2], [0, 1, 2, 3, 4]])
@virtual_time
async def test_a_rejected_record_fails_the_whole_batch(
    rejected: list[int], producing: StartProducer, values: Values
) -> None:
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        errors = [(n, f"reason {n}" if n % 2 else None) for n in rejected]
        fake.fail_produce("t", 0, 87, record_errors=errors, message="invalid")
        delivery = await producer.send_batch(batch_of(producer, *[b"v"] * 5), "t")
        after = await producer.send("t", b"after")
        with pytest.raises(
            BrokerError, match=rf"5 records .* rejected for record {rejected[0]}"
        ) as e:
            await delivery
        assert e.value.code == 87
        assert ("record 1 (reason 1)" in str(e.value)) == (1 in rejected)
        assert ("and 2 more" in str(e.value)) == (len(rejected) == 5)
        assert (await after).offset == 0
        assert producer.metrics().producer["record-error-total"] == 5
    assert values(fake, "t") == [b"after"]


@pytest.mark.parametrize("code", [45, 47, 59])
@virtual_time
async def test_a_sequence_error_is_repaired(
    code: int, producing: StartProducer, values: Values
) -> None:
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"0")
        fake.fail_produce("t", 0, code)
        delivery = await producer.send_batch(batch_of(producer, b"1", b"2"), "t")
        await producer.send("t", b"3")
        assert (await delivery).offset == 1
    assert values(fake, "t") == [b"0", b"1", b"2", b"3"]
    assert sizes(fake) == [1, 2, 1]


@virtual_time
async def test_stop_fails_a_batch_that_cannot_be_sent(producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        delivery = await producer.send_batch(batch_of(producer, b"1", b"2", b"3"), "t")
        assert await producer.stop(timeout=0.1) == 3
        with pytest.raises(ProducerClosedError):
            await delivery
        fake.resume_broker(0)


# --- transactions -------------------------------------------------------------------------------


@virtual_time
async def test_a_transaction_commits_and_aborts_it(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake) as producer:
        batch = batch_of(producer, b"1", b"2", b"3")
        with pytest.raises(ProducerStateError):
            await producer.send_batch(batch, "t", partition=1)
        async with producer.transaction():
            await producer.send("t", b"0", partition=1)
            await producer.send_batch(batch, "t", partition=1)
        assert look.committed(fake) == [b"0", b"1", b"2", b"3"]
        await producer.begin_transaction()
        for n in range(5):
            await producer.send_batch(batch_of(producer, b"%d" % n, b"aborted"), "t")
        lost = await producer.send_batch(batch_of(producer, b"lost"), "t")
        await producer.abort_transaction()
        assert lost.done()
        assert isinstance(lost.exception(), TransactionAbortedError | None)
        async with producer.transaction():
            await producer.send_batch(batch_of(producer, b"4", b"5"), "t")
    assert look.committed(fake) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert look.all_ended(fake)


@virtual_time
async def test_a_rejected_batch_fails_the_transaction(
    fake: FakeCluster, transacting: StartProducer, look: Look
) -> None:
    async with transacting(fake) as producer:
        fake.fail_produce("t", 1, 87, record_errors=[(1, "bad")])
        await producer.begin_transaction()
        await producer.send_batch(batch_of(producer, b"1", b"2"), "t", partition=1)
        with pytest.raises(TransactionAbortableError, match="rejected for record 1"):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert look.committed(fake) == []
