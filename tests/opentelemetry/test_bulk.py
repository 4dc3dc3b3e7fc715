"""One span for each call with many records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkaclient.errors import (
    BufferFullError,
    BulkDeliveryError,
    InvalidRecordError,
    ProducerStateError,
)
from kafkaclient.testing.clock import virtual_time
from tests.opentelemetry.support import header, records
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from kafkaclient import UnseenFailure
    from kafkaclient.testing.fake import FakeCluster
    from tests.opentelemetry.support import Seen

COUNT = "messaging.batch.message_count"
OFFSET = "messaging.kafka.offset"
PARTITION = "messaging.destination.partition.id"


@virtual_time
async def test_send_many_has_one_span_and_its_context_in_each_record(
    fake: FakeCluster, traced: Seen
) -> None:
    async with start_producer(fake) as producer:
        await (await producer.send_many("t", [b"0"], partition=3))
        keys = [b"%d" % n for n in range(100)]
        own = [[("own", b"1")], None] * 50
        delivery = await producer.send_many("t", keys, keys=keys, record_headers=own)
        assert len(traced.spans) == 1  # the second call's records have no outcome yet
        await delivery
        await (await producer.send_many("t", []))
    first, second, empty = traced.facts()
    assert (first[COUNT], first[PARTITION], first[OFFSET]) == (1, "3", 0)
    assert first["server.address"] == f"fake-{fake.leader('t', 3)}"
    assert second[COUNT] == 100
    assert PARTITION not in second
    assert empty[COUNT] == 0
    contexts = [traceparent for traceparent, span in traced.by_traceparent().items()]
    found = [(record.value, header(record)) for _, record in records(fake)]
    assert {context for _, context in found} == set(contexts[:2])
    assert sum(header(record, "own") == "1" for _, record in records(fake)) == 50


@virtual_time
async def test_send_arrow(fake: FakeCluster, traced: Seen) -> None:
    table = pa.table({"value": pa.chunked_array([["a", "b"], ["c"]])})
    kind = pa.map_(pa.string(), pa.binary())
    with_headers = table.append_column("headers", pa.array([[("own", b"1")]] * 3, kind))
    async with start_producer(fake) as producer:
        await (await producer.send_arrow("t", table, partition=1))
        await (await producer.send_arrow("t", with_headers, partition=2))
        with pytest.raises(InvalidRecordError):
            await producer.send_arrow("t", "no table")
    one, two, failed = traced.facts()
    assert (one[COUNT], one[PARTITION], one[OFFSET]) == (3, "1", 0)
    assert (two[COUNT], two[PARTITION]) == (3, "2")
    assert (failed["error.type"], failed[COUNT]) == ("InvalidRecordError", 0)
    expected = next(iter(traced.by_traceparent()))
    assert [header(record) for record in fake.log("t", 1)] == [expected] * 3
    assert [record.value for record in fake.log("t", 1)] == [b"a", b"b", b"c"]
    assert [record.headers for record in fake.log("t", 2)] == [(("own", b"1"),)] * 3


@virtual_time
async def test_send_batch(fake: FakeCluster, traced: Seen) -> None:
    async with start_producer(fake) as producer:
        batch = producer.create_batch()
        batch.append(b"1", headers={"own": b"1"})
        batch.append(b"2")
        await (await producer.send_batch(batch, "t", partition=4))
        with pytest.raises(ProducerStateError):
            await producer.send_batch(batch, "t")
    sent, failed = traced.facts()
    assert (sent[COUNT], sent[PARTITION], sent[OFFSET]) == (2, "4", 0)
    assert failed["error.type"] == "ProducerStateError"


@virtual_time
async def test_a_call_whose_records_fail_in_part(fake: FakeCluster, traced: Seen) -> None:
    reported: list[UnseenFailure] = []
    fake.fail_produce("t", 0, 29)
    async with start_producer(fake, on_error=reported.append) as producer:
        table = pa.table({"value": ["a", "b", "c"], "partition": [0, 1, 0]})
        delivery = await producer.send_arrow("t", table)
        await producer.flush()
        with pytest.raises(BulkDeliveryError):
            await delivery
        fake.fail_produce("t", 0, 29)
        await producer.send_many("t", [b"nobody looks"], partition=0)
    fact, unseen = traced.facts()
    assert fact["error.type"] == "TOPIC_AUTHORIZATION_FAILED"
    assert (fact[COUNT], fact["kafkaclient.failed_records"]) == (3, 2)
    assert unseen["kafkaclient.failed_records"] == 1
    assert [failure.records for failure in reported] == [1]


@virtual_time
async def test_a_call_that_breaks_off(fake: FakeCluster, traced: Seen) -> None:
    def chunks() -> Any:
        yield pa.record_batch({"value": ["a"]})
        yield pa.record_batch({"value": ["x" * 5000]})

    schema = pa.schema([("value", pa.string())])
    async with start_producer(fake, max_request_size=2000) as producer:
        reader = pa.RecordBatchReader.from_batches(schema, chunks())
        with pytest.raises(InvalidRecordError) as caught:
            await producer.send_arrow("t", reader)
        assert (await caught.value.delivery).records == 1
    (fact,) = traced.facts()
    assert (fact["error.type"], fact[COUNT]) == ("RecordTooLargeError", 1)


@virtual_time
async def test_a_call_that_is_accepted_in_part_waits_for_that_part(
    fake: FakeCluster, traced: Seen
) -> None:
    fake.fail_produce("t", 0, 29)
    options: dict[str, Any] = {"buffer_memory": 40_000, "batch_size": 5000, "max_block_ms": 100}
    async with start_producer(fake, **options) as producer:
        await producer.partitions_for("t")
        fake.round_trip_s = 1.0
        values = [b"z" * 3000] * 30
        for _ in range(2):
            with pytest.raises(BufferFullError) as caught:
                await producer.send_many("t", values, partition=0)
            appended = caught.value.delivery
            assert 0 < appended.records < 30
            ended = len(traced.spans)
            await producer.flush()
            assert len(traced.spans) == ended + 1
    first, second = traced.facts()
    in_part = {COUNT: 30, "error.type": "BufferFullError", "kafkaclient.maybe_written": False}
    assert in_part.items() <= first.items()
    assert in_part.items() <= second.items()
    assert OFFSET not in second
    assert second["kafkaclient.failed_records"] == 30 - appended.records
    assert first["kafkaclient.failed_records"] > second["kafkaclient.failed_records"]


@virtual_time
async def test_a_call_that_is_refused_or_cancelled(fake: FakeCluster, traced: Seen) -> None:
    fake.round_trip_s = 1.0
    options: dict[str, Any] = {"buffer_memory": 40_000, "batch_size": 5000}
    async with start_producer(fake, max_request_size=4000, **options) as producer:
        await producer.partitions_for("t")
        with pytest.raises(InvalidRecordError):
            await producer.send_many("t", [b"", b"x" * 5000])
        with pytest.raises(InvalidRecordError):
            await producer.send_arrow("t", pa.table({"value": ["", "x" * 5000]}))
        sending = asyncio.create_task(producer.send_many("t", [b"z" * 3000] * 30))
        await asyncio.sleep(0.1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    many, arrow, cancelled = traced.facts()
    assert (many[COUNT], many["kafkaclient.failed_records"]) == (2, 2)
    assert many["kafkaclient.maybe_written"] is False
    assert (arrow[COUNT], arrow["error.type"]) == (2, "RecordTooLargeError")
    assert (cancelled[COUNT], cancelled["error.type"]) == (30, "CancelledError")
    assert cancelled["kafkaclient.maybe_written"] is True
    assert records(fake)  # indeed


@virtual_time
async def test_arguments_that_send_many_refuses_stay_refused(
    fake: FakeCluster, traced: Seen
) -> None:
    async with start_producer(fake) as producer:
        for wrong in ("ab", 7, [3, 4], [[("h",)], None]):
            with pytest.raises((InvalidRecordError, TypeError)) as with_span:
                await producer.send_many("t", [b"1", b"2"], record_headers=wrong)  # type: ignore[arg-type]
            from kafkaclient.opentelemetry.bulk import _plain_send_many  # noqa: PLC0415

            with pytest.raises((InvalidRecordError, TypeError)) as without:
                await _plain_send_many(producer, "t", [b"1", b"2"], record_headers=wrong)  # type: ignore[arg-type]
            assert type(with_span.value) is type(without.value), wrong
    assert not records(fake)
    assert len(traced.spans) == 4
