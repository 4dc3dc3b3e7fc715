"""The input of the instances: their state at the start, and records at a steady rate."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from experiments.task_handover.plan import Plan

__all__ = ["Load", "key_of"]

_TICK_S = 0.01
_CHUNK = 10_000


def key_of(number: int) -> bytes:
    """The key with this number, from 0."""
    return b"key-%07d" % number


class Load:
    """Sends records to the application's source; ``sent`` counts acknowledged ones by key."""

    def __init__(self, plan: Plan, bootstrap: str, source: str) -> None:
        self.sent: Counter[bytes] = Counter()
        self.prefilled = 0
        self._stopped = False
        self._plan = plan
        self._bootstrap = bootstrap
        self._source = source

    async def prefill_changelog(self, changelog: str) -> None:
        """Write a state to the changelog in which each key was counted 0 times."""
        value = bytes(8) + os.urandom(max(0, self._plan.value_size - 8))
        await self._prefill(changelog, value)

    async def prefill_source(self) -> None:
        """Send a record of each key, from which instances make their state."""
        await self._prefill(self._source, b"")
        self.sent.update(key_of(number) for number in range(self._plan.keys))

    async def _prefill(self, topic: str, value: bytes) -> None:
        async with Producer(self._bootstrap) as producer:
            for first in range(0, self._plan.keys, _CHUNK):
                keys = [key_of(n) for n in range(first, min(first + _CHUNK, self._plan.keys))]
                await (await producer.send_many(topic, [value] * len(keys), keys=keys))
                self.prefilled += len(keys)

    async def run(self) -> None:
        """Send until :meth:`stop`; returns when every record is acknowledged.

        Raises KafkaError for a record that cannot be sent.
        """
        rng, clock = Random(self._plan.seed), asyncio.get_running_loop().time
        async with Producer(self._bootstrap, linger_ms=5) as producer:
            begins, handed = clock(), 0
            while not self._stopped:
                due = int((clock() - begins) * self._plan.rate)
                keys = [key_of(rng.randrange(self._plan.keys)) for _ in range(due - handed)]
                handed = due
                deliveries = [await producer.send(self._source, b"", key) for key in keys]
                await asyncio.gather(*deliveries)
                self.sent.update(keys)
                await asyncio.sleep(_TICK_S)

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._stopped = True
