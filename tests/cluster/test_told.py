"""What a client logs of outages, and when a start that finds no broker ends."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.aiokafka import AIOKafkaProducer
from kafkaclient.errors import BootstrapError, MetadataTimeoutError
from kafkaclient.reader import Reader
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, FakeCluster
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable


def now() -> float:
    return asyncio.get_running_loop().time()


# --- outages ------------------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize(("sending", "elect"), [(True, False), (False, True)])
async def test_a_long_outage_costs_a_handful_of_lines(
    caplog: pytest.LogCaptureFixture, sending: bool, elect: bool
) -> None:
    caplog.set_level(logging.INFO, "kafkaclient")
    fake = FakeCluster(brokers=3)
    fake.create_topic("t", 3)
    async with Producer(fake.bootstrap, dialer=fake, delivery_timeout_ms=4_000_000) as producer:
        await producer.send_and_wait("t", b"before")
        caplog.clear()
        for broker in range(3):
            fake.stop_broker(broker, elect=elect)
        deliveries = []
        for _ in range(22):  # beyond the 300 s after which the bootstrap servers are asked again
            if sending:
                deliveries.append(producer.send_nowait("t", b"meanwhile"))
            await asyncio.sleep(30)
        lines = [(r.levelname, r.getMessage()) for r in caplog.records]
        assert max(Counter(lines).values()) == 1, "no line twice"
        levels = Counter(level for level, _ in lines)
        assert levels["WARNING"] <= 6
        assert levels["INFO"] <= 10  # each broker is lost, gives no sign of life, is not reached
        assert not levels["ERROR"]
        caplog.clear()
        for broker in range(3):
            fake.start_broker(broker)
        await producer.send_and_wait("t", b"after")
        await asyncio.sleep(10)
        told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert len(told) == 1
        assert told[0].startswith("the cluster answers again: no metadata could be fetched for ")
        await asyncio.gather(*deliveries, return_exceptions=True)


@virtual_time
async def test_a_broker_that_is_away_costs_two_lines_and_one_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kafkaclient")
    fake = FakeCluster(brokers=2)
    fake.create_topic("t", 2)
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        await asyncio.gather(*(producer.send_and_wait("t", b"v", partition=n) for n in range(2)))
        caplog.clear()
        fake.stop_broker(1, elect=False)
        sending = asyncio.create_task(producer.send_and_wait("t", b"v", partition=1))
        await asyncio.sleep(60)
        lost, refused, *_ = told = [r.getMessage() for r in caplog.records]
        assert lost.startswith("the connection to broker 1 (fake-1:9092) was lost")
        assert refused.startswith("cannot reach broker 1 (fake-1:9092)")
        assert sum("cannot reach" in line for line in told) == 1
        caplog.clear()
        fake.start_broker(1)
        await sending
        again = [r.getMessage() for r in caplog.records if "connected again" in r.getMessage()]
        assert len(again) == 1
        assert again[0].startswith("broker 1 (fake-1:9092) can be connected again, 60")


# --- starts -------------------------------------------------------------------------------------


def _dropin(servers: str, **options: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=servers, **options)


_KINDS: list[Callable[..., Any]] = [Producer, Reader, Admin, _dropin]


@virtual_time
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "servers", ["fake-0:9092,fake-1:9092", "nowhere:9092", "nowhere:1,fake-1:9092"]
)
async def test_a_start_ends_early_if_all_servers_refuse_or_do_not_resolve(
    kind: Callable[..., Any], servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeCluster(brokers=2)
    for broker in range(2):
        fake.stop_broker(broker)
    client = kind(servers, dialer=fake)
    with pytest.raises(BootstrapError, match=r"within 10 s \(bootstrap\.connect\.timeout\.ms\)"):
        await client.start()
    await (client.close if isinstance(client, Reader | Admin) else client.stop)()
    assert 10 <= now() < 12.5
    assert len(caplog.records) <= 2  # the first failure, and the wait; the last one is raised


@virtual_time
@pytest.mark.parametrize("kind", _KINDS)
async def test_an_option_waits_as_long_as_for_other_failures(kind: Callable[..., Any]) -> None:
    fake = FakeCluster(brokers=1)
    fake.stop_broker(0)
    asyncio.get_running_loop().call_later(30, fake.start_broker, 0)
    async with kind(fake.bootstrap, dialer=fake, bootstrap_connect_timeout_ms=60_000):
        assert 30 <= now() < 32


@virtual_time
@pytest.mark.parametrize("kind", _KINDS)
async def test_a_server_that_times_out_or_stopped_refusing_is_waited_for(
    kind: Callable[..., Any],
) -> None:
    fake = FakeCluster(brokers=2)
    fake.stop_broker(0)
    fake.stall_broker(1, swallow_dials=True)
    loop = asyncio.get_running_loop()
    loop.call_later(25, fake.resume_broker, 1)
    async with kind(fake.bootstrap, dialer=fake):
        assert 25 <= now() < 38


@virtual_time
async def test_only_a_refusal_that_lasts_ends_a_start() -> None:
    fake = FakeCluster(brokers=1)
    fake.stop_broker(0)
    loop = asyncio.get_running_loop()
    loop.call_later(9, fake.start_broker, 0)
    loop.call_later(9, fake.stall_broker, 0)
    loop.call_later(12, fake.stop_broker, 0)
    loop.call_later(20, fake.start_broker, 0)
    loop.call_later(20, fake.resume_broker, 0)
    async with Producer(fake.bootstrap, dialer=fake):
        assert 20 <= now() < 24


# --- waits --------------------------------------------------------------------------------------


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "kafkaclient.cluster.waits"]


@virtual_time
async def test_a_send_to_a_missing_topic_says_what_it_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeCluster(brokers=1)
    async with Producer(fake.bootstrap, dialer=fake, allow_auto_create_topics=False) as producer:
        sends = [asyncio.create_task(producer.send("absent", b"v")) for _ in range(100)]
        await asyncio.sleep(4.5)
        assert _told(caplog) == []
        assert "100 calls waiting for metadata of topic 'absent' for 4.5 s" in repr(producer)
        await asyncio.sleep(20)
        (told,) = _told(caplog)
        assert told.startswith(
            "still waiting for metadata of topic 'absent' after 5 s: metadata of topic"
        )
        assert "UNKNOWN_TOPIC_OR_PARTITION" in told
        (record,) = caplog.records
        assert (record.levelno, getattr(record, "topic", None)) == (logging.WARNING, "absent")
        assert "absent" in str(await producer.healthy())
        fake.create_topic("absent", 1)
        await asyncio.gather(*sends)
        assert _told(caplog)[1].startswith("the wait for metadata of topic 'absent' ended after 2")
        assert len(caplog.records) == 2
        assert "waiting for" not in repr(producer)
        await producer.flush()


@virtual_time
async def test_sends_that_fail_one_after_the_other_are_not_told_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kafkaclient.cluster.waits")
    fake = FakeCluster(brokers=1)
    async with Producer(
        fake.bootstrap, dialer=fake, allow_auto_create_topics=False, max_block_ms=10_000
    ) as producer:
        for _ in range(100):
            with pytest.raises(MetadataTimeoutError):
                await producer.send("absent", b"v")
    told = _told(caplog)
    assert len(told) == 4  # 1000 s: two are told, each with its end
    assert told[1] == "the wait for metadata of topic 'absent' failed after 10.0 s"


@virtual_time
async def test_a_full_buffer_names_the_broker_that_holds_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeCluster(brokers=1)
    fake.create_topic("t", 1)
    async with Producer(
        fake.bootstrap, dialer=fake, buffer_memory=100_000, batch_size=1000, linger_ms=0
    ) as producer:
        await producer.send_and_wait("t", b"before")
        for _ in range(300):  # a full buffer that empties is no news
            await (await producer.send("t", bytes(30_000)))
        assert _told(caplog) == []
        fake.stall_broker(0)
        sends = [asyncio.create_task(producer.send("t", bytes(30_000))) for _ in range(9)]
        await asyncio.sleep(8)
        (told,) = _told(caplog)
        assert told.startswith(
            "still waiting for buffer space for records of topic 't' after 5 s: "
        )
        assert "bytes of buffer.memory are used; 90094 bytes wait for broker 0, whose" in told
        assert producer.metrics().producer["waiting-threads"] > 0
        assert "waiting for buffer space" in repr(producer)
        fake.resume_broker(0)
        await asyncio.gather(*sends)
        assert len(_told(caplog)) == 2


@virtual_time
@pytest.mark.parametrize("restored", [True, False])
async def test_a_flush_names_what_the_oldest_records_wait_for(
    caplog: pytest.LogCaptureFixture, restored: bool
) -> None:
    fake = FakeCluster(brokers=2)
    fake.create_topic("t", 1)
    async with Producer(fake.bootstrap, dialer=fake, delivery_timeout_ms=60_000) as producer:
        for _ in range(30):  # a flush that ends in time is no news
            await producer.send("t", b"before", partition=0)
            await producer.flush()
            await asyncio.sleep(1)
        fake.stop_broker(0, elect=False)
        delivery = await producer.send("t", b"v", partition=0)
        flush = asyncio.create_task(producer.flush())
        await asyncio.sleep(4.5)
        assert _told(caplog) == []
        await asyncio.sleep(6)
        (told,) = _told(caplog)
        assert told.startswith(
            "still waiting for acknowledgments of records after 5 s: 1 record to t-0: after 5.0"
        )
        assert "the batch waited for broker 0 to take requests; last error: cannot reach" in told
        assert told.endswith("The batch fails in 55 s (delivery.timeout.ms=60000)")
        assert "waiting for acknowledgments of records for" in repr(producer)
        if restored:
            fake.start_broker(0)
        await flush
        assert (delivery.exception() is None) is restored
        _, over = _told(caplog)
        assert over.startswith("the wait for acknowledgments of records ended after ")


@virtual_time
async def test_a_producer_id_that_does_not_come(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCluster(brokers=1)
    fake.create_topic("t", 1)
    control = fake.control(ApiKey.INIT_PRODUCER_ID, -1, keep=True)
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(20)
        (told,) = _told(caplog)
        assert told.startswith("still waiting for a producer id (idempotence)")
        assert "UNKNOWN_SERVER_ERROR" in told
        assert "producer id" in str(await producer.healthy())
        control.remove()
        await delivery
        assert len(_told(caplog)) == 2


@virtual_time
async def test_a_coordinator_that_does_not_come(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCluster(brokers=1)
    control = fake.control(ApiKey.FIND_COORDINATOR, 15, keep=True)
    asyncio.get_running_loop().call_later(20, control.remove)
    async with Producer(fake.bootstrap, dialer=fake, transactional_id="x") as producer:
        begun, over = _told(caplog)
        assert begun.startswith("still waiting for the coordinator of transaction 'x' after 5 s: ")
        assert "COORDINATOR_NOT_AVAILABLE" in begun
        assert over.startswith("the wait for the coordinator of transaction 'x' ended after 2")
        assert producer.metrics()


@virtual_time
async def test_calls_of_a_reader_and_an_admin_client(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCluster(brokers=1)
    fake.create_topic("t", 1)
    async with (
        Reader(fake.bootstrap, dialer=fake) as reader,
        Admin(fake.bootstrap, dialer=fake) as admin,
    ):
        calls: list[Callable[[], Any]] = [reader.list_topics, admin.list_topics]
        for call, what in zip(
            calls, ("the list of topics", "an answer of the cluster"), strict=True
        ):
            caplog.clear()
            control = fake.control(ApiKey.METADATA, DROP, keep=True)
            asyncio.get_running_loop().call_later(20, control.remove)
            await call()
            begun, over = _told(caplog)
            assert begun.startswith(f"still waiting for {what} after 5 s: ")
            assert over.startswith(f"the wait for {what} ended after ")
