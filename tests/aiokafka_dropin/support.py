"""What the tests of the drop-in share."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import aiokafka

from kafkaclient.aiokafka import AIOKafkaProducer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kafkaclient.testing.fake import FakeCluster


@asynccontextmanager
async def dropin(fake: FakeCluster, **arguments: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A started drop-in on a fake cluster, which leaves no task behind."""
    before = asyncio.all_tasks()
    arguments = {"bootstrap_servers": fake.bootstrap, "rng": Random(7), **arguments}
    async with AIOKafkaProducer(dialer=fake, **arguments) as producer:
        yield producer
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"tasks survived stop: {left}"


async def made(kind: type[Any], **arguments: Any) -> tuple[type[BaseException], str] | None:
    """What a constructor raises, as (class, text); None if it raises nothing. Warnings are not
    errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            producer = kind(**arguments)
        except Exception as error:  # noqa: BLE001 - it is compared
            return type(error), str(error)
        await producer.stop()
    return None


async def same(**arguments: Any) -> tuple[type[BaseException], str]:
    """The error that both constructors raise for these arguments."""
    theirs = await made(aiokafka.AIOKafkaProducer, **arguments)
    ours = await made(AIOKafkaProducer, **arguments)
    assert theirs is not None
    assert ours == theirs
    return theirs
