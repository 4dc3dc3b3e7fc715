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
from kafkaclient.errors import BootstrapError
from kafkaclient.reader import Reader
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster

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
        for _ in range(40):
            if sending:
                deliveries.append(producer.send_nowait("t", b"meanwhile"))
            await asyncio.sleep(30)
        lines = [(r.levelname, r.getMessage()) for r in caplog.records]
        assert max(Counter(lines).values()) == 1, "no line twice"
        levels = Counter(level for level, _ in lines)
        assert levels["WARNING"] <= 7
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
    assert len(caplog.records) <= 1  # the first failure; the last one is raised


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
