"""An async serializer for tests, and what the tests of serializers share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.producer.support import values_of

if TYPE_CHECKING:
    from kafkaclient import SerializationContext
    from kafkaclient.testing.fake import FakeCluster


class FirstUse:
    """Async for each schema's first values, until :meth:`answer`; then sync. A value is
    ``schema:text``; ``schema:poison`` cannot be serialized."""

    def __init__(self) -> None:
        self.known: dict[str, asyncio.Event] = {}
        self.cancelled = 0
        self.calls: list[str] = []

    def answer(self, schema: str) -> None:
        self.known.setdefault(schema, asyncio.Event()).set()

    def serialize(self, value: str, context: SerializationContext) -> Any:
        schema, _, text = value.partition(":")
        known = self.known.setdefault(schema, asyncio.Event())
        self.calls.append(value)
        context.headers.append((f"{context.field}-schema", schema.encode()))
        return self._bytes(text) if known.is_set() else self._later(known, text)

    async def _later(self, known: asyncio.Event, text: str) -> bytes:
        try:
            await known.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self._bytes(text)

    def _bytes(self, text: str) -> bytes:
        if text == "poison":
            raise ZeroDivisionError("poison")
        return text.encode()


def texts(fake: FakeCluster, topic: str = "t") -> list[str]:
    return [(value or b"").decode() for value in values_of(fake, topic)]


async def passes(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
