"""The records that the group consumes, and where in the log each one is."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.producer.batches.delivery import Delivery

__all__ = ["Load", "Log", "read_value"]

_TICK_S = 0.01
_KEYS = 5_000


class Log(NamedTuple):
    """A partition of a topic. A topic that is created again has the next ``life``, from 0."""

    topic: str
    life: int
    partition: int


def read_value(value: bytes) -> tuple[int, int]:
    """The life of the topic that a record was sent to, and the record's number."""
    life, number = value.split(b":")
    return int(life), int(number)


class Load:
    """Sends numbered records with keys to the topics in turn, at a steady rate.

    ``acked`` has the number of each acknowledged record, by partition and offset.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], rate: float, seed: int) -> None:
        self.acked: dict[Log, dict[int, int]] = {}
        self.lives = Counter(dict.fromkeys(topics, 0))
        self._bootstrap = bootstrap
        self._rate = rate
        self._rng = Random(f"consumer-chaos load {seed}")
        self._held: set[str] = set()
        self._open: Counter[str] = Counter()
        self._outcome = asyncio.Event()
        self._stopped = asyncio.Event()
        self._failed: BaseException | None = None

    @property
    def records(self) -> int:
        return sum(map(len, self.acked.values()))

    async def run(self) -> None:
        """Send until :meth:`stop`; returns when every record is acknowledged. Raises KafkaError for
        a record that cannot be sent."""
        clock, topics = asyncio.get_running_loop().time, list(self.lives)
        async with Producer(self._bootstrap, linger_ms=5) as producer:
            begins, handed = clock(), 0
            while not self._stopped.is_set() and self._failed is None:
                due = int((clock() - begins) * self._rate)
                for number in range(handed, due):
                    topic = topics[number % len(topics)]
                    if topic in self._held:
                        continue
                    life = self.lives[topic]
                    self._open[topic] += 1
                    key = b"%d" % self._rng.randrange(_KEYS)
                    delivery = await producer.send(topic, b"%d:%d" % (life, number), key)
                    delivery.add_done_callback(partial(self._done, topic, life, number))
                handed = due
                await asyncio.sleep(_TICK_S)
            await producer.flush()
        if self._failed is not None:
            raise self._failed

    def _done(self, topic: str, life: int, number: int, delivery: Delivery) -> None:
        self._open[topic] -= 1
        self._outcome.set()
        if delivery.cancelled():
            return
        if (error := delivery.exception()) is not None:
            self._failed = self._failed or error
            return
        metadata = delivery.result()
        log = Log(topic, life, metadata.partition)
        self.acked.setdefault(log, {})[metadata.offset] = number

    async def hold(self, topic: str) -> None:
        """Send no more to the topic; returns when all its records are acknowledged."""
        self._held.add(topic)
        while self._open[topic]:
            self._outcome.clear()
            await self._outcome.wait()

    def resume(self, topic: str) -> None:
        """Send again, to the topic's next life."""
        self.lives[topic] += 1
        self._held.discard(topic)

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._stopped.set()
