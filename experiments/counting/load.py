"""The input of the instances: their state at the start, and records at a steady rate."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafkaclient.producer.producer import Producer
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.producer.batches.delivery import Delivery

__all__ = ["Load", "LoadSpec", "key_of"]

_TICK_S = 0.01
_CHUNK = 10_000


def key_of(number: int) -> bytes:
    """The key with this number, from 0."""
    return b"key-%07d" % number


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """What is sent."""

    keys: int
    """Different keys."""
    value_size: int
    """Bytes of a key's value in the state at the start."""
    tasks: int
    """Partitions of the source."""
    rate: float
    """Records per second, spread evenly over all tasks."""
    seed: int


class Load:
    """Sends records to the application's source; ``sent`` counts acknowledged ones by key."""

    def __init__(self, spec: LoadSpec, bootstrap: str, source: str) -> None:
        self.sent: Counter[bytes] = Counter()
        self.prefilled = 0
        self._stopped = asyncio.Event()
        self._failed: BaseException | None = None
        self._spec = spec
        self._bootstrap = bootstrap
        self._source = source

    async def prefill_changelog(self, changelog: str) -> None:
        """Write a state to the changelog in which each key was counted 0 times."""
        value = bytes(8) + os.urandom(max(0, self._spec.value_size - 8))
        await self._prefill(changelog, value)

    async def prefill_source(self) -> None:
        """Send a record of each key, from which instances make their state."""
        await self._prefill(self._source, b"")
        self.sent.update(key_of(number) for number in range(self._spec.keys))

    async def _prefill(self, topic: str, value: bytes) -> None:
        async with Producer(self._bootstrap) as producer:
            for first in range(0, self._spec.keys, _CHUNK):
                keys = [key_of(n) for n in range(first, min(first + _CHUNK, self._spec.keys))]
                await (await producer.send_many(topic, [value] * len(keys), keys=keys))
                self.prefilled += len(keys)

    async def run(self) -> None:
        """Send until :meth:`stop`; returns when every record is acknowledged.

        A partition that cannot be written does not hold the others up. Raises KafkaError for a
        record that cannot be sent.
        """
        clock, spec = asyncio.get_running_loop().time, self._spec
        keys = self.keys()
        async with Producer(self._bootstrap, linger_ms=5) as producer:
            begins, handed = clock(), 0
            while not self._stopped.is_set() and self._failed is None:
                due = int((clock() - begins) * spec.rate)
                for _ in range(due - handed):
                    key = next(keys)
                    delivery = await producer.send(self._source, b"", key)
                    delivery.add_done_callback(partial(self._acked, key))
                handed = due
                await asyncio.sleep(_TICK_S)
            await producer.flush()
        if self._failed is not None:
            raise self._failed

    def keys(self) -> Iterator[bytes]:
        """Random keys without end, of each partition in turn."""
        rng, spec = Random(self._spec.seed), self._spec
        while True:
            for task in range(min(spec.tasks, spec.keys)):
                key = key_of(rng.randrange(spec.keys))
                for _ in range(spec.tasks * 10):  # with few keys a partition may have none
                    if partition_for_key(key, spec.tasks) == task:
                        break
                    key = key_of(rng.randrange(spec.keys))
                yield key

    def _acked(self, key: bytes, delivery: Delivery) -> None:
        if delivery.cancelled():
            return
        if (error := delivery.exception()) is not None:
            self._failed = self._failed or error
        else:
            self.sent[key] += 1

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._stopped.set()
