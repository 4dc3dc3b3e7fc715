"""Life cycle, send, results: aiokafka's semantics on the fake cluster."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import warnings
from typing import Any

import aiokafka.structs
import numpy as np
import pytest
from aiokafka import errors as theirs

from kafkaclient import errors as ours
from kafkaclient.aiokafka import AIOKafkaProducer, RecordMetadata, TopicPartition
from kafkaclient.testing.clock import VirtualTimeLoop, virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.api import ApiKey
from tests.aiokafka_dropin.support import dropin


def cluster(partitions: int = 2) -> FakeCluster:
    fake = FakeCluster()
    fake.round_trip_s = 0.01
    fake.create_topic("t", partitions)
    return fake


def written(fake: FakeCluster, partitions: int = 2) -> list[bytes | None]:
    return [record.value for n in range(partitions) for record in fake.log("t", n)]


# --- life cycle -------------------------------------------------------------------------------


@virtual_time
async def test_start_and_stop() -> None:
    fake = cluster()
    producer = AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake)
    assert producer._closed is False
    assert AIOKafkaProducer._closed is None
    await producer.start()
    await producer.send("t", b"v")
    await producer.stop()
    assert producer._closed is True
    await producer.stop()
    assert written(fake) == [b"v"]  # stop sends what is queued


async def test_a_refused_stop_stops_nothing() -> None:
    fake = cluster()
    producer = AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake, linger_ms=3000)
    await producer.start()
    future = await producer.send("t", b"v", partition=0)
    with pytest.raises(theirs.IllegalOperation):  # another event loop
        await asyncio.to_thread(asyncio.run, producer.stop())
    assert not producer._closed
    await producer.stop()
    assert future.done()
    assert written(fake) == [b"v"]


@virtual_time
async def test_a_second_stop_waits_for_the_same() -> None:
    fake = cluster()
    fake.delay_produce(0, 0.5)
    producer = AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake)
    await producer.start()
    future = await producer.send("t", b"v", partition=0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.stop(), 0.05)
    await producer.stop()
    assert future.done()


@virtual_time
async def test_a_producer_cannot_be_copied() -> None:
    producer = AIOKafkaProducer(bootstrap_servers="localhost")
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            make(producer)
    await producer.stop()


@virtual_time
async def test_stop_and_flush_before_start() -> None:
    producer = AIOKafkaProducer()
    await producer.flush()
    await producer.stop()
    await producer.stop()
    assert producer._closed is True


@virtual_time
async def test_a_failed_start_can_be_repeated() -> None:
    """aiokafka's users wait for their brokers this way."""
    fake = cluster()
    for broker in range(3):
        fake.stop_broker(broker, elect=False)
    producer = AIOKafkaProducer(
        bootstrap_servers=fake.bootstrap, dialer=fake, request_timeout_ms=500
    )
    loop = asyncio.get_running_loop()
    before = loop.time()
    for _ in range(2):
        with pytest.raises(theirs.KafkaConnectionError) as caught:
            await producer.start()
        assert isinstance(caught.value, ours.BootstrapError)
    assert loop.time() - before == pytest.approx(1.0, abs=0.2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.start(), 0.1)
    for broker in range(3):
        fake.start_broker(broker)
    await producer.start()
    await producer.send_and_wait("t", b"v")
    with pytest.raises(theirs.IllegalOperation):
        await producer.start()
    await producer.send_and_wait("t", b"v")
    await producer.stop()


@virtual_time
async def test_a_stop_during_start() -> None:
    fake = cluster()
    for broker in range(3):
        fake.stall_broker(broker)
    producer = AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake)
    start = asyncio.create_task(producer.start())
    await asyncio.sleep(0.1)
    await producer.stop()
    with pytest.raises(theirs.ProducerClosed):
        await start
    with pytest.raises(theirs.IllegalOperation):
        await producer.start()


@virtual_time
async def test_async_with_and_flush() -> None:
    fake = cluster()
    async with dropin(fake, linger_ms=60_000, request_timeout_ms=100_000) as producer:
        future = await producer.send("t", b"v")
        await producer.flush()
        assert future.done()
    assert producer._closed is True


