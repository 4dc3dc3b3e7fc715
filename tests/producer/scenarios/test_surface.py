"""What an application sees: options, acks, hooks, metrics, repr.

Ids such as ``P1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BrokerError, ConfigError, InvalidRecordError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer, Values


# --- options ----------------------------------------------------------------------------------


@virtual_time
async def test_options_by_keyword_and_by_kafkas_names(values: Values) -> None:
    """Both ways give the same producer; both work; together they may not contradict."""
    fake = one_topic(1)
    mapping = {
        "bootstrap.servers": fake.bootstrap,
        "linger.ms": "50",
        "compression.type": "gzip",
        "partitioner.adaptive.partitioning.enable": "false",
    }
    dotted = Producer(mapping, dialer=fake)
    keywords = Producer(
        fake.bootstrap.split(","),
        dialer=fake,
        linger_ms=50,
        compression_type="gzip",
        adaptive_partitioning_enable=False,
    )
    assert dotted.config == keywords.config
    for producer in (dotted, keywords):
        async with producer:
            delivery = await producer.send("t", b"v")
            await asyncio.sleep(0.049)
            assert not delivery.done()
            await asyncio.sleep(0.002)
            assert delivery.done()
    assert values(fake, "t") == [b"v", b"v"]
    with pytest.raises(ConfigError, match=r"linger"):
        Producer(mapping, linger_ms=5)


@pytest.mark.parametrize("acks", ["all", 1, 0])
@virtual_time
async def test_acks(acks: Any, producing: StartProducer) -> None:
    """With 0 the record counts as delivered once it is written to the socket."""
    fake = one_topic(1, min_insync_replicas=1)
    fake.round_trip_s = 0.1
    async with producing(fake, acks=acks, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"1")
        started = now()
        metadata = await producer.send_and_wait("t", b"2", timestamp_ms=77)
        assert now() - started == pytest.approx(0.0 if acks == 0 else 0.1)
        assert (metadata.topic, metadata.partition, metadata.timestamp) == ("t", 0, 77)
        assert metadata.offset == (-1 if acks == 0 else 1)
        await asyncio.sleep(1)
    assert [record.value for record in fake.log("t", 0)] == [b"1", b"2"]
    assert (fake.log("t", 0)[0].producer_id >= 0) == (acks == "all")


@virtual_time
async def test_acks_0_goes_on_after_the_broker_hung_up(
    producing: StartProducer, values: Values
) -> None:
    """A broker's only way to say that an unacknowledged request failed is to close."""
    fake = one_topic(1)
    async with producing(fake, acks=0, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"1")
        fake.control(ApiKey.PRODUCE, CLOSE)
        await producer.send_and_wait("t", b"lost")
        await asyncio.sleep(2)
        await producer.send_and_wait("t", b"2")
    assert values(fake, "t") == [b"1", b"2"]


@virtual_time
async def test_acks_0_reaches_the_broker_before_the_end(
    producing: StartProducer, values: Values
) -> None:
    """stop() lets what was accepted be written."""
    fake = one_topic(1)
    fake.round_trip_s = 0.2
    async with producing(fake, acks=0) as producer:
        for n in range(100):
            await producer.send("t", b"%d" % n)
    await asyncio.sleep(1)
    assert values(fake, "t") == [b"%d" % n for n in range(100)]


@virtual_time
async def test_headers_timestamps_and_tombstones(producing: StartProducer) -> None:
    """P1: headers as pairs (repeated names, no value) or as a mapping."""
    fake = one_topic(1)
    async with producing(fake, wall_clock=lambda: 12.5) as producer:
        headers = [("a", b"1"), ("a", None), ("ž", b"")]
        await producer.send_and_wait("t", None, b"k", headers=headers, timestamp_ms=99)
        await producer.send_and_wait("t", b"v", headers={"h": b"2"})
        for wrong in ({"headers": [("a", "text")]}, {"timestamp_ms": -1}, {"key": 5}):
            with pytest.raises(InvalidRecordError):
                await producer.send("t", b"v", **wrong)
    first, second = fake.log("t", 0)
    assert (first.key, first.value, first.timestamp) == (b"k", None, 99)
    assert first.headers == tuple(headers)
    assert (second.headers, second.timestamp) == ((("h", b"2"),), 12_500)


# --- hooks ------------------------------------------------------------------------------------


@virtual_time
async def test_on_delivery_is_told_of_every_record_in_order(producing: StartProducer) -> None:
    """Delivered, failed and parked ones; with the very handle that the caller holds."""
    told: list[Any] = []
    fake = one_topic(1)
    async with producing(fake, on_delivery=told.append) as producer:
        deliveries = [producer.send_nowait("t", b"%d" % n) for n in range(3)]
        await asyncio.gather(*deliveries)
        fake.fail_produce("t", 0, 87)
        deliveries.append(await producer.send("t", b"refused"))
        await asyncio.wait_for(asyncio.gather(*deliveries, return_exceptions=True), 1)
        await asyncio.sleep(0)
    assert told == deliveries
    assert [delivery.exception() is None for delivery in told] == [True, True, True, False]


