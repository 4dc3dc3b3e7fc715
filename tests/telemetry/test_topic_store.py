"""The small producer that sends telemetry to a topic."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafkaclient import Producer
from kafkaclient.config import ProducerConfig
from kafkaclient.telemetry.format import BatchColumns
from kafkaclient.telemetry.recorder import TelemetryPart
from kafkaclient.telemetry.stores import TopicStore
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.telemetry.support import batch

if TYPE_CHECKING:
    import pytest


async def written() -> tuple[FakeCluster, TopicStore, TelemetryPart]:
    """A store that has written the part."""
    fake = FakeCluster(1)
    fake.create_topic("facts", 1)
    config = ProducerConfig.build(fake.bootstrap, {})
    store = TopicStore("facts", config, 1.0, lambda options: Producer(dialer=fake, **options))
    columns = BatchColumns("me", 0.0, acks=True)
    columns.append([batch()])
    part = TelemetryPart("batches-me-1", datetime(2026, 1, 1, tzinfo=UTC), columns, {})
    await store.write(part)
    return fake, store, part


@virtual_time
async def test_a_producer_whose_tasks_were_cancelled_is_replaced() -> None:
    """A program that ends cancels all tasks, and then stops its producer."""
    fake, store, part = await written()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    await store.write(part)
    await store.close()
    assert len(fake.log("facts", 0)) == 2


@virtual_time
async def test_a_producer_that_cannot_be_stopped_is_logged(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, store, _ = await written()
    real = Producer.stop

    async def fail(producer: Producer, timeout: float | None = None) -> None:
        await real(producer, timeout)
        raise OSError("no more")

    monkeypatch.setattr(Producer, "stop", fail)
    await store.close()
    assert "could not be stopped" in caplog.text
