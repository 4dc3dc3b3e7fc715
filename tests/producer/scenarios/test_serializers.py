"""Serializers that get a context, and serializers that are async."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer, SerializationContext
from kafkaclient.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from tests.producer.support import now, one_topic, outcomes_of, values_of

if TYPE_CHECKING:
    from tests.producer.support import Look, StartProducer


class FirstUse:
    """Async for each schema's first values, until :meth:`answer`; then sync. A value is
    ``schema:text``; ``schema:poison`` cannot be serialized."""

    def __init__(self) -> None:
        self.known: dict[str, asyncio.Event] = {}
        self.cancelled = 0
        self.calls: list[str] = []

    def answer(self, schema: str) -> None:
        self.known.setdefault(schema, asyncio.Event()).set()

    def serialize(self, value: str, context: SerializationContext) -> Any:
        schema, _, text = value.partition(":")
        known = self.known.setdefault(schema, asyncio.Event())
        self.calls.append(value)
        context.headers.append((f"{context.field}-schema", schema.encode()))
        return self._bytes(text) if known.is_set() else self._later(known, text)

    async def _later(self, known: asyncio.Event, text: str) -> bytes:
        try:
            await known.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self._bytes(text)

    def _bytes(self, text: str) -> bytes:
        if text == "poison":
            raise ZeroDivisionError("poison")
        return text.encode()


def texts(fake: FakeCluster, topic: str = "t") -> list[str]:
    return [(value or b"").decode() for value in values_of(fake, topic)]


async def passes(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- the context ------------------------------------------------------------------------------


@virtual_time
async def test_a_serializer_sees_and_changes_the_record(producing: StartProducer) -> None:
    """On the fast and on the slow way; the caller's own headers stay as they are."""
    seen: list[Any] = []

    class Tagging:
        def serialize(self, item: str, context: SerializationContext) -> bytes:
            seen.append((context.topic, context.field, list(context.headers)))
            context.headers.append((context.field, b"tagged"))
            return item.encode()

    fake, given = one_topic(1, brokers=1), [("own", b"1")]
    async with producing(
        fake, key_serializer=Tagging(), value_serializer=Tagging(), linger_ms=5
    ) as producer:
        for _ in range(2):  # the first one is slow: the topic is not known yet
            await producer.send("t", "v", "k", headers=given)
        producer.send_nowait("t", "v", headers={"own": b"2"})
        producer.send_nowait("t", None, None)
        await (await producer.send_many("t", ["v"], record_headers=[given]))
    first = [("own", b"1"), ("key", b"tagged"), ("value", b"tagged")]
    assert [list(record.headers) for record in fake.log("t", 0)] == [
        first,
        first,
        [("own", b"2"), ("value", b"tagged")],
        [],
        [("own", b"1"), ("value", b"tagged")],
    ]
    assert given == [("own", b"1")]
    assert seen[:2] == [("t", "key", [("own", b"1")]), ("t", "value", first[:2])]
    assert repr(SerializationContext("t", "key", [])) == (
        "SerializationContext(topic='t', field='key')"
    )


@virtual_time
async def test_a_callable_gets_the_value_alone(producing: StartProducer) -> None:
    class Both:
        def __call__(self, item: str) -> bytes:
            return item.encode()

        def serialize(self, item: str, context: SerializationContext) -> bytes:
            raise AssertionError

    fake = one_topic(1, brokers=1)
    async with producing(fake, value_serializer=Both()) as producer:
        await producer.send_and_wait("t", "plain")
    assert texts(fake) == ["plain"]


@virtual_time
async def test_headers_that_cannot_be_read(producing: StartProducer) -> None:
    known = FirstUse()
    known.answer("a")
    async with producing(one_topic(), value_serializer=known) as producer:
        for _ in range(2):
            with pytest.raises(InvalidRecordError, match="topic 't'"):
                await producer.send("t", "a:1", headers=5)  # type: ignore[arg-type]
            await producer.send("t", "a:1")


