"""The worker: topics, producers, consumers and the load, as the driver asks for them."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import random
import time
from contextlib import AsyncExitStack
from functools import partial
from itertools import count, cycle
from typing import TYPE_CHECKING, Any

import javaproperties
import yaml

from experiments.openmessaging.stats import WorkerStats
from kafkaclient import Consumer, Producer
from kafkaclient.admin import Admin, NewTopic
from kafkaclient.errors import BufferFullError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.reader.batch import FetchedBatch

__all__ = ["Worker"]

_TURN = 100
"""Records that are sent before other tasks have a turn."""
_KEYS = 10_000
_TIMER_S = 0.001
"""The event loop's shortest timer: uvloop does not wait at all for less than half of it."""

log = logging.getLogger(__name__)


class Worker:
    """Java: ``io.openmessaging.benchmark.worker.LocalWorker`` with the driver for Kafka.

    ``initialize``, then topics, consumers, producers, and the load; ``stop`` ends it all, and the
    next benchmark can begin. A producer and a consumer of their own for each name in the lists.
    """

    def __init__(self) -> None:
        self.stats = WorkerStats()
        self._options: dict[str, dict[str, str]] = {}
        self._replicas = 1
        self._clients = AsyncExitStack()
        self._producers: list[tuple[Producer, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._rate = _Rate(1.0)

    def initialize(self, text: str) -> None:
        """Take the driver's YAML file, of which ``driverClass`` has no meaning here."""
        given = yaml.safe_load(text)
        common = javaproperties.loads(given.get("commonConfig") or "")
        for kind in ("producer", "consumer"):
            own = javaproperties.loads(given.get(f"{kind}Config") or "")
            self._options[kind] = common | own
        self._options |= {
            "common": common,
            "topic": javaproperties.loads(given.get("topicConfig") or ""),
        }
        self._replicas = int(given.get("replicationFactor", 1))

    async def create_topics(self, topics: int, partitions: int) -> list[str]:
        """New topics, whose names are returned. Raises the first error."""
        names = [f"test-topic-{number:07d}-{os.urandom(4).hex()}" for number in range(topics)]
        configs = self._options["topic"]
        async with Admin(self._options["common"]) as admin:
            made = await admin.create_topics(
                NewTopic(name, partitions, self._replicas, configs) for name in names
            )
        for error in made.values():
            if error is not None:
                raise error
        return names

    async def create_producers(self, topics: Sequence[str]) -> None:
        for topic in topics:
            producer = Producer(self._options["producer"])
            await self._clients.enter_async_context(producer)
            self._producers.append((producer, topic))

    async def create_consumers(self, subscriptions: Sequence[Mapping[str, str]]) -> None:
        for each in subscriptions:
            options = {**self._options["consumer"], "group.id": each["subscription"]}
            consumer = Consumer(options, topics=[each["topic"]])
            await self._clients.enter_async_context(consumer)
            self._begin(self._consume(consumer))

    async def probe(self) -> None:
        """Send a record with each producer, without waiting for it."""
        for producer, topic in self._producers:
            delivery = await producer.send(topic, bytes(10), key=b"key")
            delivery.add_done_callback(self._probed)

    def start_load(self, payloads: Sequence[str], rate: float, keys: str) -> None:
        """Send the payloads (base64) again and again with all producers, at one rate together."""
        self.adjust_rate(rate)
        values = [base64.b64decode(payload) for payload in payloads]
        self._begin(self._send(values, _keys(keys)))

    def adjust_rate(self, rate: float) -> None:
        self._rate = _Rate(max(1.0, rate))

    def pause(self) -> None:
        """Consumers take no further batch."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    async def stop(self) -> None:
        """End the load, and stop all clients."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        clients, self._clients = self._clients, AsyncExitStack()
        self._producers = []
        await clients.aclose()
        self._flowing.set()
        self.stats.reset()

    def _begin(self, running: Any) -> None:
        task = asyncio.create_task(running)
        self._tasks.add(task)
        task.add_done_callback(_tell)

    def _probed(self, delivery: Delivery) -> None:
        if (error := delivery.exception()) is None:
            self.stats.probed()
        else:
            log.warning("a probe failed: %s", error)

    async def _send(self, values: list[bytes], keys: Iterator[bytes | None]) -> None:
        if not self._producers:  # other workers have them
            return
        clients = cycle(self._producers)
        while True:
            for _ in range(_TURN):
                intended = self._rate.take()
                while (early := intended - time.perf_counter()) > 0:  # noqa: ASYNC110 - a time
                    await asyncio.sleep(max(early, _TIMER_S))
                producer, topic = next(clients)
                value, key = random.choice(values), next(keys)
                started = time.perf_counter()
                try:
                    try:
                        delivery = producer.send_nowait(topic, value, key)
                    except BufferFullError:
                        delivery = await producer.send(topic, value, key)
                except KafkaError as error:
                    self.stats.failed()
                    log.warning("a record was not taken: %s", error)
                else:
                    answered = partial(self._count, len(value), intended, started)
                    delivery.add_done_callback(answered)
            await asyncio.sleep(0)

    def _count(self, nbytes: int, intended: float, started: float, delivery: Delivery) -> None:
        if (error := delivery.exception()) is None:
            self.stats.sent(nbytes, intended, started, time.perf_counter())
        else:
            self.stats.failed()
            log.warning("a record failed: %s", error)

    async def _consume(self, consumer: Consumer) -> None:
        """Read, and commit what was read without waiting for it, as the driver for Java does."""
        committing: asyncio.Task[None] | None = None
        given = self._options["consumer"].get("enable.auto.commit", "false")
        own_commits = given.lower() != "true"
        while True:
            try:
                async for batch in consumer.batches():
                    self._received(batch)
                    if own_commits and (committing is None or committing.done()):
                        committing = asyncio.create_task(_committed(consumer))
                    await self._flowing.wait()
            except KafkaError as error:
                log.warning("records could not be read: %s", error)
                await asyncio.sleep(1)
            else:
                return

    def _received(self, batch: FetchedBatch) -> None:
        now = time.time() * 1e3
        for record in batch:
            us = int(now - record.timestamp) * 1000
            self.stats.received(1, len(record.value or b""), us)


class _Rate:
    """When records are due. Java: ``UniformRateLimiter``."""

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1 / per_s
        self._start: float | None = None
        self._numbers = count()

    def take(self) -> float:
        """When the next record is due, by ``time.perf_counter()``."""
        if self._start is None:
            self._start = time.perf_counter()
        return self._start + next(self._numbers) * self._interval_s


def _keys(kind: str) -> Iterator[bytes | None]:
    """Java: ``KeyDistributor``. Unknown kinds have no keys, as there."""
    keys = [base64.urlsafe_b64encode(os.urandom(7)).rstrip(b"=") for _ in range(_KEYS)]
    if kind == "KEY_ROUND_ROBIN":
        return cycle(keys)
    if kind == "RANDOM_NANO":
        return (random.choice(keys) for _ in count())
    return cycle([None])


async def _committed(consumer: Consumer) -> None:
    try:
        await consumer.commit()
    except KafkaError as error:
        log.warning("a commit failed: %s", error)


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the load has ended: %s", error, exc_info=error)
