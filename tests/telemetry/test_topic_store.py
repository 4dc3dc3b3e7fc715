"""The small producer that sends telemetry to a topic."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafkaclient import Producer
from kafkaclient.config import ProducerConfig
from kafkaclient.telemetry.format import Columns
from kafkaclient.telemetry.part import Part
from kafkaclient.telemetry.topic_store import TopicStore
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from kafkaclient.hooks import FinishedBatch


async def written(batch: Callable[..., FinishedBatch]) -> tuple[FakeCluster, TopicStore, Part]:
    """A store that has written the part."""
    fake = FakeCluster(1)
    fake.create_topic("facts", 1)
    config = ProducerConfig.build(fake.bootstrap, {})
    store = TopicStore("facts", config, 1.0, lambda options: Producer(dialer=fake, **options))
    columns = Columns("me", 0.0, acks=True)
    columns.append([batch()])
    part = Part("batches-me-1", datetime(2026, 1, 1, tzinfo=UTC), columns, {})
    await store.write(part)
    return fake, store, part


@virtual_time
async def test_a_producer_whose_tasks_were_cancelled_is_replaced(
    batch: Callable[..., FinishedBatch],
) -> None:
    """A program that ends cancels all tasks, and then stops its producer."""
    fake, store, part = await written(batch)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)
    await store.write(part)
    await store.close()
    assert len(fake.log("facts", 0)) == 2


@virtual_time
async def test_a_producer_that_cannot_be_stopped_is_logged(
    batch: Callable[..., FinishedBatch],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, store, _ = await written(batch)
    real = Producer.stop

    async def fail(producer: Producer, timeout: float | None = None) -> None:
        await real(producer, timeout)
        raise OSError("no more")

    monkeypatch.setattr(Producer, "stop", fail)
    await store.close()
    assert "could not be stopped" in caplog.text
