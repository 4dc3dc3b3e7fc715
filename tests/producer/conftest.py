"""Whole producers on the fake cluster: started with a fixed seed, and looked over at the end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from kafkaclient.producer.delivery import Delivery
    from kafkaclient.testing.fake import FakeCluster


@pytest.fixture(scope="module", autouse=True)
def asyncio_debug(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whole-producer tests run in asyncio's debug mode; it sees calls from a wrong thread."""
    with pytest.MonkeyPatch.context() as patch:
        if "test_e2e_" in request.path.name and "order_property" not in request.path.name:
            patch.setenv("PYTHONASYNCIODEBUG", "1")
        yield


@pytest.fixture
def producing() -> Callable[..., AbstractAsyncContextManager[Producer]]:
    """``async with producing(fake, **options) as producer``: started, and stopped at the end.

    A producer that was stopped must have given back all its memory, and left no task and no
    timer in the loop.
    """

    @asynccontextmanager
    async def started(fake: FakeCluster, **options: Any) -> AsyncIterator[Producer]:
        options.setdefault("rng", Random(7))
        before = asyncio.all_tasks()
        async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
            yield producer
        budget = producer._accumulator.budget
        assert budget.available == budget.total, f"memory is not given back: {producer!r}"
        assert budget.waiting == 0
        left = asyncio.all_tasks() - before - {asyncio.current_task()}
        assert not left, f"tasks survived stop: {left}"

    return started


@pytest.fixture
def outcomes() -> Callable[[Sequence[Delivery]], Any]:
    """``await outcomes(deliveries)``: what each ended with, RecordMetadata or its error."""

    async def gathered(deliveries: Sequence[Delivery]) -> list[Any]:
        return await asyncio.gather(*deliveries, return_exceptions=True)

    return gathered


@pytest.fixture
def values() -> Callable[..., list[bytes | None]]:
    """``values(fake, "t", 0)``: the values in a partition's log, in order."""

    def of(fake: FakeCluster, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in fake.log(topic, partition)]

    return of
