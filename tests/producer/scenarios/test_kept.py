"""The delivery timeout of records of ``send_nowait`` that were kept until the metadata came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import DeliveryTimeoutError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, FakeCluster
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now

if TYPE_CHECKING:
    from tests.producer.support import StartProducer

OPTIONS: dict[str, Any] = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1000, "linger_ms": 0}


async def _seconds(delivery: Any, sent_at: float) -> float:
    """How long after ``sent_at`` the delivery has failed."""
    with pytest.raises(DeliveryTimeoutError):
        await delivery
    return now() - sent_at


@virtual_time
async def test_the_time_before_the_metadata_counts(producing: StartProducer) -> None:
    """The batch of the kept record expires before an older batch of another topic."""
    fake = FakeCluster(1, auto_create_topics=False)
    fake.create_topic("known", 1)
    loop = asyncio.get_running_loop()
    async with producing(fake, **OPTIONS) as producer:
        await producer.send_and_wait("known", b"warm")
        fake.control(ApiKey.PRODUCE, DROP, keep=True)
        sent_at = loop.time()
        loop.call_later(1.4, fake.create_topic, "late", 1)
        kept = asyncio.create_task(_seconds(producer.send_nowait("late", b"kept"), sent_at))
        await asyncio.sleep(1)
        other = asyncio.create_task(_seconds(producer.send_nowait("known", b"v"), loop.time()))
        assert await kept == pytest.approx(2, abs=0.05)
        assert await other == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("way", ["send", "send_nowait"])
@virtual_time
async def test_a_kept_record_shares_no_batch_with_one_that_has_more_time(
    producing: StartProducer, way: str
) -> None:
    fake = FakeCluster(1, auto_create_topics=False)
    loop = asyncio.get_running_loop()

    async def send(producer: Any) -> float:
        called_at = loop.time()
        delivery = producer.send_nowait("t", b"x") if way == "send_nowait" else None
        if delivery is None:
            delivery = await producer.send("t", b"x")
            called_at = loop.time()
        return await _seconds(delivery, called_at)

    async with producing(fake, **OPTIONS) as producer:
        fake.control(ApiKey.PRODUCE, DROP, keep=True)
        loop.call_later(1.4, fake.create_topic, "t", 1)
        early = asyncio.create_task(send(producer))
        await asyncio.sleep(0)
        kept = asyncio.create_task(_seconds(producer.send_nowait("t", b"kept"), 0.0))
        await asyncio.sleep(1)
        late = asyncio.create_task(send(producer))
        assert await kept == pytest.approx(2, abs=0.05)
        assert await early == pytest.approx(2, abs=0.05)
        assert await late == pytest.approx(2, abs=0.05)