@virtual_time
async def test_calls_outside_of_the_life() -> None:
    """aiokafka hangs where the producer was not started."""
    fake = cluster()
    producer = AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake)
    with pytest.raises(theirs.IllegalOperation):
        await producer.send("t", b"v")
    await producer.start()
    await producer.stop()
    for call in (producer.send("t", b"v"), producer.send_and_wait("t", b"v")):
        with pytest.raises(theirs.ProducerClosed) as caught:
            await call
        assert isinstance(caught.value, ours.ProducerClosedError)
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    with pytest.raises(theirs.ProducerClosed):
        await producer.send_batch(batch, "t", partition=0)


def test_created_where_no_loop_runs() -> None:
    """With the loop's parameter, each call by itself, as old services do."""
    loop = VirtualTimeLoop()
    fake = cluster()
    with pytest.warns(DeprecationWarning, match="loop"):
        producer = AIOKafkaProducer(loop=loop, bootstrap_servers=fake.bootstrap, dialer=fake)
    loop.run_until_complete(producer.start())
    future = loop.run_until_complete(producer.send("t", b"v", partition=1))
    assert loop.run_until_complete(future).partition == 1
    loop.run_until_complete(producer.stop())
    loop.close()


@virtual_time
async def test_an_unclosed_producer_warns_once_and_is_stopped() -> None:
    fake = cluster()
    handled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: handled.append(context))
    producer = AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake)
    await producer.start()
    future = await producer.send("t", b"v")
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer") as caught:
        del producer  # no cycle keeps it
    assert len(caught) == 1
    assert [context["message"] for context in handled] == ["Unclosed AIOKafkaProducer"]
    handled.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await asyncio.sleep(1)
        gc.collect()
    assert future.done()
    assert [fake.connections(broker) for broker in range(3)] == [0, 0, 0]


@virtual_time
async def test_a_producer_that_was_never_started_warns_as_well() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
        AIOKafkaProducer()


async def test_a_refused_constructor_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="Invalid ACKS parameter"):
            AIOKafkaProducer(acks=5)
        gc.collect()


# --- send -------------------------------------------------------------------------------------


@virtual_time
async def test_the_result_is_aiokafkas_metadata() -> None:
    fake = cluster(1)
    async with dropin(fake, wall_clock=lambda: 12.5) as producer:
        first = await producer.send_and_wait("t", b"v")
        second = await (await producer.send("t", b"v", timestamp_ms=77))
    place = TopicPartition("t", 0)
    assert type(first) is aiokafka.structs.RecordMetadata is RecordMetadata
    assert type(first.topic_partition) is aiokafka.structs.TopicPartition
    assert first == ("t", 0, place, 0, 12_500, 0, 0)
    assert (second.offset, second.timestamp, second.timestamp_type) == (1, 77, 0)


@virtual_time
async def test_all_arguments_by_position() -> None:
    fake = cluster()
    async with dropin(fake) as producer:
        await (await producer.send("t", b"v", b"k", 1, 77, [("h", b"1"), ("h", None)]))
        await producer.send_and_wait("t", None, b"k", 1, None, None)
    full, tombstone = fake.log("t", 1)
    assert (full.key, full.value, full.timestamp) == (b"k", b"v", 77)
    assert full.headers == (("h", b"1"), ("h", None))
    assert (tombstone.value, tombstone.headers) == (None, ())


@virtual_time
async def test_a_timestamp_that_is_no_int_is_truncated() -> None:
    """``time.time() * 1000`` is common in services."""
    fake = cluster(1)
    async with dropin(fake) as producer:
        await producer.send("t", b"v", timestamp_ms=7.9)
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"v", timestamp=8.9) == (0, 8, 8, None)
        await producer.send_batch(batch, "t", partition=0)
    assert [record.timestamp for record in fake.log("t", 0)] == [7, 8]


@virtual_time
async def test_numpys_numbers() -> None:
    """aiokafka accepts them as partitions and timestamps."""
    fake = cluster()
    async with dropin(fake) as producer:
        for timestamp in (np.int64(7), np.float64(7.9), np.float32(7.5)):
            await producer.send("t", b"v", partition=np.int64(1), timestamp_ms=timestamp)
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"v", timestamp=np.float32(7.5)) is not None
        await producer.send_batch(batch, "t", partition=np.int64(1))
    assert [record.timestamp for record in fake.log("t", 1)] == [7, 7, 7, 7]


