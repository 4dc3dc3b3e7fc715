"""The rows that were sent, and what has become of them in the sink."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.producer.batches.delivery import Delivery

__all__ = ["Load", "Outcome"]

_TICK_S = 0.02
_MOST_EXAMPLES = 20
_DELIVERY_TIMEOUT_MS = 600_000  # longer than any fault


class Load:
    """Sends numbered rows of ``keys`` keys, in turn, to the source; a key's rows are numbered from
    0, and each key has a partition of its own choice, also after partitions were added.

    ``sent`` counts acknowledged rows by key.
    """

    def __init__(self, bootstrap: str, topic: str, *, keys: int, partitions: int, rate: float):
        self.sent: Counter[bytes] = Counter()
        self._bootstrap = bootstrap
        self._topic = topic
        self._keys = [b"key-%d" % number for number in range(keys)]
        self._partitions = partitions
        self._rate = rate
        self._stopped = asyncio.Event()
        self._failed: BaseException | None = None

    async def run(self) -> None:
        """Send until :meth:`stop`; returns when every row is acknowledged. Raises KafkaError for a
        row that was not."""
        clock = asyncio.get_running_loop().time
        numbers: Counter[bytes] = Counter()
        limit = _DELIVERY_TIMEOUT_MS
        async with Producer(self._bootstrap, delivery_timeout_ms=limit, linger_ms=5) as producer:
            begins, handed = clock(), 0
            while not self._stopped.is_set() and self._failed is None:
                due = int((clock() - begins) * self._rate)
                for row in range(handed, due):
                    place = row % len(self._keys)
                    key = self._keys[place]
                    delivery = await producer.send(
                        self._topic, b"%d" % numbers[key], key, partition=place % self._partitions
                    )
                    numbers[key] += 1
                    delivery.add_done_callback(partial(self._acked, key))
                handed = due
                await asyncio.sleep(_TICK_S)
            await producer.flush()
        if self._failed is not None:
            raise self._failed

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


class Outcome:
    """Compares the rows of the sink with those that were sent.

    A row counts as out of order if it comes, for the first time, behind a later row of its key in
    its partition.
    """

    def __init__(self) -> None:
        self.repeated = self.reordered = self.unexpected = self.missing = 0
        self.examples: list[str] = []
        self._seen: defaultdict[bytes, set[int]] = defaultdict(set)
        self._last: dict[tuple[int, bytes], int] = {}

    @property
    def rows(self) -> int:
        """Different rows in the sink."""
        return sum(map(len, self._seen.values()))

    def add(self, records: Sequence[Any]) -> None:
        """Take the next records of one partition, as aiokafka's consumer has them."""
        for record in records:
            number, seen = int(record.value), self._seen[record.key]
            if number in seen:
                self.repeated += 1
                continue
            seen.add(number)
            place = (record.partition, record.key)
            if number < self._last.get(place, -1):
                self.reordered += 1
                self._example(f"row {number} of {record.key!r} is behind row {self._last[place]}")
            else:
                self._last[place] = number

    def end(self, sent: Mapping[bytes, int]) -> None:
        """Compare with the rows that were acknowledged, when all were taken."""
        for key, count in sent.items():
            wanted, found = set(range(count)), self._seen.get(key, set())
            if missing := wanted - found:
                self.missing += len(missing)
                self._example(f"{len(missing)} rows of {key!r} are missing, from {min(missing)} on")
        for key, found in self._seen.items():
            if unexpected := found - set(range(sent.get(key, 0))):
                self.unexpected += len(unexpected)
                self._example(f"{len(unexpected)} rows of {key!r} were never acknowledged")

    def _example(self, text: str) -> None:
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(text)
