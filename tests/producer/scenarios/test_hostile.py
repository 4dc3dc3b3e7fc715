"""Peers that do not speak Kafka, or lie in it: the connection is dropped, the others go on, and
what was told wrongly is believed by nobody."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.errors import DeliveryTimeoutError, KafkaError, ProtocolError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual, virtual_time
from kafkaclient.testing.fake import DROP, FakeCluster, delay
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import encode_response
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake.interceptors import Answer, Request
    from tests.producer.support import StartProducer, Values

MB = 1024 * 1024


# --- lies -------------------------------------------------------------------------------------


def frame(correlation_id: int, body: bytes, size: int | None = None) -> bytes:
    return struct.pack(">ii", 4 + len(body) if size is None else size, correlation_id) + body


def told(request: Request, body: bytes) -> bytes:
    return frame(request.frame.correlation_id, body)


def another_api(request: Request) -> bytes:
    version = 1 if request.api_key == ApiKey.INIT_PRODUCER_ID else 4
    other = ApiKey.METADATA if version == 1 else ApiKey.INIT_PRODUCER_ID
    return encode_response(other, version, request.frame.correlation_id)


def twice(request: Request) -> bytes:
    """A well-formed refusal, and once more."""
    answer = encode_response(
        request.api_key, request.version, request.frame.correlation_id, **refusal(request)
    )
    return answer * 2


def refusal(request: Request) -> dict[str, Any]:
    if request.api_key != ApiKey.PRODUCE:
        return {"error_code": 15}
    partitions = [{"index": p, "error_code": 7} for _, p, _ in request.batches]
    return {"responses": [{"name": "t", "partition_responses": partitions}]}


LIES: dict[str, Callable[[Request], Answer]] = {
    "garbage": lambda _: bytes(range(251, 180, -1)),
    "http": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "oversize": lambda r: frame(r.frame.correlation_id, b"", 2**31 - 1),
    "negative length": lambda r: frame(r.frame.correlation_id, b"", -5),
    "no room for an id": lambda _: struct.pack(">ihb", 3, 0, 0),
    "unknown correlation id": lambda r: frame(r.frame.correlation_id + 1, bytes(50)),
    "truncated": lambda r: told(r, b"\0"),
    "nothing at all": lambda r: told(r, b""),
    "counts of billions": lambda r: told(r, b"\0" + b"\xff\xff\xff\xff\x0f" * 20),
    "another api": another_api,
    "twice": twice,
    "only a beginning": lambda r: frame(r.frame.correlation_id, bytes(10), 50 * MB),
    "silence": lambda _: DROP,
}
every_lie = pytest.mark.parametrize("lie", LIES)


# --- one broker lies ----------------------------------------------------------------------------


@every_lie
@virtual_time
async def test_a_broker_that_lies_about_produce_harms_only_its_own_partitions(
    lie: str, producing: StartProducer, values: Values
) -> None:
    """The others keep their pace; what waits for the liar is written once when it comes to its
    senses."""
    fake = one_topic(round_trip_s=0.002)
    async with producing(fake, linger_ms=0, request_timeout_ms=5000) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"first", partition=partition)
        control = fake.control(ApiKey.PRODUCE, LIES[lie], broker=0, keep=True)
        waiting = await producer.send("t", b"waits", partition=0)
        started = now()
        for _ in range(10):
            for partition in (1, 2):
                await producer.send_and_wait("t", b"v", partition=partition)
        assert now() - started < 0.2
        unkeyed = []
        for _ in range(20):
            unkeyed.append(await producer.send("t", b"unkeyed"))
            await asyncio.sleep(0.1)
        assert sum(delivery.done() for delivery in unkeyed) >= 17
        assert not waiting.done()
        assert control.hits > 0
        control.remove()
        await asyncio.gather(waiting, *unkeyed)
    assert values(fake, "t", 0).count(b"waits") == 1


@pytest.mark.parametrize("lie", sorted(LIES.keys() - {"twice", "silence", "only a beginning"}))
@virtual_time
async def test_an_endless_liar_is_named_in_the_error(lie: str, producing: StartProducer) -> None:
    """The records fail on time, and the error says what came instead of an answer."""
    fake = one_topic(round_trip_s=0.002)
    options = {"linger_ms": 0, "delivery_timeout_ms": 31_000}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.control(ApiKey.PRODUCE, LIES[lie], broker=0, keep=True)
        with pytest.raises(DeliveryTimeoutError) as caught:
            await producer.send_and_wait("t", b"v", partition=0)
        assert now() == pytest.approx(31.0, abs=0.1)
        assert isinstance(caught.value.__cause__, ProtocolError)
        assert str(caught.value.__cause__) in str(caught.value)
        assert caught.value.maybe_written
        # Reconnects back off: a liar is not asked in a circle.
        assert len(fake.requests_of(ApiKey.PRODUCE, 0)) < 80


@every_lie
@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID])
@virtual_time
async def test_another_broker_is_asked_when_one_lies(
    api: ApiKey, lie: str, producing: StartProducer
) -> None:
    fake = one_topic(round_trip_s=0.002)
    fake.control(api, LIES[lie], broker=0, keep=True)
    async with producing(fake, linger_ms=0, request_timeout_ms=5000) as producer:
        for partition in (1, 2):
            await producer.send_and_wait("t", b"v", partition=partition)
        for _ in range(5):
            inspect(producer).metadata.request_refresh("the test")
            await asyncio.sleep(2)
        fake.move_leader("t", 0, 1)
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() < 40


@every_lie
@virtual_time
async def test_a_handshake_of_lies_is_a_failed_attempt(lie: str, producing: StartProducer) -> None:
    fake = one_topic(round_trip_s=0.002)
    options = {"socket_connection_setup_timeout_ms": 1000, "linger_ms": 0}
    control = fake.control(ApiKey.API_VERSIONS, LIES[lie], broker=0, keep=True)
    async with producing(fake, **options) as producer:
        waiting = await producer.send("t", b"waits", partition=0)
        for partition in (1, 2):
            await producer.send_and_wait("t", b"v", partition=partition)
        await asyncio.sleep(10)
        assert not waiting.done()
        assert 3 < len(fake.requests_of(ApiKey.API_VERSIONS, 0)) < 120
        control.remove()
        await waiting
        assert now() < 45


@every_lie
@virtual_time
async def test_a_cluster_of_liars_cannot_be_started(lie: str) -> None:
    fake = one_topic(round_trip_s=0.002)
    fake.control(ApiKey.API_VERSIONS, LIES[lie], keep=True)
    producer = Producer(fake.bootstrap, dialer=fake, max_block_ms=5000)
    with pytest.raises(KafkaError):
        await producer.start()
    assert now() <= 5.1
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- slow and large -----------------------------------------------------------------------------


@virtual_time
async def test_answers_that_come_byte_by_byte(producing: StartProducer, values: Values) -> None:
    fake = one_topic(round_trip_s=0.002)
    fake.chunk_size = 1
    async with producing(fake, linger_ms=0) as producer:
        for n in range(20):
            await producer.send_and_wait("t", b"%d" % n, key=b"%d" % n)
    assert sum(len(values(fake, "t", p)) for p in range(3)) == 20


@virtual_time
async def test_what_is_announced_takes_no_memory_before_it_comes(producing: StartProducer) -> None:
    """50 MB are announced again and again, by all brokers; some bytes come."""
    fake = one_topic(round_trip_s=0.002)
    options = {"linger_ms": 0, "request_timeout_ms": 1000, "delivery_timeout_ms": 20_000}
    async with producing(fake, **options) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"first", partition=partition)
        for api in (ApiKey.PRODUCE, ApiKey.METADATA):
            fake.control(api, LIES["only a beginning"], keep=True)
        tracemalloc.start()
        try:
            for partition in range(3):
                producer.send_nowait("t", b"v", partition=partition)
            await producer.flush()
            assert tracemalloc.get_traced_memory()[1] < 5 * MB
        finally:
            tracemalloc.stop()


@virtual_time
async def test_topics_nobody_asked_for_are_not_remembered(producing: StartProducer) -> None:
    fake = one_topic(round_trip_s=0.002)

    def more_than_asked(request: Request) -> Answer:
        topics = [
            {"name": f"{len(fake.requests)}-{n}", "partitions": [{"partition_index": 0}]}
            for n in range(100)
        ]
        brokers = [{"node_id": n, "host": f"fake-{n}", "port": 9092} for n in range(3)]
        return {"brokers": brokers, "topics": topics}

    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        fake.control(ApiKey.METADATA, more_than_asked, keep=True)
        for _ in range(10):
            inspect(producer).metadata.request_refresh("the test")
            await asyncio.sleep(2)
        assert set(inspect(producer).metadata.view.topics) <= {"t"}
        assert set(inspect(producer).metadata._told._topics) <= {"t"}


# --- all of it ----------------------------------------------------------------------------------


APIS = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_lies_of_all_kinds_lose_duplicate_and_reorder_nothing(
    seed: int, producing: StartProducer
) -> None:
    """Each broker lies now and then in any answer, for twenty seconds."""
    random = Random(seed)
    kinds = list(LIES.values())

    def now_and_then(request: Request) -> Answer:
        if now() > 20 or random.random() > 0.2:
            return None
        lie = random.choice(kinds)(request)
        return delay(0.01, lie) if lie is not None and random.random() < 0.3 else lie

    async def main() -> FakeCluster:
        fake = one_topic(round_trip_s=0.002)
        options = {"linger_ms": 1, "request_timeout_ms": 2000, "max_block_ms": 300_000}
        async with producing(fake, rng=Random(seed), **options) as producer:
            # From the start on: a bootstrap server that lies is no Kafka broker, and refused.
            for api in APIS:
                fake.control(api, now_and_then, keep=True)
            deliveries = []
            for n in range(200):
                deliveries.append(await producer.send("t", b"%d" % n, partition=n % 3))
                await asyncio.sleep(0.1 * random.random())
            await asyncio.gather(*deliveries)
        return fake

    fake = run_virtual(main())
    for partition in range(3):
        numbers = [int(record.value or b"") for record in fake.log("t", partition)]
        assert numbers == [n for n in range(200) if n % 3 == partition]
