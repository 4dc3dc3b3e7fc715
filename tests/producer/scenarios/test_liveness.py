"""Everything ends, on time.

Ids such as ``L1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BootstrapError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    MetadataTimeoutError,
    ProducerClosedError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, ErrorCode, FakeCluster, delay_answer
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import Outcomes, StartProducer

TICK = 0.025
"""A deadline is judged at a second look, 10 ms later; a request's timeout 20 ms later."""


idempotence = pytest.mark.parametrize("idempotent", [True, False])


@pytest.mark.parametrize("fault", ["stop_broker", "stall_broker"])
@idempotence
@virtual_time
async def test_all_brokers_down_or_silent_after_the_first_metadata(
    idempotent: bool, fault: str, producing: StartProducer, outcomes: Outcomes
) -> None:
    """L1: every record fails by the delivery timeout, none is left pending; also when the brokers
    accept everything and answer nothing."""
    fake = one_topic()
    async with producing(fake, enable_idempotence=idempotent) as producer:
        await producer.send_and_wait("t", b"first")
        for node in range(3):
            getattr(fake, fault)(node)
        started = now()
        deliveries = [await producer.send("t", b"%d" % n, key=b"%d" % n) for n in range(50)]
        results = await outcomes(deliveries)
        assert now() - started == pytest.approx(120.0, abs=TICK)
        assert all(isinstance(result, DeliveryTimeoutError) for result in results)


@virtual_time
async def test_no_broker_at_start() -> None:
    """L1: start() ends by max.block.ms and names the servers."""
    fake = FakeCluster()
    for node in range(3):
        fake.stop_broker(node)
    producer = Producer(fake.bootstrap, dialer=fake, max_block_ms=5000)
    with pytest.raises(BootstrapError, match="fake-0:9092"):
        await producer.start()
    assert now() == pytest.approx(5.0, abs=TICK)
    assert await producer.stop() == 0


@idempotence
@virtual_time
async def test_stop_ends_by_its_timeout(
    idempotent: bool, producing: StartProducer, outcomes: Outcomes
) -> None:
    """L1: stop(timeout=1) with silent brokers ends at t=1 and reports how many were left."""
    fake = one_topic()
    async with producing(fake, enable_idempotence=idempotent) as producer:
        await producer.send_and_wait("t", b"first")
        for node in range(3):
            fake.stall_broker(node)
        deliveries = [await producer.send("t", b"%d" % n, key=b"%d" % n) for n in range(20)]
        started = now()
        assert await producer.stop(timeout=1) == 20
        assert now() - started == pytest.approx(1.0, abs=TICK)
        assert all(delivery.done() for delivery in deliveries)
        for result in await outcomes(deliveries):
            assert isinstance(result, ProducerClosedError)


@virtual_time
async def test_stop_counts_parked_records_too(producing: StartProducer) -> None:
    """L1: records that wait for their topic's metadata are reported as well."""
    fake = FakeCluster(auto_create_topics=False)
    async with producing(fake) as producer:
        delivery = producer.send_nowait("missing", b"v")
        assert await producer.stop(timeout=1) == 1
        assert isinstance(delivery.exception(), ProducerClosedError)


@virtual_time
async def test_stop_without_timeout_ends_with_the_last_delivery(producing: StartProducer) -> None:
    """L1: even without a timeout of its own, stop lasts no longer than the records may live."""
    fake = one_topic()
    async with producing(fake, delivery_timeout_ms=40_000) as producer:
        await producer.send_and_wait("t", b"first")
        for node in range(3):
            fake.stop_broker(node)
        delivery = await producer.send("t", b"v")
        started = now()
        await producer.stop()
        assert now() - started == pytest.approx(40.0, abs=TICK)
        assert isinstance(delivery.exception(), DeliveryTimeoutError)


@virtual_time
async def test_flush_ends_by_its_timeout(producing: StartProducer) -> None:
    """L1: the records stay on their way, and the error counts them."""
    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first")
        for node in range(3):
            fake.stall_broker(node)
        deliveries = [await producer.send("t", b"%d" % n, key=b"%d" % n) for n in range(7)]
        started = now()
        with pytest.raises(FlushTimeoutError) as caught:
            await producer.flush(timeout=2)
        assert now() - started == pytest.approx(2.0, abs=TICK)
        assert caught.value.undelivered == 7
        for node in range(3):
            fake.resume_broker(node)
        await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)