@virtual_time
async def test_a_list_of_headers_may_change_afterwards() -> None:
    """OpenTelemetry's instrumentation appends to the caller's list."""
    fake = cluster(1)
    headers = [("a", b"1")]
    async with dropin(fake) as producer:
        for n in range(3):
            await producer.send("t", b"v", headers=headers)
            headers.append(("b", b"%d" % n))
    assert [len(record.headers) for record in fake.log("t", 0)] == [1, 2, 3]


@virtual_time
async def test_acks_0_has_no_result() -> None:
    async with dropin(cluster(), acks=0) as producer:
        assert await producer.send_and_wait("t", b"v") is None
        future = await producer.send("t", b"v")
        done, _ = await asyncio.wait([future])
        assert [f.result() for f in done] == [None]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({}, AssertionError),
        ({"value": b"v", "partition": -1}, AssertionError),
        ({"value": b"v", "partition": 2}, AssertionError),
        ({"value": "text"}, TypeError),
        ({"value": b"v", "key": 5}, TypeError),
        ({"value": b"v", "timestamp_ms": "1"}, TypeError),
        ({"value": b"v", "timestamp_ms": float("-inf")}, ValueError),
        ({"value": b"v", "timestamp_ms": float("nan")}, ValueError),
        ({"value": b"v", "timestamp_ms": -1}, ValueError),
        ({"value": b"v", "partition": "1"}, TypeError),
        ({"value": b"v", "partition": 1.0}, TypeError),
        ({"value": b"v", "headers": [("a", "text")]}, TypeError),
        ({"value": b"v" * 1_048_576}, theirs.MessageSizeTooLargeError),
    ],
    ids=lambda value: str(value)[:40],
)
@virtual_time
async def test_an_argument_that_is_refused(
    arguments: dict[str, Any], kind: type[BaseException]
) -> None:
    fake = cluster()
    async with dropin(fake) as producer:
        await producer.partitions_for("t")
        for call in (producer.send, producer.send_and_wait):
            with pytest.raises(kind):
                await call("t", **arguments)
    assert not written(fake)


@virtual_time
async def test_serializers_are_called_for_every_key_and_value() -> None:
    """For None as well, which kafkaclient's own serializers are not."""
    fake, seen = cluster(1), []

    def serialize(item: Any) -> bytes:
        seen.append(item)
        return repr(item).encode()

    async with dropin(fake, key_serializer=serialize, value_serializer=serialize) as producer:
        assert producer._key_serializer is producer._value_serializer is serialize
        await producer.send_and_wait("t", {"a": 1})
        await producer.send_and_wait("t", None, "k")
    assert [(r.key, r.value) for r in fake.log("t", 0)] == [
        (b"None", b"{'a': 1}"),
        (b"'k'", b"None"),
    ]
    assert seen == [None, {"a": 1}, "k", None]


@virtual_time
async def test_a_serializers_own_exception() -> None:
    def refuse(_: Any) -> bytes:
        raise LookupError("no schema")

    async with dropin(cluster(), value_serializer=refuse) as producer:
        with pytest.raises(LookupError, match="no schema"):
            await producer.send("t", b"v")


@virtual_time
async def test_a_serializer_that_returns_text() -> None:
    async with dropin(cluster(), value_serializer=str) as producer:
        with pytest.raises(TypeError, match="value must be bytes"):
            await producer.send("t", 5)


# --- failures ---------------------------------------------------------------------------------


@virtual_time
async def test_an_unknown_topic_ends_within_the_request_timeout() -> None:
    fake = FakeCluster(auto_create_topics=False)
    loop = asyncio.get_running_loop()
    async with dropin(fake, request_timeout_ms=500) as producer:
        for call in (
            producer.send("no", b"v"),
            producer.partitions_for("no"),
            producer.client._wait_on_metadata("no"),
        ):
            before = loop.time()
            with pytest.raises(theirs.UnknownTopicOrPartitionError):
                await call
            assert loop.time() - before == pytest.approx(0.5, abs=0.05)


