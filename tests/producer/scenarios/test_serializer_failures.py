"""Serializers that fail, never end, or are cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import (
    DeliveryTimeoutError,
    MetadataTimeoutError,
    SerializationError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.producer.scenarios.serializer_support import FirstUse, passes, texts
from tests.producer.support import now, one_topic, values_of

if TYPE_CHECKING:
    from tests.producer.support import StartProducer


@virtual_time
async def test_a_poison_value_fails_its_own_record(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        before = producer.send_nowait("t", "a:before")
        held = producer.send_nowait("t", "a:poison")
        sent = asyncio.create_task(producer.send("t", "a:poison"))
        await passes()
        after = producer.send_nowait("t", "a:after")
        serializer.answer("a")
        for failing in (held, sent):
            with pytest.raises(
                SerializationError, match=r"the value of a record for topic 't'.*poison"
            ) as caught:
                await failing
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
        await asyncio.gather(before, after)
        with pytest.raises(SerializationError, match="ZeroDivisionError"):
            producer.send_nowait("t", "a:poison")  # sync now
    assert texts(fake) == ["before", "after"]


@virtual_time
async def test_a_poison_value_in_send_many(producing: StartProducer) -> None:
    """Nothing of the call is sent, and the error says which record it was."""
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        many = asyncio.create_task(producer.send_many("t", ["a:1", "a:poison", "a:3"]))
        await passes()
        serializer.answer("a")
        with pytest.raises(SerializationError, match="record 1: the value of") as caught:
            await many
        assert caught.value.index == 1
        never = asyncio.create_task(producer.send_many("t", ["a:4", "b:5"]))
        with pytest.raises(SerializationError, match=r"record 1: .*60 s \(max.block.ms\)"):
            await never
        await producer.send("t", "a:6")
    assert texts(fake) == ["6"]
    assert serializer.cancelled == 1


@pytest.mark.parametrize("field", ["key", "value"])
@virtual_time
async def test_a_serializer_that_raises_cancelled_error(
    producing: StartProducer, field: str
) -> None:
    """Its caller was not cancelled."""

    def serialize(_item: bytes) -> bytes:
        raise asyncio.CancelledError

    async with producing(one_topic(1, brokers=1), **{f"{field}_serializer": serialize}) as producer:
        with pytest.raises(SerializationError, match=f"the {field} of a record"):
            producer.send_nowait("t", b"v", b"k")
        with pytest.raises(SerializationError, match=f"the {field} of a record"):
            await producer.send("t", b"v", b"k")


@virtual_time
async def test_an_async_serializer_that_raises_a_base_exception(producing: StartProducer) -> None:
    class Unusual(BaseException):
        pass

    async def serialize(_value: str) -> bytes:
        raise Unusual("unusual")

    async with producing(one_topic(1, brokers=1), value_serializer=serialize) as producer:
        held = producer.send_nowait("t", "1")
        for failing in (held, producer.send("t", "2")):
            with pytest.raises(SerializationError, match=r"the value of .* 't'.*unusual") as caught:
                await failing
            assert isinstance(caught.value.__cause__, Unusual)
        with pytest.raises(SerializationError, match=r"record 0: the value of .*unusual"):
            await producer.send_many("t", ["3"])


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("result", [7, "text", asyncio.sleep])
@virtual_time
async def test_a_result_that_is_not_bytes(
    producing: StartProducer, field: str, result: object
) -> None:
    async def serialize(_item: str) -> object:
        await asyncio.sleep(0)
        return result

    fake = one_topic(1, brokers=1)
    options = {f"{field}_serializer": serialize}
    async with producing(fake, **options) as producer:
        held = producer.send_nowait("t", b"v", b"k")
        with pytest.raises(SerializationError, match=f"the {field} of a record .* not bytes"):
            await held
        with pytest.raises(SerializationError, match=f"the {field} of a record .* not bytes"):
            await producer.send("t", b"v", b"k")
    assert texts(fake) == []


@virtual_time
async def test_none_and_awaitables_that_are_no_coroutines(producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1)
    loop = asyncio.get_running_loop()

    def serialize(value: str) -> asyncio.Future[bytes | None]:
        future: asyncio.Future[bytes | None] = loop.create_future()
        loop.call_soon(future.set_result, None if value == "none" else value.encode())
        return future

    async with producing(fake, value_serializer=serialize) as producer:
        await producer.send_and_wait("t", "none")
        await producer.send_and_wait("t", "future")
    assert values_of(fake, "t") == [None, b"future"]


@pytest.mark.parametrize("stubborn", [False, True])
@virtual_time
async def test_a_serializer_that_never_ends(producing: StartProducer, stubborn: bool) -> None:
    """Its record fails after max.block.ms, and those behind it go on; also if the serializer
    swallows its cancellation."""
    over = asyncio.Event()

    async def serialize(value: str) -> bytes:
        while value == "never" and not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise
        return value.encode()

    fake = one_topic(1, brokers=1)
    async with producing(fake, value_serializer=serialize, max_block_ms=3000) as producer:
        await producer.send_and_wait("t", "known")
        begun = now()
        held = producer.send_nowait("t", "never")
        sent = asyncio.create_task(producer.send("t", "never"))
        await passes()
        behind = producer.send_nowait("t", "behind")
        for failing in (held, sent):
            with pytest.raises(SerializationError, match=r"the value of .* 't'.*3 s \(max.block"):
                await failing
        assert now() - begun == pytest.approx(3, abs=0.1)
        await behind
        over.set()
    assert texts(fake) == ["known", "behind"]


@virtual_time
async def test_delivery_timeout_bounds_a_held_record(producing: StartProducer) -> None:
    async with producing(
        one_topic(),
        value_serializer=FirstUse(),
        delivery_timeout_ms=2000,
        request_timeout_ms=1000,
        linger_ms=0,
    ) as producer:
        with pytest.raises(SerializationError, match=r"2 s \(delivery.timeout.ms\)"):
            await producer.send_nowait("t", "a:1")


@virtual_time
async def test_a_record_behind_a_serializer_tells_why_nothing_was_sent(
    producing: StartProducer,
) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    serializer.answer("old")
    async with producing(
        fake, value_serializer=serializer, delivery_timeout_ms=30_100, metadata_max_age_ms=5_000
    ) as producer:
        await producer.send_and_wait("t", "old:0")
        fake.stop_broker(0)
        before = asyncio.create_task(producer.send("t", "new:1"))
        await passes()
        with pytest.raises(DeliveryTimeoutError, match=r"was not sent; last error: .*refused"):
            await producer.send_nowait("t", "old:2")
        before.cancel()
        await asyncio.gather(before, return_exceptions=True)


@virtual_time
async def test_delivery_timeout_bounds_a_record_behind_a_serializer(
    producing: StartProducer,
) -> None:
    """The record's own serializer has finished; the one of an earlier call has not."""
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    serializer.answer("old")
    async with producing(
        fake,
        value_serializer=serializer,
        delivery_timeout_ms=2000,
        request_timeout_ms=1000,
        linger_ms=0,
    ) as producer:
        await producer.send_and_wait("t", "old:0")
        before = asyncio.create_task(producer.send("t", "new:1"))
        await passes()
        begun = now()
        held = [producer.send_nowait("t", f"old:{number}") for number in (2, 3)]
        await asyncio.sleep(1)
        held.append(producer.send_nowait("t", "old:4"))
        for delivery, waited in zip(held, (2, 2, 3), strict=True):
            with pytest.raises(DeliveryTimeoutError, match=r"2 s \(delivery.timeout.ms\)"):
                await delivery
            assert now() - begun == pytest.approx(waited, abs=0.1)
        behind = producer.send_nowait("t", "old:5")
        serializer.answer("new")
        await (await before)
        await behind
    assert texts(fake) == ["0", "1", "5"]