@virtual_time
async def test_cancelled_internal_tasks_leave_nobody_waiting(producing: StartProducer) -> None:
    """L1, L8: programs shut down by cancelling every task of the loop, the sender's too."""
    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first")
        for node in range(3):
            fake.stall_broker(node)
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        started = now()
        await producer.stop()
        assert now() - started < 1
        assert isinstance(delivery.exception(), ProducerClosedError)


async def lingering(fake: FakeCluster, _: Producer) -> None:
    asyncio.get_running_loop().call_later(1, fake.stall_broker, 0)


async def refused(fake: FakeCluster, _: Producer) -> None:
    fake.fail_produce("t", 0, 19, times=10_000)


async def leaderless(fake: FakeCluster, producer: Producer) -> None:
    fake.move_leader("t", 0, -1)
    inspect(producer).metadata.request_refresh("the test moved the leader")
    await asyncio.sleep(1)


async def throttled(fake: FakeCluster, producer: Producer) -> None:
    fake.throttle(10_000_000)
    await producer.send_and_wait("t", b"the answer throttles", partition=0)


async def in_flight(fake: FakeCluster, _: Producer) -> None:
    fake.stall_broker(0)


async def unreachable(fake: FakeCluster, _: Producer) -> None:
    fake.stop_broker(0, elect=False)
    await asyncio.sleep(1)


# what happens, what the error says of it, whether the record may be in the log, options
STATES: dict[str, tuple[Any, str, bool, dict[str, Any]]] = {
    "lingering": (
        lingering,
        "on its way",
        True,
        {"linger_ms": 3_000, "request_timeout_ms": 27_099},
    ),
    "backing off": (refused, "NOT_ENOUGH_REPLICAS", False, {}),
    "leaderless": (leaderless, "a leader of their partition", False, {}),
    "throttled": (throttled, "broker 0 to take requests", False, {}),
    "in flight": (in_flight, "on its way to broker 0", True, {"request_timeout_ms": 30_100}),
    "unreachable": (unreachable, "refused", False, {}),
}


@pytest.mark.parametrize("state", STATES)
@virtual_time
async def test_the_delivery_timeout_holds_in_every_state(
    state: str, producing: StartProducer
) -> None:
    """L2: the error says where the record was, for how long, the last error, and whether it may
    have been written."""
    fake = one_topic()
    bring_about, expected, maybe_written, options = STATES[state]
    options = {"linger_ms": 0, "delivery_timeout_ms": 30_100} | options
    async with producing(fake, **options) as producer:
        delivery = await producer.send("t", b"first", partition=0)
        await producer.flush()
        await bring_about(fake, producer)
        started = now()
        delivery, ended = await producer.send("t", b"v", partition=0), asyncio.Event()
        delivery.add_done_callback(lambda _: ended.set())  # to await it would end the lingering
        await ended.wait()
        with pytest.raises(DeliveryTimeoutError) as caught:
            delivery.result()
        assert now() - started == pytest.approx(30.1, abs=TICK)
        message = str(caught.value)
        assert expected in message
        assert " to t-0: not acknowledged within delivery.timeout.ms=30100" in message
        assert "after 30.1" in message
        assert caught.value.maybe_written is maybe_written
        assert ("It may have been written" in message) is maybe_written
        if state in ("leaderless", "throttled", "unreachable"):  # KAFKA-14672
            longest = producer.metrics().producer["record-queue-time-max"]
            assert longest == pytest.approx(30_100, abs=1000 * TICK)
        fake.resume_broker(0)


@virtual_time
async def test_a_record_of_no_broker_has_the_error_of_all_brokers(producing: StartProducer) -> None:
    """A batch without key that no broker could take has no leader whose error it could have."""
    fake = one_topic()
    async with producing(fake, delivery_timeout_ms=30_100) as producer:
        await producer.send_and_wait("t", b"first")
        for node in range(3):
            fake.stop_broker(node)
        await asyncio.sleep(5)
        with pytest.raises(DeliveryTimeoutError, match=r"last error: .*refused"):
            await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize("partition", [0, None])
