"""The counts in a client's changelog, which another client's consumer reads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Counts", "Wrong"]

_READ_WITHIN_S = 600.0
_MOST_EXAMPLES = 10
_FETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wrong:
    """The words whose count is not right."""

    words: int
    missing: int
    """Occurrences that were not counted."""
    surplus: int
    """Occurrences that were counted more than once."""
    examples: tuple[str, ...]


@dataclass(slots=True)
class Counts:
    """The last committed count of each word. :meth:`read` goes on where it ended."""

    bootstrap: str
    decode: Callable[[bytes, bytes], tuple[str, int]]
    last: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    """Records of the changelog."""
    _positions: dict[int, int] = field(default_factory=dict)

    def add(self, key: bytes, value: bytes) -> None:
        """Take the next record of the changelog."""
        word, count = self.decode(key, value)
        self.last[word] = count
        self.changes += 1

    def wrong(self, expected: Mapping[str, int]) -> Wrong:
        """The difference to the right counts."""
        differences = {
            word: self.last.get(word, 0) - expected.get(word, 0)
            for word in sorted(self.last.keys() | expected.keys())
            if self.last.get(word, 0) != expected.get(word, 0)
        }
        return Wrong(
            len(differences),
            -sum(d for d in differences.values() if d < 0),
            sum(d for d in differences.values() if d > 0),
            tuple(
                f"{word}: {self.last.get(word, 0)} instead of {expected.get(word, 0)}"
                for word in list(differences)[:_MOST_EXAMPLES]
            ),
        )

    async def read(self, topic: str) -> int:
        """Read what has been committed since the last call; the sum of all counts.

        Raises TimeoutError if the end cannot be reached.
        """
        module = import_module("aiokafka")
        consumer = module.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=_FETCH_BYTES,
        )
        await consumer.start()
        try:
            async with asyncio.timeout(_READ_WITHIN_S):
                await self._read(module, consumer, topic)
        finally:
            await consumer.stop()
        return sum(self.last.values())

    async def _read(self, module: Any, consumer: Any, topic: str) -> None:
        consumer.subscribe([topic])
        while not (numbers := consumer.partitions_for_topic(topic)):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
        consumer.unsubscribe()
        partitions = [module.TopicPartition(topic, number) for number in numbers]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, self._positions.get(partition.partition, 0))
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    if record.key is not None and record.value is not None:
                        self.add(record.key, record.value)
        for partition in partitions:
            self._positions[partition.partition] = await consumer.position(partition)
