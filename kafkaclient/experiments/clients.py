"""One small protocol for every client that a load can drive, and this package's own producer."""

from __future__ import annotations

from functools import partial
from math import isnan, nan
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.errors import BufferFullError, ConfigError, KafkaError
from kafkaclient.experiments.peers import AiokafkaClient, ConfluentClient
from kafkaclient.experiments.traffic import BrokerTraffic, PartitionTraffic, Traffic, unheard
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.experiments.traffic import Completed
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.producer.batches.delivery import Delivery

__all__ = ["CLIENTS", "KafkaclientClient", "LoadClient", "make_client"]


class LoadClient(Protocol):
    """What the load loop needs of a client; one object serves one run, to one topic."""

    @property
    def name(self) -> str: ...

    async def start(self, completed: Completed) -> None:
        """Connect; from now on ``completed`` hears of every record that was answered."""

    def send_nowait(self, key: bytes | None, value: bytes, started: float) -> bool:
        """Take a record; False when there is no room at once, and nothing was done."""

    async def send(self, key: bytes | None, value: bytes, started: float) -> None:
        """Take a record, waiting for room."""

    async def begin_transaction(self) -> None:
        """What is taken from now on belongs to a transaction; needs ``transactional.id``."""

    async def commit_transaction(self) -> None:
        """Commit what was taken since the transaction began."""

    async def flush(self) -> None:
        """Return when ``completed`` has heard of every record taken."""

    async def stop(self, timeout: float | None = None) -> None:
        """Disconnect; what is not answered within ``timeout`` seconds is given up."""

    def traffic(self) -> Traffic | None:
        """What went where so far, and what waits; None when the client does not know.

        May be asked after ``stop`` too, and is complete then.
        """

    def metrics(self) -> Mapping[str, Any]:
        """The client's own metrics when it was stopped, by group; empty when it has none."""


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
            # As Kafka's tool takes them: while the connections they are about still stand.
            self._metrics = self._producer.metrics()
        await self._producer.stop(timeout)

    def traffic(self) -> Traffic | None:
        if not self._started:
            return None
        load = self._producer.load()
        skew = load.skew.get(self._topic, nan)
        return Traffic(
            brokers=tuple(
                BrokerTraffic(
                    node_id=broker.node_id,
                    bytes_sent=broker.bytes_sent,
                    requests_sent=broker.requests_sent,
                    queued_bytes=broker.queued_bytes,
                    in_flight_requests=broker.in_flight_requests,
                    window=broker.window,
                    latency_s=broker.latency_s,
                    exclusions=broker.exclusions,
                )
                for broker in load.brokers
            ),
            partitions=tuple(
                PartitionTraffic(
                    partition=partition.partition,
                    leader=partition.leader,
                    records_sent=partition.records_sent,
                    bytes_sent=partition.bytes_sent,
                    batches_sent=partition.batches_bound,
                )
                for partition in sorted(load.partitions, key=lambda load: load.partition)
                if partition.topic == self._topic
            ),
            skew=None if isnan(skew) else skew,
        )

    def metrics(self) -> Mapping[str, Any]:
        return self._metrics

    def _answered(self, started: float, nbytes: int, delivery: Delivery) -> None:
        self._completed(started, perf_counter(), nbytes, delivery.exception())

    def _refused(self, started: float, error: KafkaError) -> None:
        # Refused at once, as by Java's send(), whose callback hears of it all the same.
        self._completed(started, perf_counter(), 0, error)


CLIENTS: Mapping[str, Callable[[Mapping[str, str], str], LoadClient]] = {
    "kafkaclient": KafkaclientClient,
    "aiokafka": AiokafkaClient,
    "confluent": ConfluentClient,
}
"""Client name -> ``make(config with Kafka's dotted names, topic)``."""


def make_client(name: str, config: Mapping[str, str], topic: str) -> LoadClient:
    """The named client, not started. Raises :class:`ConfigError` for a name or option unknown."""
    try:
        make = CLIENTS[name]
    except KeyError:
        raise ConfigError(f"no client {name!r}; there are {', '.join(CLIENTS)}") from None
    return make(config, topic)