@virtual_time
async def test_a_record_has_its_time_though_its_batch_is_old(
    partition: int | None, producing: StartProducer
) -> None:
    """L2: the timeout counts from send, to within a tenth, however long its batch has been open."""
    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        for node in range(3):
            fake.stop_broker(node)
        lives: list[float] = []

        def ended(sent_at: float) -> Any:
            return lambda _: lives.append(now() - sent_at)

        deliveries = []
        for _ in range(130):
            deliveries.append(await producer.send("t", b"v", partition=partition))
            deliveries[-1].add_done_callback(ended(now()))
            await asyncio.sleep(1)
        await asyncio.gather(*deliveries, return_exceptions=True)
        assert len(lives) == 130
        assert 0.9 * 120 - TICK <= min(lives) <= max(lives) <= 120 + TICK


@pytest.mark.parametrize(("linger_ms", "waited"), [(500, 0.5), (6_000, 6.0), (60_000, 9.0)])
@virtual_time
async def test_a_record_has_its_time_though_its_batch_lingers(
    linger_ms: int, waited: float, producing: StartProducer
) -> None:
    """L2: a batch lingers, and takes records, for a tenth of the delivery timeout at most."""
    fake, lives = one_topic(), []
    options = {"delivery_timeout_ms": 90_000, "request_timeout_ms": 30_000}
    async with producing(fake, linger_ms=linger_ms, **options) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        began = now()
        delivery = await producer.send("t", b"v", partition=0)
        delivery.add_done_callback(lambda _: lives.append(now() - began))
        await asyncio.sleep(20)
        assert lives.pop() == pytest.approx(waited, abs=TICK)
        for node in range(3):
            fake.stall_broker(node)

        def ended(sent_at: float) -> Any:
            return lambda _: lives.append(now() - sent_at)

        deliveries = []
        for _ in range(100):
            deliveries.append(await producer.send("t", b"v", partition=0))
            deliveries[-1].add_done_callback(ended(now()))
            await asyncio.sleep(0.7)
        await asyncio.gather(*deliveries, return_exceptions=True)
        assert 0.9 * 90 - TICK <= min(lives) <= max(lives) <= 90 + TICK
        for node in range(3):
            fake.resume_broker(node)


@virtual_time
async def test_the_delivery_timeout_holds_behind_a_full_lane(producing: StartProducer) -> None:
    """L2: queued, because the broker has all the requests it takes."""
    fake = one_topic()
    options = {"max_in_flight_requests_per_connection": 1, "batch_size": 0}
    async with producing(
        fake, **options, request_timeout_ms=40_000, delivery_timeout_ms=41_000
    ) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.stall_broker(0)
        started = now()
        first = await producer.send("t", b"on the wire", partition=0)
        await asyncio.sleep(1)
        queued = [await producer.send("t", b"queued", partition=0) for _ in range(3)]
        error = (await asyncio.gather(first, return_exceptions=True))[0]
        assert isinstance(error, DeliveryTimeoutError)
        assert now() - started == pytest.approx(41.0, abs=TICK)
        for delivery in queued:
            with pytest.raises(DeliveryTimeoutError) as caught:
                await delivery
            assert now() - started == pytest.approx(42.0, abs=TICK)
            assert not caught.value.maybe_written
        fake.resume_broker(0)


@virtual_time
async def test_the_delivery_timeout_holds_without_a_producer_id(producing: StartProducer) -> None:
    """L2: waiting for InitProducerId, which no broker answers."""
    fake = one_topic()
    fake.control(ApiKey.INIT_PRODUCER_ID, ErrorCode.LEADER_NOT_AVAILABLE, keep=True)
    async with producing(fake, delivery_timeout_ms=35_000) as producer:
        delivery = await producer.send("t", b"v", partition=0)
        started = now()
        with pytest.raises(DeliveryTimeoutError, match="producer id") as caught:
            await delivery
        assert now() - started == pytest.approx(35.0, abs=TICK)
        assert not caught.value.maybe_written


@pytest.mark.parametrize(("max_block", "delivery"), [(8, 120), (60, 31)])
@virtual_time
async def test_a_record_of_an_unknown_topic_ends_in_time(
    max_block: int, delivery: int, producing: StartProducer
) -> None:
    """L2: parked by send_nowait, it fails by max.block.ms and by the delivery timeout."""
    fake = FakeCluster(auto_create_topics=False)
    async with producing(
        fake, max_block_ms=max_block * 1000, delivery_timeout_ms=delivery * 1000
    ) as producer:
        started = now()
        parked = producer.send_nowait("missing", b"v")
        with pytest.raises(MetadataTimeoutError, match=r"missing.*UNKNOWN_TOPIC"):
            await parked
        assert now() - started == pytest.approx(min(max_block, delivery), abs=TICK)