@virtual_time
async def test_a_partition_without_leader_ends_with_its_reason() -> None:
    """aiokafka: LeaderNotAvailableError when the batch has expired."""
    fake = cluster(1)
    async with dropin(fake, request_timeout_ms=500) as producer:
        await producer.send_and_wait("t", b"v")
        fake.move_leader("t", 0, -1)
        with pytest.raises(theirs.KafkaTimeoutError) as caught:
            await producer.send_and_wait("t", b"v")
        assert isinstance(caught.value, theirs.BrokerResponseError)
        assert isinstance(caught.value, ours.DeliveryTimeoutError)


@virtual_time
async def test_an_error_on_one_partition_of_two() -> None:
    fake = cluster()
    async with dropin(fake) as producer:
        fake.fail_produce("t", 1, 10)
        futures = [await producer.send("t", b"%d" % n, partition=n) for n in range(2)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert outcomes[0].offset == 0  # type: ignore[union-attr]
    assert isinstance(outcomes[1], theirs.MessageSizeTooLargeError)
    assert isinstance(outcomes[1], ours.RecordTooLargeError)


@virtual_time
async def test_a_timeout_of_the_replicas_is_retried_and_ends() -> None:
    """aiokafka's send_error: code 7 again and again."""
    fake = cluster(1)
    async with dropin(fake, request_timeout_ms=500) as producer:
        fake.fail_produce("t", 0, 7, times=100)
        with pytest.raises(theirs.RequestTimedOutError) as caught:
            await producer.send_and_wait("t", b"v")
        assert isinstance(caught.value, ours.DeliveryTimeoutError)
        fake.fail_produce("t", 0, 7, times=0)


@pytest.mark.parametrize("idempotent", [False, True])
@virtual_time
async def test_order_is_kept_when_a_batch_is_retried(idempotent: bool) -> None:
    """Without idempotence as well: one request is in flight."""
    fake = cluster(1)
    async with dropin(fake, enable_idempotence=idempotent, max_batch_size=100) as producer:
        await producer.send_and_wait("t", b"first")
        fake.fail_produce("t", 0, 6, times=2)
        futures = []
        for n in range(50):
            futures.append(await producer.send("t", b"%d" % n))
            await asyncio.sleep(0.001)
        await asyncio.gather(*futures)
    assert written(fake, 1) == [b"first", *[b"%d" % n for n in range(50)]]


@virtual_time
async def test_a_moved_leader_is_found() -> None:
    fake = cluster(1)
    async with dropin(fake) as producer:
        for n in range(6):
            fake.move_leader("t", 0, n % 3)
            assert (await producer.send_and_wait("t", b"v")).offset == n


@virtual_time
async def test_the_buffer_stays_full() -> None:
    fake = cluster(1)
    async with dropin(fake, request_timeout_ms=500, buffer_memory=40_000) as producer:
        await producer.send_and_wait("t", b"v")
        fake.stall_broker(0)
        calls = [producer.send("t", b"v" * 10_000) for _ in range(10)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        refused = [error for error in outcomes if isinstance(error, theirs.KafkaTimeoutError)]
        assert 0 < len(refused) < 10
        assert all(isinstance(error, ours.BufferFullError) for error in refused)
        fake.resume_broker(0)
        await asyncio.gather(*[future for future in outcomes if asyncio.isfuture(future)])


@virtual_time
async def test_a_full_batch_does_not_make_send_wait() -> None:
    """aiokafka's send waits until the batch is sent. Here batches grow while the broker is busy."""
    fake = cluster(1)
    loop = asyncio.get_running_loop()
    async with dropin(fake, max_batch_size=100) as producer:
        await producer.send_and_wait("t", b"v")
        fake.stall_broker(0)
        before = loop.time()
        values = [b"%090d" % n for n in range(20)]
        futures = [await producer.send("t", value) for value in values]
        assert loop.time() == before
        fake.resume_broker(0)
        await asyncio.gather(*futures)
    assert written(fake, 1) == [b"v", *values]


@virtual_time
async def test_a_cancelled_send_is_not_sent() -> None:
    fake = cluster(1)
    async with dropin(fake) as producer:
        fake.control(ApiKey.METADATA, lambda _: None, keep=True)
        call = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert not written(fake, 1)
