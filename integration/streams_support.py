"""What the tests of streams applications share: running one, waiting, reading committed records."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from kafkaclient.streams import StreamsApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

GUARANTEES = [pytest.param("at_least_once", marks=pytest.mark.full), "exactly_once_v2"]
"""The stronger guarantee in `make test`; both in `make integration`."""


def application(bootstrap: str, topic: str, path: Path, **options: Any) -> StreamsApp:
    """An application named after ``topic``, with ``exactly_once_v2`` unless the options differ."""
    return StreamsApp(
        bootstrap,
        **{
            "application_id": f"app-{topic}",
            "state_dir": path,
            "processing_guarantee": "exactly_once_v2",
            **options,
        },
    )


@asynccontextmanager
async def running(app: StreamsApp) -> AsyncIterator[asyncio.Task[None]]:
    """The asyncio task that runs the application. It is stopped at the end."""
    task = asyncio.create_task(app.run())
    try:
        yield task
    finally:
        app.stop()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()


async def until(
    condition: Callable[[], Awaitable[bool]], running: asyncio.Task[None], seconds: float = 60
) -> None:
    """Wait until the condition holds. Raises the application's error if it ends before."""
    async with asyncio.timeout(seconds):
        while not await condition():
            if running.done():
                running.result()
            await asyncio.sleep(0.2)


def equals(actual: Callable[[], Awaitable[Any]], expected: Any) -> Callable[[], Awaitable[bool]]:
    """A condition for :func:`until`."""

    async def condition() -> bool:
        return bool(await actual() == expected)

    return condition


async def records(
    bootstrap: str, topic: str, partitions: int = 1, *, open_transactions: bool = True
) -> list[Any]:
    """The records of the topic that are committed now.

    Without ``open_transactions``, all records must become committed in 60 s: TimeoutError.
    """
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    uncommitted = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    found = []
    await uncommitted.start()
    await consumer.start()
    try:
        ends = await (consumer if open_transactions else uncommitted).end_offsets(wanted)
        consumer.assign(wanted)
        async with asyncio.timeout(60):
            while any([await consumer.position(tp) < ends[tp] for tp in wanted]):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found += batch
        return found
    finally:
        await consumer.stop()
        await uncommitted.stop()