@virtual_time
async def test_an_acknowledgement_surfaces_at_once(producing: StartProducer) -> None:
    """L5: the delivery is done in the iteration of the loop that reads the response."""
    fake = one_topic()
    fake.round_trip_s = 0.010
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        [link] = [
            link
            for (node, purpose), link in inspect(producer).router._links.items()
            if purpose == "produce" and link.connection is not None
        ]
        connection = link.connection
        received = connection.data_received
        seen: list[bool] = []

        def data_received(data: bytes) -> None:
            received(data)
            seen.append(delivery.done())

        connection.data_received = data_received
        sent_at = now()
        delivery = await producer.send("t", b"v", partition=0)
        await delivery
        assert seen == [True]
        assert now() - sent_at == pytest.approx(0.010)


@pytest.mark.parametrize("step", [0.0, 3600.0, -3600.0])
@virtual_time
async def test_the_wall_clock_only_stamps_records(step: float, producing: StartProducer) -> None:
    """L6: frozen or stepped by an hour, it has no say in when anything happens."""
    fake = one_topic()
    wall = [1_700_000_000.0]
    async with producing(fake, linger_ms=50, wall_clock=lambda: wall[0]) as producer:
        first = await producer.send("t", b"1", partition=0)
        wall[0] += step
        second = await producer.send("t", b"2", partition=0)
        await first
        assert now() == pytest.approx(0.050)
        await second
        third = await producer.send("t", b"3", partition=0)
        await producer.flush()
        assert now() == pytest.approx(0.050)
        assert third.done()
        assert await producer.stop(timeout=1) == 0
        assert now() == pytest.approx(0.050)
        stamps = [record.timestamp for record in fake.log("t", 0)]
        assert stamps[0] == 1_700_000_000_000
        assert stamps[1] == stamps[2] == int(wall[0] * 1000)


@virtual_time
async def test_a_blocked_loop_expires_nothing_that_was_answered(producing: StartProducer) -> None:
    """L7: deadlines that passed during a stall are judged after the answers were read."""
    fake = one_topic()
    options = {"request_timeout_ms": 1000, "delivery_timeout_ms": 1500}
    async with producing(fake, linger_ms=0, **options) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.control(ApiKey.PRODUCE, delay_answer(0.5))
        delivery = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(0.4)
        asyncio.get_running_loop()._now += 2.0  # nothing runs for two seconds
        metadata = await delivery
        assert metadata.offset == 1
        assert producer.metrics().producer["record-error-total"] == 0
        assert len(fake.requests_of(ApiKey.PRODUCE)) == 2


@virtual_time
async def test_a_blocked_loop_shows_in_the_metrics(producing: StartProducer) -> None:
    """L7: whoever blocks the loop can see it."""
    fake = one_topic()
    async with producing(fake, linger_ms=100) as producer:
        delivery = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(0.05)
        asyncio.get_running_loop()._now += 2.0
        await delivery
        assert producer.metrics().producer["event-loop-lag-max"] >= 1900


async def test_a_really_blocked_loop_expires_nothing_that_was_answered() -> None:
    """L7: the same on a loop in real time."""
    fake = one_topic()
    producer = Producer(
        fake.bootstrap,
        dialer=fake,
        rng=Random(1),
        linger_ms=0,
        request_timeout_ms=50,
        delivery_timeout_ms=60,
    )
    async with producer:
        await producer.send_and_wait("t", b"first", partition=0)
        delivery = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(0)  # the request leaves
        time.sleep(0.2)  # noqa: ASYNC251 - this is the fault under test
        assert (await delivery).offset == 1


@virtual_time
async def test_one_lost_answer_costs_one_request_timeout(producing: StartProducer) -> None:
    """L1: a broker that forgets a request is taken for dead after request.timeout.ms."""
    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.control(ApiKey.PRODUCE, DROP)
        started = now()
        metadata = await producer.send_and_wait("t", b"v", partition=0)
        assert metadata.offset == 1
        assert now() - started == pytest.approx(30.2, abs=0.2)