@virtual_time
async def test_failures_that_nobody_looks_at_are_told(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted, given to on_error, and logged once in ten seconds per topic and cause."""
    told: list[Any] = []
    fake = one_topic(2)
    async with producing(fake, on_error=told.append, linger_ms=0) as producer:
        for round_ in range(5):
            fake.fail_produce("t", 0, 87)
            fake.fail_produce("t", 1, 29)
            seen = await producer.send("t", b"looked at", partition=0)
            await asyncio.gather(seen, return_exceptions=True)
            for _ in range(3):
                await producer.send("t", b"fire and forget", partition=1)
            await producer.flush()
            await asyncio.sleep(1 if round_ < 3 else 12)
        metrics = producer.metrics()
        assert metrics.producer["record-error-unseen-total"] == 15
        assert metrics.producer["record-error-total"] == 20
    assert sum(failure.records for failure in told) == 15
    assert {(f.topic, f.partition, f.error.code) for f in told} == {("t", 1, 29)}
    lines = [r.getMessage() for r in caplog.records if "AUTHORIZATION_FAILED" in r.getMessage()]
    assert [line.partition(" records to topic t failed")[0] for line in lines] == ["3", "9", "3"]


@pytest.mark.parametrize("look", ["await", "exception", "result", "callback"])
@virtual_time
async def test_a_failure_that_was_looked_at_is_not_told_again(
    look: str, producing: StartProducer
) -> None:
    """Whichever way it was looked at."""
    told: list[Any] = []
    fake = one_topic(1)
    async with producing(fake, on_error=told.append) as producer:
        fake.fail_produce("t", 0, 87)
        delivery = await producer.send("t", b"v")
        if look == "callback":
            delivery.add_done_callback(lambda _: None)
        await producer.flush()
        if look == "await":
            await asyncio.gather(delivery, return_exceptions=True)
        elif look == "exception":
            assert isinstance(delivery.exception(), BrokerError)
        elif look == "result":
            with pytest.raises(BrokerError):
                delivery.result()
        del delivery
    assert told == []


@pytest.mark.parametrize("kept", [[], [0], [3, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]])
@virtual_time
async def test_failures_after_a_split_are_told(kept: list[int], producing: StartProducer) -> None:
    """on_error hears of each record whose delivery was dropped, however its batch was divided."""
    told: list[Any] = []
    fake = one_topic(1)
    async with producing(fake, on_error=told.append) as producer:
        await producer.send_and_wait("t", b"w")
        fake.fail_produce("t", 0, 10, 2)  # too large, twice
        fake.fail_produce("t", 0, 29, 10)
        deliveries = [producer.send_nowait("t", b"%d" % n) for n in range(10)]
        many = await producer.send_many("t", [b"bulk"] * 6)
        held = [deliveries[n] for n in kept]
        del deliveries
        results = await asyncio.gather(*held, return_exceptions=True)
        assert all(isinstance(result, BrokerError) for result in results)
        await producer.flush()
        del many
        await asyncio.sleep(1)
        assert sum(failure.records for failure in told) == 16 - len(kept)


# --- metrics and repr ---------------------------------------------------------------------------


@virtual_time
async def test_counters_agree_with_the_deliveries(producing: StartProducer) -> None:
    """O1: every delivery is counted once, whether it failed or not, wherever it failed."""
    fake = one_topic(3)
    fake.round_trip_s = 0.005
    async with producing(
        fake, linger_ms=2, max_block_ms=500, delivery_timeout_ms=4000, request_timeout_ms=1000
    ) as producer:
        await producer.partitions_for("t")
        fake.fail_produce("t", 0, 19, times=2)
        fake.fail_produce("t", 1, 87, times=2)
        deliveries = []
        for n in range(100):
            deliveries.append(await producer.send("t", b"%d" % n, partition=n % 2))
            await asyncio.sleep(0.001)
        await producer.flush()
        fake.move_leader("t", 2, -1)
        deliveries += [await producer.send("t", b"expires", partition=2) for _ in range(5)]
        await producer.flush()
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        failed = sum(isinstance(result, Exception) for result in results)
        assert failed > 5
        metrics = producer.metrics()
        total = metrics.producer
        assert total["record-error-total"] == failed
        topic = metrics.topics["t"]
        for name in ("record-error-total", "record-retry-total", "record-send-total"):
            assert topic[name] == total[name]
        in_logs = sum(len(fake.log("t", p)) for p in range(3))
        assert in_logs == len(results) - failed
        assert total["requests-in-flight"] == 0
        assert total["buffer-available-bytes"] == total["buffer-total-bytes"]
        assert total["record-retry-total"] > 0


@virtual_time
async def test_parked_records_that_fail_are_counted(producing: StartProducer) -> None:
    """O1: they have a delivery, so they are errors like any other."""
    fake = FakeCluster(auto_create_topics=False)
    async with producing(fake, max_block_ms=500) as producer:
        parked = [producer.send_nowait("missing", b"v") for _ in range(3)]
        await asyncio.gather(*parked, return_exceptions=True)
        assert producer.metrics().producer["record-error-total"] == 3
        out_of_range = producer.send_nowait("missing", b"v", partition=9)
        fake.create_topic("missing", 1)
        await asyncio.gather(out_of_range, return_exceptions=True)
        assert producer.metrics().producer["record-error-total"] == 4
        left = producer.send_nowait("other", b"v")
        await producer.stop(timeout=0.1)
        assert left.done()
        assert producer.metrics().producer["record-error-total"] == 5


@virtual_time
async def test_repr_shows_the_state(producing: StartProducer) -> None:
    """O: what is where, at a glance; it never raises."""
    fake = one_topic(1)
    fake.round_trip_s = 0.1
    producer = Producer(fake.bootstrap, dialer=fake, client_id="app", linger_ms=0)
    assert repr(producer) == "<Producer 'app' has not been started>"
    async with producer:
        delivery = await producer.send("t", b"v")
        assert repr(delivery) == "<Delivery t-0 pending>"
        await asyncio.sleep(0.25)
        assert "in_flight=1" in repr(producer)
        assert "incomplete=1" in repr(producer)
        await delivery
        assert repr(delivery) == "<Delivery t-0 offset=0>"
        fake.fail_produce("t", 0, 87)
        refused = await producer.send("t", b"v")
        await producer.flush()
        assert "INVALID_RECORD" in repr(refused)
        assert refused.exception() is not None
        assert "incomplete=0" in repr(producer)
        load = producer.load()
        assert load.partitions[0].records_sent == 1
        assert sum(broker.in_flight_requests for broker in load.brokers) == 0
    assert repr(producer) == "<Producer 'app' is stopped>"


class _Topic(StrEnum):
    T = "t"


@virtual_time
async def test_a_topic_may_be_an_enum(producing: StartProducer) -> None:
    fake = one_topic(1)
    async with producing(fake) as producer:
        early = producer.send_nowait(_Topic.T, b"before its metadata")
        assert (await producer.send_and_wait(_Topic.T, b"1")).topic == "t"
        assert (await producer.send_and_wait("t", b"2")).offset == 2
        assert (await early).offset == 0
        many = await (await producer.send_many(_Topic.T, [b"3"]))
        assert type(many.topic) is str
        assert len(await producer.partitions_for(_Topic.T)) == 1
    async with producing(fake) as producer:
        assert len(await producer.partitions_for(_Topic.T)) == 1
        told = await producer.send_and_wait(_Topic.T, b"4")
        assert (type(told.topic), told.offset) == (str, 4)
        assert {type(name) for name in inspect(producer).metadata.view.topics} == {str}


@virtual_time
async def test_numbers_of_other_int_types_are_plain_ints_afterwards(
    producing: StartProducer,
) -> None:
    """Also for those who send to the partition later."""
    async with producing(one_topic(3)) as producer:
        odd = await producer.send_and_wait("t", b"1", partition=True, timestamp_ms=True)
        later = await producer.send_and_wait("t", b"2", partition=1)
        bulk = await (await producer.send_many("t", [b"3"], partition=1))
    numbers = [odd.partition, odd.timestamp, later.partition, *bulk.partitions]
    assert [(type(number), number) for number in numbers] == [(int, 1)] * 4


@virtual_time
async def test_a_clock_from_before_time_began(producing: StartProducer) -> None:
    fake, at = one_topic(1), [12.5]
    async with producing(fake, wall_clock=lambda: at[0]) as producer:
        await producer.send_and_wait("t", b"good")
        for at[0] in (-5.0, -0.001):
            with pytest.raises(InvalidRecordError, match="timestamp"):
                producer.send_nowait("t", b"bad")


class Whole:
    """An integer of another kind, such as numpy's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        if self.number < -1:
            raise asyncio.CancelledError
        return self.number


@virtual_time
async def test_partition_and_timestamp_may_be_any_integers(producing: StartProducer) -> None:
    fake = one_topic(3)
    place: Any = {"partition": Whole(2), "timestamp_ms": Whole(7)}
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"1", **place)
        await producer.send_nowait("t", b"2", **place)
        await (await producer.send_many("t", [b"3", b"4"], **place))
        times: Any = [Whole(7), None]
        await (await producer.send_many("t", [b"5", b"6"], partition=2, timestamps_ms=times))
        batch = producer.create_batch()
        batch.append(b"7", timestamp_ms=7)
        await (await producer.send_batch(batch, "t", partition=place["partition"]))
        for name in place:
            for wrong in (Whole(-1), Whole(-2), 1.0, "1"):
                given: Any = {name: wrong}
                with pytest.raises(InvalidRecordError, match=f"{name} must be an int from 0"):
                    await producer.send("t", b"", **given)
                with pytest.raises(InvalidRecordError, match=f"{name} must be an int from 0"):
                    await producer.send_many("t", [b""], **given)
    written = fake.log("t", 2)
    assert [record.value for record in written] == [b"%d" % n for n in range(1, 8)]
    assert [record.timestamp == 7 for record in written] == [True] * 5 + [False, True]