@virtual_time
async def test_a_topic_that_does_not_exist(producing: StartProducer) -> None:
    fake, serializer = FakeCluster(auto_create_topics=False), FirstUse()
    async with producing(fake, value_serializer=serializer, max_block_ms=2000) as producer:
        held = producer.send_nowait("missing", "a:1")
        with pytest.raises(MetadataTimeoutError):
            await producer.send("missing", "a:2")
        with pytest.raises((MetadataTimeoutError, SerializationError)):  # both take 2 s
            await held
        await passes()
    assert serializer.cancelled == 2


@virtual_time
async def test_a_cancelled_caller(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        sent = asyncio.create_task(producer.send("t", "a:cancelled"))
        await passes()
        behind = producer.send_nowait("t", "a:behind")
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent
        await passes()
        assert serializer.cancelled == 1
        serializer.answer("a")
        await behind
    assert texts(fake) == ["behind"]


@virtual_time
async def test_a_serializer_that_is_cancelled_by_others(producing: StartProducer) -> None:
    """As when a program cancels all tasks of the loop, and goes on."""
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        held = producer.send_nowait("t", "a:1")
        sent = asyncio.create_task(producer.send("t", "a:2"))
        await passes()
        for task in asyncio.all_tasks():
            if task.get_name() == "kafkaclient-serializer":
                task.cancel()
        for failing in (held, sent):
            with pytest.raises(SerializationError, match="was cancelled"):
                await failing
        serializer.answer("a")
        await producer.send_and_wait("t", "a:3")
    assert texts(fake) == ["3"]
