"""The protocol of clients that a load can drive, and this package's producer behind it."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from math import isnan, nan
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.errors import BufferFullError, ConfigError, KafkaError
from kafkaclient.perf.peers import AiokafkaClient, ConfluentClient
from kafkaclient.perf.traffic import BrokerTraffic, PartitionTraffic, Traffic, unheard
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.perf.traffic import Completed
    from kafkaclient.producer.batches.delivery import Delivery


class LoadClient(Protocol):
    """A client as the load loop uses it: for one run, to one topic."""

    @property
    def name(self) -> str: ...

    async def start(self, completed: Completed) -> None:
        """Connect; ``completed`` is called for every record that has its outcome."""

    def send_nowait(self, key: bytes | None, value: bytes, started: float) -> bool:
        """Take a record; False if there is no buffer space, and the record was not taken."""

    async def send(self, key: bytes | None, value: bytes, started: float) -> None:
        """Take a record, waiting for buffer space."""

    async def begin_transaction(self) -> None:
        """Begin a transaction, to which all later records belong; needs ``transactional.id``."""

    async def commit_transaction(self) -> None:
        """Commit the transaction."""

    async def flush(self) -> None:
        """Return once ``completed`` was called for every record taken."""

    async def stop(self, timeout: float | None = None) -> None:
        """Disconnect; records without an outcome after ``timeout`` seconds fail."""

    def traffic(self) -> Traffic | None:
        """The records and requests so far, by broker and partition; None: not known.

        Can be called after ``stop``, and is complete then.
        """

    def metrics(self) -> Mapping[str, Any]:
        """The client's metrics at the time of ``stop``, by group; empty if it has none."""


class KafkaclientClient:
    """This package's producer."""

    name = "kafkaclient"

    def __init__(
        self, config: Mapping[str, str], topic: str, *, dialer: Dialer | None = None
    ) -> None:
        self._producer = Producer(config, dialer=dialer)
        self._topic = topic
        self._completed: Completed = unheard
        self._started = False
        self._metrics: Mapping[str, Any] = {}

    async def start(self, completed: Completed) -> None:
        self._completed = completed
        await self._producer.start()
        self._started = True

    def send_nowait(self, key: bytes | None, value: bytes, started: float) -> bool:
        try:
            delivery = self._producer.send_nowait(self._topic, value, key=key)
        except BufferFullError:
            return False
        except KafkaError as error:
            self._refused(started, error)
        else:
            nbytes = len(value) + len(key or b"")
            delivery.add_done_callback(partial(self._answered, started, nbytes))
        return True

    async def send(self, key: bytes | None, value: bytes, started: float) -> None:
        try:
            delivery = await self._producer.send(self._topic, value, key=key)
        except KafkaError as error:
            self._refused(started, error)
        else:
            nbytes = len(value) + len(key or b"")
            delivery.add_done_callback(partial(self._answered, started, nbytes))

    async def begin_transaction(self) -> None:
        await self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        await self._producer.commit_transaction()

    async def flush(self) -> None:
        await self._producer.flush()

    async def stop(self, timeout: float | None = None) -> None:
        if self._started:
            # Like Kafka's tool, before the connections are closed that metrics are about.
            self._metrics = self._producer.metrics()
        await self._producer.stop(timeout)

    def traffic(self) -> Traffic | None:
        if not self._started:
            return None
        load = self._producer.load()
        skew = load.skew.get(self._topic, nan)
        names = [field.name for field in fields(BrokerTraffic)]
        partitions = (
            PartitionTraffic(p.partition, p.leader, p.records_sent, p.bytes_sent, p.batches_bound)
            for p in load.partitions
            if p.topic == self._topic
        )
        return Traffic(
            brokers=tuple(BrokerTraffic(*(getattr(b, n) for n in names)) for b in load.brokers),
            partitions=tuple(sorted(partitions, key=lambda each: each.partition)),
            skew=None if isnan(skew) else skew,
        )

    def metrics(self) -> Mapping[str, Any]:
        return self._metrics

    def _answered(self, started: float, nbytes: int, delivery: Delivery) -> None:
        self._completed(started, perf_counter(), nbytes, delivery.exception())

    def _refused(self, started: float, error: KafkaError) -> None:
        # Java's send() also calls the callback for a record that it refuses.
        self._completed(started, perf_counter(), 0, error)


CLIENTS: Mapping[str, Callable[[Mapping[str, str], str], LoadClient]] = {
    "kafkaclient": KafkaclientClient,
    "aiokafka": AiokafkaClient,
    "confluent": ConfluentClient,
}
"""Client name -> ``make(config by Kafka's dotted names, topic)``."""


def make_client(name: str, config: Mapping[str, str], topic: str) -> LoadClient:
    """The client of this name, not started. Raises ConfigError for an unknown name or option."""
    if name not in CLIENTS:
        raise ConfigError(f"no client {name!r}; there are {', '.join(CLIENTS)}")
    return CLIENTS[name](config, topic)
