"""What waits for async serializers: flush, stop, transactions, buffer space, other serializers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    KafkaError,
    ProducerClosedError,
    ProducerStateError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
)
from kafkaclient.producer.admission.admission import CALL_DEADLINE
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.inspect import inspect
from tests.producer.scenarios.serializer_support import FirstUse, passes, texts
from tests.producer.support import one_topic, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import Delivery, Producer
    from kafkaclient.testing.fake import FakeCluster
    from tests.producer.support import Look, StartProducer


# --- flush and stop ---------------------------------------------------------------------------


@virtual_time
async def test_flush_waits_for_held_records(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        held = producer.send_nowait("t", "a:1")
        flushing = asyncio.create_task(producer.flush())
        await passes()
        assert not flushing.done()
        serializer.answer("a")
        await flushing
        assert held.done()
        assert (await held).offset == 0


@virtual_time
async def test_stop_waits_for_serializers(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        held = producer.send_nowait("t", "a:1")
        asyncio.get_running_loop().call_later(2, serializer.answer, "a")
        assert await producer.stop() == 0
        assert (await held).offset == 0


@virtual_time
async def test_stop_with_a_timeout(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        held = producer.send_nowait("t", "a:1")
        sent = asyncio.create_task(producer.send("t", "a:2"))
        await passes()
        assert await producer.stop(timeout=1) == 1
        for failing in (held, sent):
            with pytest.raises(ProducerClosedError):
                await failing
    assert serializer.cancelled == 2


@virtual_time
async def test_a_stop_sends_no_record_that_waited_behind_a_serializer(
    producing: StartProducer,
) -> None:
    """The end of the first record must not admit the records behind it."""
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        await producer.partitions_for("t")
        known = producer.send_nowait("t", "b:0")
        serializer.answer("b")
        await known
        held = [producer.send_nowait("t", text) for text in ("a:1", "b:2", "b:3")]
        await passes()
        assert await producer.stop(timeout=1) == 3
        for failing in held:
            with pytest.raises(ProducerClosedError):
                await failing
    assert texts(fake) == ["0"]


# --- memory -----------------------------------------------------------------------------------


@virtual_time
async def test_held_records_stay_within_the_buffer(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer, buffer_memory=20_000) as producer:
        held = [producer.send_nowait("t", f"a:{number}") for number in range(19)]
        with pytest.raises(BufferFullError):
            producer.send_nowait("t", "a:19")
        serializer.answer("a")
        await asyncio.gather(*held)
        assert texts(fake) == [str(number) for number in range(19)]


@virtual_time
async def test_a_record_that_is_larger_than_its_charge(producing: StartProducer) -> None:
    """A held record fails if the buffer has no room for its true size; a caller waits for it."""
    fake, serializer = one_topic(1, brokers=1, round_trip_s=0.01), FirstUse()
    async with producing(fake, value_serializer=serializer, buffer_memory=20_000) as producer:
        held = [producer.send_nowait("t", "a:" + "x" * 9_000) for _ in range(3)]
        sent = asyncio.create_task(producer.send("t", "a:" + "y" * 9_000))
        await passes()
        serializer.answer("a")
        outcomes = await outcomes_of(held)
        assert [type(o) for o in outcomes].count(BufferFullError) == 1
        assert isinstance(outcomes[2], BufferFullError)
        await (await sent)
    assert [len(text) for text in texts(fake)] == [9000, 9000, 9000]


@virtual_time
async def test_a_record_that_is_too_large(producing: StartProducer) -> None:
    serializer = FirstUse()
    async with producing(
        one_topic(), value_serializer=serializer, max_request_size=500
    ) as producer:
        held = producer.send_nowait("t", "a:" + "x" * 600)
        serializer.answer("a")
        with pytest.raises(RecordTooLargeError, match="takes up to"):
            await held


@virtual_time
async def test_nothing_is_left_of_a_burst(producing: StartProducer) -> None:
    fake, serializer = one_topic(3), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        sent = [producer.send_nowait("t", f"a:{n}", key=b"k%d" % (n % 5)) for n in range(500)]
        serializer.answer("a")
        await asyncio.gather(*sent)
        assert not inspect(producer).admission.pending_sends.serializers
        by_key: dict[bytes | None, list[int]] = {}
        for partition in range(3):
            for record in fake.log("t", partition):
                by_key.setdefault(record.key, []).append(int(record.value or b""))
        assert sum(map(len, by_key.values())) == 500
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


# --- serializers that call the producer -------------------------------------------------------


@virtual_time
async def test_a_serializer_that_sends_a_record_of_its_own(producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1)
    fake.create_topic("audit", 1)

    async def serialize(value: str) -> bytes:
        if value == "audited":
            await producer.send_and_wait("audit", "seen")
        return value.encode()

    async with producing(fake, value_serializer=serialize) as producer:
        await producer.send_and_wait("t", "audited")
    assert texts(fake) == ["audited"]
    assert texts(fake, "audit") == ["seen"]


@virtual_time
async def test_a_serializer_that_waits_for_its_own_topic(producing: StartProducer) -> None:
    """The inner record waits behind the outer one, which fails after max.block.ms."""
    fake = one_topic(1, brokers=1)

    async def serialize(value: str) -> bytes:
        if value == "outer":
            await producer.send_and_wait("t", "inner")
        return value.encode()

    async with producing(fake, value_serializer=serialize, max_block_ms=2000) as producer:
        with pytest.raises(SerializationError, match=r"2 s \(max.block.ms\)"):
            await producer.send("t", "outer")
        await producer.send_and_wait("t", "after")
    assert texts(fake) == ["after"]


@virtual_time
async def test_a_serializer_that_stops_the_producer(producing: StartProducer) -> None:
    """A coroutine that nobody can await any more gives no warning."""
    producer: Producer

    def serialize(value: str) -> Any:
        if value == "stop":
            stopping.append(asyncio.ensure_future(producer.stop()))
            return asyncio.sleep(0, b"stop")
        return value.encode()

    stopping: list[asyncio.Task[int]] = []
    async with producing(one_topic(1, brokers=1), value_serializer=serialize) as producer:
        await producer.send_and_wait("t", "known")
        held = producer.send_nowait("t", "stop")
        await passes(2)
        with pytest.raises(KafkaError):
            producer.send_nowait("t", "stop")
        await asyncio.gather(*stopping)
        assert held.done()


# --- transactions -----------------------------------------------------------------------------


@virtual_time
async def test_a_commit_waits_for_serializers(
    transacting: StartProducer, fake: FakeCluster, look: Look
) -> None:
    serializer = FirstUse()
    async with transacting(fake, value_serializer=serializer) as producer:
        async with producer.transaction():
            held = producer.send_nowait("t", "a:1")
            asyncio.get_running_loop().call_later(1, serializer.answer, "a")
        await held
    assert look.committed(fake) == [b"1"]


@virtual_time
async def test_a_poison_value_in_a_transaction(
    transacting: StartProducer, fake: FakeCluster, look: Look
) -> None:
    """From send the error is the caller's. After a held record has failed, only an abort is
    left."""
    serializer = FirstUse()
    async with transacting(fake, value_serializer=serializer) as producer:
        await producer.begin_transaction()
        sent = asyncio.create_task(producer.send("t", "a:poison"))
        await passes()
        serializer.answer("a")
        with pytest.raises(SerializationError):
            await sent
        await producer.send("t", "a:1")
        await producer.commit_transaction()
        await producer.begin_transaction()
        held = producer.send_nowait("t", "b:poison")
        serializer.answer("b")
        with pytest.raises(SerializationError):
            await held
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert look.committed(fake) == [b"1"]


@virtual_time
async def test_a_transaction_that_ends_during_a_send(
    transacting: StartProducer, fake: FakeCluster, look: Look
) -> None:
    serializer = FirstUse()
    async with transacting(fake, value_serializer=serializer) as producer:
        await producer.begin_transaction()
        sent = asyncio.create_task(producer.send("t", "a:1"))
        await passes()
        await producer.commit_transaction()
        serializer.answer("a")
        with pytest.raises(ProducerStateError, match="no transaction open"):
            await sent
    assert look.committed(fake) == []


# --- buffer space -----------------------------------------------------------------------------


def until_full(send: Callable[[], Delivery]) -> list[Delivery]:
    sent = []
    with suppress(BufferFullError):
        while True:
            sent.append(send())
    return sent


@virtual_time
async def test_records_held_behind_a_serializer_do_not_take_its_records_space(
    producing: StartProducer,
) -> None:
    """The record is larger than was charged before: nothing stands still."""
    fake, serializer = one_topic(1), FirstUse()
    fake.create_topic("other", 1)
    async with producing(fake, value_serializer=serializer, buffer_memory=100_000) as producer:
        serializer.answer("known")
        await producer.send_and_wait("t", "known:1")
        await producer.send_and_wait("other", "known:1")
        first = asyncio.create_task(producer.send("t", "a:" + 30_000 * "x"))
        await asyncio.sleep(0)
        held = until_full(lambda: producer.send_nowait("t", "known:" + 1000 * "y"))
        other = asyncio.create_task(producer.send_and_wait("other", "known:" + 5000 * "z"))
        await asyncio.sleep(0.2)
        serializer.answer("a")
        await asyncio.gather(await first, *held, other)
        assert asyncio.get_running_loop().time() < 1
        assert (await first).result().offset < held[0].result().offset
        pool = inspect(producer).accumulator.buffer_pool
        assert pool.available == pool.total


@virtual_time
async def test_a_wait_behind_a_serializer_is_named(producing: StartProducer) -> None:
    fake, serializer = one_topic(1), FirstUse()
    async with producing(fake, value_serializer=serializer, max_block_ms=10_000) as producer:
        serializer.answer("known")
        await producer.send_and_wait("t", "known:0")
        held = producer.send_nowait("t", "a:1")

        async def hurried() -> None:
            CALL_DEADLINE.set(asyncio.get_running_loop().time() + 5)
            await producer.send("t", "known:1")

        with pytest.raises(
            DeliveryTimeoutError, match="the serializer of the topic's first record"
        ):
            await asyncio.create_task(hurried())
        at_once = await producer.send("t", "known:2")  # the held record fails in time
        assert type(held.exception()) is SerializationError
        assert (await at_once).offset == 1


@virtual_time
async def test_a_bulk_call_is_cancelled_as_its_serializer_ends(producing: StartProducer) -> None:
    fake, serializer = one_topic(1), FirstUse()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, seen: reported.append(seen))
    async with producing(fake, value_serializer=serializer) as producer:
        for count in range(5):
            call = asyncio.create_task(producer.send_many("t", [f"{count}:a", f"{count}:b"]))
            await asyncio.sleep(0.1)
            serializer.answer(str(count))
            for _ in range(count):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
    assert not reported


@virtual_time
async def test_a_stop_ends_the_serializer_of_a_bulk_call(producing: StartProducer) -> None:
    fake, serializer = one_topic(1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        call = asyncio.create_task(producer.send_many("t", ["a:1"]))
        await asyncio.sleep(0.1)
        await producer.stop()
        with pytest.raises(ProducerClosedError):
            await call
        assert asyncio.get_running_loop().time() < 1
