"""Calls of ``SyncProducer`` that wait, and threads that must not."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from kafkaclient import SyncProducer
from kafkaclient.errors import (
    DeliveryTimeoutError,
    FlushTimeoutError,
    ProducerClosedError,
    ProducerStateError,
)
from tests.sync.support import one_topic, stalled, values

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_flush_that_ends_too_early_names_the_records() -> None:
    fake, producer = stalled(max_request_size=1000)
    future = producer.send("t", b"x")
    with pytest.raises(FlushTimeoutError) as caught:
        producer.flush(0.2)
    assert caught.value.undelivered == 1
    with pytest.raises(TimeoutError):
        future.result(0.01)
    fake.resume_broker(0)
    producer.flush(10)
    assert future.result(0).offset == 1
    producer.close()


async def test_in_the_thread_of_an_event_loop() -> None:
    fake = one_topic()
    producer = SyncProducer(fake.bootstrap, dialer=fake)
    metadata = await asyncio.wrap_future(producer.send("t", b"x"))
    assert metadata.offset == 0
    calls: list[Callable[[], object]] = [
        producer.start,
        producer.flush,
        producer.close,
        producer.metrics,
        lambda: producer.send_and_wait("t", b"y"),
        lambda: producer.partitions_for("t"),
        producer.healthy,
        lambda: producer.send("t", b"z").result(),
    ]
    for call in calls:
        with pytest.raises(ProducerStateError, match="event loop"):
            call()
    assert await asyncio.to_thread(producer.close) == 0
    assert values(fake) == [b"x", b"z"]


def test_a_delivery_timeout_fails_the_future() -> None:
    limits = {"request_timeout_ms": 500, "delivery_timeout_ms": 1000}  # enough for the start
    fake, producer = stalled(max_request_size=1000, **limits)
    assert isinstance(producer.send("t", b"x").exception(20), DeliveryTimeoutError)
    fake.resume_broker(0)
    producer.close()


def test_a_defect_of_the_thread_fails_everything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    fake = one_topic()
    producer = SyncProducer(fake.bootstrap, dialer=fake)
    producer.start()
    thread = producer._thread
    assert thread is not None

    def fail() -> None:
        raise LookupError("a defect")

    monkeypatch.setattr(thread.handover, "take", fail)
    producer.send("t", b"x")
    with pytest.raises(LookupError):
        thread.ended.result(10)
    with pytest.raises(ProducerClosedError, match="defect"):
        producer.send("t", b"y")
