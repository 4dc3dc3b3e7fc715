"""``ConsumerMetricsCollector``: exports the metrics of a consumer to a registry."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import REGISTRY

from kafkaclient.prometheus import names
from kafkaclient.prometheus.collector import FirstSeen
from kafkaclient.prometheus.page import LoopRead, MetricFamilies, Pages

if TYPE_CHECKING:
    import asyncio

    from prometheus_client import CollectorRegistry

    from kafkaclient.metrics.consumer import ConsumerMetricsSnapshot

_CLIENT = ("client_id",)
_TABLES = (
    ((names.CONSUMER_UP, *names.CONSUMER), _CLIENT),
    (names.CONSUMER_TOPIC, ("client_id", "topic")),
    (names.CONSUMER_PARTITION, ("client_id", "topic", "partition")),
    (names.LEFT_OUT, ("client_id", "kind")),
)


class ConsumerFamilies(MetricFamilies):
    """The metric families of all consumers of a registry."""

    def __init__(self) -> None:
        super().__init__(names.CONSUMER_PREFIX, _TABLES)


_pages = Pages("consumer", ConsumerFamilies)


class ConsumerLike(Protocol):
    """A :class:`kafkaclient.Consumer`, as far as the collector uses it."""

    @property
    def config(self) -> Any: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def is_running(self) -> bool: ...
    def metrics(self) -> ConsumerMetricsSnapshot: ...


class ConsumerMetricsCollector:
    """Exports the metrics of one consumer::

        consumer = Consumer("localhost:9092", group_id="billing", client_id="billing-1", ...)
        ConsumerMetricsCollector(consumer)
        prometheus_client.start_http_server(9000)

    The series have the label ``client_id``. The registry may be read in any thread: the collector
    reads the consumer on its event loop. A consumer that was dropped has no series.

    Parameters:
        consumer: several consumers can have the same registry, each with a ``client_id`` of its
            own. A stopped one makes room for another with its ``client_id``.
        registry: prometheus-client's default registry, or another.
        topic_limit: at most this many topics have series of their own, those that were seen first;
            ``series_left_out`` counts the others.
        partition_limit: the same for partitions. The lag of all partitions together, and the
            largest, are exported in any case.
        timeout_s: how long to wait for the consumer's event loop, in seconds. If the loop does not
            answer in this time, the consumer has only ``kafkaclient_consumer_up``, which is 0.

    Raises:
        ValueError: the registry has a consumer with this ``client_id``, or other metrics with these
            names; a limit is negative, or ``timeout_s`` is no positive number.
        TypeError: ``registry`` is no registry.
    """

    def __init__(
        self,
        consumer: ConsumerLike,
        registry: CollectorRegistry = REGISTRY,
        *,
        topic_limit: int = 200,
        partition_limit: int = 100,
        timeout_s: float = 2.0,
    ) -> None:
        self._topics = FirstSeen("topic_limit", topic_limit)
        self._partitions = FirstSeen("partition_limit", partition_limit)
        page = _pages.of(registry, timeout_s)
        self.name: str = consumer.config.client_id
        self._consumer = weakref.ref(consumer)
        self._timeout_s = timeout_s
        if not page.add(self):
            raise ValueError(
                f"the registry has a consumer {self.name!r}: give each consumer a client_id of its "
                "own, and one collector"
            )

    def is_gone(self) -> bool:
        """Whether the consumer was dropped."""
        return self._consumer() is None

    def has_ended(self) -> bool:
        """Whether the consumer is stopped or dropped, or its event loop is closed."""
        consumer = self._consumer()
        if consumer is None:
            return True
        loop = consumer.loop
        return loop is not None and (loop.is_closed() or not consumer.is_running)

    def request(self) -> LoopRead[ConsumerMetricsSnapshot | None]:
        """Ask the consumer's event loop for the metrics; None: it is not started, or dropped."""
        consumer = self._consumer()
        return LoopRead(None if consumer is None else consumer.loop, self._read, self._timeout_s)

    def _read(self) -> ConsumerMetricsSnapshot | None:
        consumer = self._consumer()
        return None if consumer is None or consumer.loop is None else consumer.metrics()

    def add_to(self, families: ConsumerFamilies, found: ConsumerMetricsSnapshot | None) -> bool:
        """Add the consumer's series. Returns whether it runs."""
        consumer = self._consumer()
        if found is None or consumer is None:
            return False
        families.table(names.CONSUMER, (self.name,), found.consumer)
        kept = self._topics(found.topics.keys())
        for topic, values in found.topics.items():
            if topic in kept:
                families.table(names.CONSUMER_TOPIC, (self.name, topic), values)
        families.sample("series_left_out", (self.name, "topic"), self._topics.left_out)
        kept = self._partitions(found.partitions.keys())
        for where, values in found.partitions.items():
            if where in kept:
                labels = (self.name, where.topic, str(where.partition))
                families.table(names.CONSUMER_PARTITION, labels, values)
        families.sample("series_left_out", (self.name, "partition"), self._partitions.left_out)
        return consumer.is_running
