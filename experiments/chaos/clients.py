"""The clients of a campaign behind one protocol: each record has its topic, key and partition."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from benchmarks.perf_peers import aiokafka_options, import_peer
from experiments.clients import OURS
from kafkaclient.errors import BrokerError, KafkaError
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.producer.batches.delivery import Delivery

__all__ = ["CLIENTS", "DROP_IN", "ChaosClient", "Done", "cause_of", "make_client"]

Done: TypeAlias = "Callable[[BaseException | None, int, int], None]"
"""``done(error, partition, offset)``: a record's outcome; a number that is not known is -1."""

DROP_IN = "drop-in"
"""This package's producer behind aiokafka's API."""

_DRAIN_EVERY_S = 0.002
_FULL_PAUSE_S = 0.001
_CRITICAL = 2


class ChaosClient(Protocol):
    """One producer of a client."""

    async def start(self) -> None: ...

    async def send(
        self, topic: str, value: bytes, key: bytes | None, partition: int | None, done: Done
    ) -> None:
        """Take a record, waiting for buffer space; an exception counts as the record's failure."""

    async def stop(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until every record has its outcome; disconnect."""

    def retried(self) -> int | None:
        """The number of times that a record was sent again; None if the client does not count."""


class KafkaclientClient:
    """This package's producer."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._producer = Producer(config)

    async def start(self) -> None:
        await self._producer.start()

    async def send(
        self, topic: str, value: bytes, key: bytes | None, partition: int | None, done: Done
    ) -> None:
        delivery = await self._producer.send(topic, value, key, partition=partition)
        delivery.add_done_callback(partial(_delivered, done))

    async def stop(self, timeout: float) -> None:
        await self._producer.stop(timeout)
        await asyncio.sleep(0)  # the callbacks run in the event loop's next iteration

    def retried(self) -> int | None:
        return int(self._producer.metrics().producer["record-retry-total"])


def _delivered(done: Done, delivery: Delivery) -> None:
    error = delivery.exception()
    if error is not None:
        done(error, -1, -1)
    else:
        metadata = delivery.result()
        done(None, metadata.partition, metadata.offset)


class AiokafkaClient:
    """The ``AIOKafkaProducer`` of a module: aiokafka's own, or the drop-in."""

    def __init__(self, module: str, config: Mapping[str, str]) -> None:
        self._module = import_peer(module)
        self._options = aiokafka_options(config)
        self._producer: Any = None

    async def start(self) -> None:
        self._producer = self._module.AIOKafkaProducer(**self._options)
        await self._producer.start()

    async def send(
        self, topic: str, value: bytes, key: bytes | None, partition: int | None, done: Done
    ) -> None:
        future = await self._producer.send(topic, value, key=key, partition=partition)
        future.add_done_callback(partial(_future_done, done))

    async def stop(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._producer.flush()
                await self._producer.stop()
        except TimeoutError:
            pass  # records without an outcome count as unresolved

    def retried(self) -> int | None:
        return None


def _future_done(done: Done, future: asyncio.Future[Any]) -> None:
    if future.cancelled():
        done(asyncio.CancelledError(), -1, -1)
    elif (error := future.exception()) is not None:
        done(error, -1, -1)
    else:
        done(None, future.result().partition, future.result().offset)


class ConfluentClient:
    """confluent-kafka's ``Producer``: librdkafka, which a thread polls."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._confluent = import_peer("confluent_kafka")
        self._config = {
            "acks": "all",
            "enable.idempotence": "true",
            "linger.ms": "5",
            "delivery.timeout.ms": "120000",
            **config,
            "log_level": _CRITICAL,
            "error_cb": lambda _error: None,  # the records' outcomes have the errors that count
        }
        self._answers: deque[tuple[Done, BaseException | None, int, int]] = deque()
        self._producer: Any = None
        self._stopping = False
        self._poller: Thread | None = None
        self._drainer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._producer = self._confluent.Producer(self._config)
        self._poller = Thread(target=self._poll, name="confluent-poll", daemon=True)
        self._poller.start()
        self._drainer = asyncio.create_task(self._drain_regularly())
        await asyncio.to_thread(self._producer.list_topics, timeout=10.0)

    async def send(
        self, topic: str, value: bytes, key: bytes | None, partition: int | None, done: Done
    ) -> None:
        where = {} if partition is None else {"partition": partition}
        answered = partial(self._answered, done)
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=answered, **where)
            except BufferError:
                await asyncio.sleep(_FULL_PAUSE_S)
            else:
                return

    async def stop(self, timeout: float) -> None:
        await asyncio.to_thread(self._producer.flush, timeout)
        self._stopping = True
        if self._poller is not None:
            await asyncio.to_thread(self._poller.join)
        if self._drainer is not None:
            self._drainer.cancel()
        self._drain()

    def retried(self) -> int | None:
        return None

    def _poll(self) -> None:
        while not self._stopping:
            self._producer.poll(0.05)

    def _answered(self, done: Done, error: Any, message: Any) -> None:
        raised = None if error is None else self._confluent.KafkaException(error)
        self._answers.append((done, raised, message.partition(), message.offset() or 0))

    async def _drain_regularly(self) -> None:
        while True:
            self._drain()
            await asyncio.sleep(_DRAIN_EVERY_S)

    def _drain(self) -> None:
        while self._answers:
            done, error, partition, offset = self._answers.popleft()
            done(error, *((partition, offset) if error is None else (-1, -1)))


CLIENTS: Mapping[str, Callable[[Mapping[str, str]], ChaosClient]] = {
    OURS: KafkaclientClient,
    DROP_IN: partial(AiokafkaClient, "kafkaclient.aiokafka"),
    "aiokafka": partial(AiokafkaClient, "aiokafka"),
    "confluent": ConfluentClient,
}


def make_client(name: str, config: Mapping[str, str]) -> ChaosClient:
    """The client of this name, not started."""
    return CLIENTS[name](config)


def cause_of(error: BaseException) -> str:
    """A name for the failure, the same for all records with the same cause."""
    if isinstance(error, BrokerError):
        return error.name
    if isinstance(error, KafkaError):
        return type(error).__name__
    first = error.args[0] if error.args else None
    name = getattr(first, "name", None)  # confluent's KafkaException holds a KafkaError
    return f"{type(error).__name__} {name()}" if callable(name) else type(error).__name__