# --- order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("known_topic", [True, False])
@virtual_time
async def test_later_records_do_not_overtake(producing: StartProducer, known_topic: bool) -> None:
    """send, send_nowait and send_many behind a first use; other topics go on meanwhile."""
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    fake.create_topic("other", 1)
    serializer.answer("old")
    async with producing(fake, value_serializer=serializer) as producer:
        if known_topic:
            await producer.send_and_wait("t", "old:0")
        first = asyncio.create_task(producer.send("t", "new:1"))
        await passes()
        held = producer.send_nowait("t", "new:2")
        ready = producer.send_nowait("t", "old:3")
        behind = asyncio.create_task(producer.send("t", "old:4"))
        many = asyncio.create_task(producer.send_many("t", ["old:5", "old:6"]))
        await passes()
        last = producer.send_nowait("t", "old:7")
        await producer.send_and_wait("other", "old:x")
        assert not any(sent.done() for sent in (first, held, ready, behind, many))
        assert texts(fake) == ["0"] * known_topic
        serializer.answer("new")
        for sent in (await first, held, ready, await behind, await many, last):
            await sent
    assert texts(fake) == ["0"] * known_topic + ["1", "2", "3", "4", "5", "6", "7"]


@virtual_time
async def test_key_and_value_may_both_wait(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, key_serializer=serializer, value_serializer=serializer) as producer:
        held = producer.send_nowait("t", "v:value", "k:key", headers=iter([("own", b"")]))
        await passes()
        assert serializer.calls == ["k:key"]  # the value's serializer sees the key's headers
        serializer.answer("k")
        await passes()
        assert serializer.calls == ["k:key", "v:value"]
        serializer.answer("v")
        await held
    [record] = fake.log("t", 0)
    assert (record.key, record.value) == (b"key", b"value")
    assert list(record.headers) == [("own", b""), ("key-schema", b"k"), ("value-schema", b"v")]


@virtual_time
async def test_a_coroutine_function_as_a_serializer(producing: StartProducer) -> None:
    async def serialize(value: str) -> bytearray:
        await asyncio.sleep(0.001 if value == "0" else 0)  # later ones finish first
        return bytearray(value.encode())

    fake = one_topic(1, brokers=1)
    async with producing(fake, value_serializer=serialize) as producer:
        sent = [producer.send_nowait("t", str(number)) for number in range(5)]
        await asyncio.gather(*sent)
        await (await producer.send_many("t", ["5", "6"]))
    assert texts(fake) == ["0", "1", "2", "3", "4", "5", "6"]


@virtual_time
async def test_the_timestamp_is_the_time_of_the_call(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer, wall_clock=now) as producer:
        await asyncio.sleep(5)
        called = int(now() * 1000)
        held = producer.send_nowait("t", "a:1")
        await asyncio.sleep(2)
        serializer.answer("a")
        assert (await held).timestamp == called


# --- failures ---------------------------------------------------------------------------------


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


# --- flush, stop, memory ----------------------------------------------------------------------


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


@virtual_time
async def test_a_batch_takes_no_async_serializer(producing: StartProducer) -> None:
    fake, serializer = one_topic(1, brokers=1), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        batch = producer.create_batch()
        with pytest.raises(SerializationError, match=r"the value of a record of a batch.*async"):
            batch.append("a:1")
        serializer.answer("a")
        assert batch.append("a:2")
        await (await producer.send_batch(batch, "t"))
    assert texts(fake) == ["2"]


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


@virtual_time
async def test_nothing_is_left_of_a_burst(producing: StartProducer) -> None:
    fake, serializer = one_topic(3), FirstUse()
    async with producing(fake, value_serializer=serializer) as producer:
        sent = [producer.send_nowait("t", f"a:{n}", key=b"k%d" % (n % 5)) for n in range(500)]
        serializer.answer("a")
        await asyncio.gather(*sent)
        assert not inspect(producer).admission.pending_sends._serializers
        by_key: dict[bytes | None, list[int]] = {}
        for partition in range(3):
            for record in fake.log("t", partition):
                by_key.setdefault(record.key, []).append(int(record.value or b""))
        assert sum(map(len, by_key.values())) == 500
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
