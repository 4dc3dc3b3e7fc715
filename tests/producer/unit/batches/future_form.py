"""The forms of deliveries and their futures, for the tests of both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.producer.batches.delivery_future import DeliveryFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOST = KafkaError("lost")


class Form:
    """Deliveries in an event loop of one kind."""

    def __init__(self, *, new_loop: Callable[[], Any]) -> None:
        self.batch_result = BatchResult
        self.future = DeliveryFuture
        self.new_loop = new_loop
        self.reported: list[Any] = []
        """The contexts that the event loop's exception handler was called with."""

    def sent(self, count: int, loop: Any = None, unseen: Any = None) -> tuple[Any, list[Any]]:
        """The result of a batch, and the deliveries of its records."""
        batch_result = self.batch_result("t", unseen)
        batch_result.partition, batch_result.loop = 3, loop
        deliveries = []
        for n in range(count):
            batch_result.count += 1
            deliveries.append(delivery_for_last(batch_result, 1000 + n))
        return batch_result, deliveries

    def split(self, batch_result: Any) -> list[Any]:
        """Split a batch, each record into a batch of its own."""
        parts = []
        for _ in range(batch_result.count):
            part = self.batch_result("t", batch_result.on_unseen)
            part.partition, part.loop, part.count = 3, batch_result.loop, 1
            parts.append(part)
        batch_result.split_into(list(range(batch_result.count)), parts)
        return parts

    def run(self, main: Callable[[Any], Coroutine[Any, Any, None]], *, debug: bool = True) -> None:
        """Run ``main(loop)``."""

        async def reporting() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: self.reported.append(context))
            await main(loop)

        with asyncio.Runner(loop_factory=self.new_loop, debug=debug) as runner:
            runner.run(reporting())


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def wait(awaitable: Any) -> Any:
    return await awaitable
