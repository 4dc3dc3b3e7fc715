"""``ProducerMetricsCollector``: exports the metrics of a producer to a Prometheus registry."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import REGISTRY
from prometheus_client.utils import floatToGoString

from kafkaclient.errors import ProducerStateError
from kafkaclient.hooks import FinishedBatch, FinishedRequest, Hooks
from kafkaclient.prometheus import names
from kafkaclient.prometheus.page import LoopRead, MetricFamilies, Pages

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.producer.partitioning.partitioners import LoadSnapshot
    from kafkaclient.producer.producer import Producer
    from kafkaclient.types import TopicPartition


# --- ``Histogram``: counts values in buckets with fixed bounds ------------------------------------

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 120.0),
)
"""Bounds for times: from half a millisecond to the default of ``delivery.timeout.ms``."""

BYTES = tuple(float(2**power) for power in (*range(9, 21), 22, 24))
"""Bounds for sizes of batches: from 512 bytes to 16 MiB."""


class Counts(NamedTuple):
    """A histogram at one moment."""

    bounds: tuple[float, ...]
    """The upper bounds of the buckets, ascending. A bucket includes its bound."""
    counts: tuple[int, ...]
    """Values in each bucket; the last one is for values above all bounds."""
    sum: float
    """The sum of all values."""


class Histogram:
    """A value costs a binary search among the bounds. Not safe for several threads."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> Counts:
        return Counts(self._bounds, tuple(self._counts), self._sum)


# --- What is read of a producer, as metric families ----------------------------------------------


class ProducerReading(NamedTuple):
    """A producer at one moment."""

    up: bool
    """Whether the producer runs."""
    metrics: MetricsSnapshot
    load: LoadSnapshot
    queue_times: Counts
    delivery_times: Counts
    batch_sizes: Counts
    latencies: Mapping[int, Counts]
    """Of Produce requests, by broker."""
    failed_requests: Mapping[int, int]
    """Requests of any kind without a response, by broker."""


class FirstSeen:
    """Which names have series: the first ``limit`` that were seen, as long as they exist.

    A choice by size would make series come and go, and counters with gaps are wrong. Raises
    ValueError if ``limit``, the parameter ``name`` of a collector, is negative.
    """

    def __init__(self, name: str, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"{name} must not be negative, as {limit} is")
        self._limit = limit
        self.is_wanted: bool = limit > 0
        self._kept: frozenset[object] = frozenset()
        self.left_out: int = 0
        """How many names of the last call have no series."""

    def __call__(self, names: Collection[object]) -> frozenset[object]:
        kept = [name for name in names if name in self._kept]
        if len(kept) < self._limit:
            free = self._limit - len(kept)
            kept += [name for name in names if name not in self._kept][:free]
        self._kept = frozenset(kept)
        self.left_out = len(names) - len(kept)
        return self._kept


_CLIENT = ("client_id",)
_BROKER = ("client_id", "broker")
_REASON = ("client_id", "broker", "reason")
_TABLES = (
    ((names.UP, *names.PRODUCER), _CLIENT),
    ((*names.BROKER, *names.BROKER_LOAD), _BROKER),
    (names.TOPIC, ("client_id", "topic")),
    (names.PARTITION, ("client_id", "topic", "partition")),
    (names.TRANSACTIONS, ("client_id", "call")),
    (names.REQUESTS_FAILED, _BROKER),
    (names.EXCLUSIONS, _REASON),
    (names.LEFT_OUT, ("client_id", "kind")),
    (names.TIMES, _CLIENT),
    (names.LATENCY, _BROKER),
)


class ProducerFamilies(MetricFamilies):
    """The metric families of all producers of a registry."""

    def __init__(self) -> None:
        super().__init__(names.PREFIX, _TABLES)

    def add(
        self, client_id: str, read: ProducerReading, topics: FirstSeen, partitions: FirstSeen
    ) -> None:
        """The series of a producer."""
        self.table(names.PRODUCER, (client_id,), read.metrics.producer)
        for call, seconds in read.metrics.transaction_seconds.items():
            if seconds:  # most producers have no transactions
                self.sample("transaction_seconds", (client_id, call), seconds)
        self._brokers(client_id, read)
        self._topics(client_id, read, topics)
        self._partitions(client_id, read, partitions)
        self._histogram("queue_seconds", (client_id,), read.queue_times)
        self._histogram("delivery_seconds", (client_id,), read.delivery_times)
        self._histogram("batch_size_bytes", (client_id,), read.batch_sizes)

    def _brokers(self, client_id: str, read: ProducerReading) -> None:
        loads = {load.node_id: load for load in read.load.brokers}
        for node_id in sorted(read.metrics.brokers.keys() | loads.keys()):
            labels, load = (client_id, str(node_id)), loads.get(node_id)
            self.table(names.BROKER, labels, read.metrics.brokers.get(node_id, {}))
            if load is not None:
                self.table(names.BROKER_LOAD, labels, load._asdict())
            excluded = None if load is None else load.excluded
            for reason, times in read.metrics.exclusions.get(node_id, {}).items():
                self.sample("broker_exclusions", (*labels, reason), times)
                self.sample("broker_excluded", (*labels, reason), float(excluded == reason))
            failed = read.failed_requests.get(node_id, 0)
            self.sample("broker_requests_failed", labels, failed)
            if node_id in read.latencies:
                self._histogram("broker_produce_latency_seconds", labels, read.latencies[node_id])

    def _topics(self, client_id: str, read: ProducerReading, first_seen: FirstSeen) -> None:
        topics = read.metrics.topics
        kept = first_seen(topics.keys())
        for name, values in topics.items():
            if name in kept:
                unbound = {"unbound-bytes": read.load.unbound.get(name, 0)}
                self.table(names.TOPIC, (client_id, name), {**values, **unbound})
        self.sample("series_left_out", (client_id, "topic"), first_seen.left_out)

    def _partitions(self, client_id: str, read: ProducerReading, first_seen: FirstSeen) -> None:
        if not first_seen.is_wanted:
            return
        partitions: Mapping[TopicPartition, Mapping[str, float]] = read.metrics.partitions
        kept = first_seen(partitions.keys())
        queued = {(load.topic, load.partition): load.queued_bytes for load in read.load.partitions}
        for partition, values in partitions.items():
            if partition in kept:
                topic, number = partition
                queue = {"queued-bytes": queued.get((topic, number), 0)}
                self.table(names.PARTITION, (client_id, topic, str(number)), {**values, **queue})
        self.sample("series_left_out", (client_id, "partition"), first_seen.left_out)

    def _histogram(self, name: str, labels: Sequence[str], counts: Counts) -> None:
        buckets, below = [], 0
        for bound, count in zip((*counts.bounds, float("inf")), counts.counts, strict=True):
            below += count
            bucket: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
            buckets.append((bucket, float(below)))
        self._families[name].add_metric(labels, buckets, counts.sum)


_log = logging.getLogger(__name__)

_PRODUCE = "PRODUCE"
_pages = Pages("producer", ProducerFamilies)


class ProducerMetricsCollector(Hooks):
    """Exports the metrics of one producer: give it to the producer as ``hooks``::

        producer = Producer("localhost:9092", client_id="orders", hooks=ProducerMetricsCollector())

    The producer's series are on the page from the end of its start. After its end, or while its
    event loop does not run, they keep their last values, and ``kafkaclient_producer_up`` is 0. A
    producer that was dropped has no series.

    Several producers can have the same registry: each needs a collector and a ``client.id`` of its
    own, which is the label ``client_id``. A producer that is started while another one has its
    collector, or its ``client.id`` on the page, gets no series; an error is logged. After the
    other one's end both are free. So the producers of a :class:`kafkaclient.SyncProducer` in
    forked children can use one collector. The registry may be read in any thread: the collector
    reads the producer on the producer's event loop.

    Parameters:
        registry: prometheus-client's default registry, or another.
        topic_limit: for how many topics there are series by topic. Further topics count in
            ``kafkaclient_producer_series_left_out`` and in all series without a topic. Series of a
            topic end when the producer forgets the topic (``metadata.max.idle.ms``).
        partition_limit: the same for series by partition; 0: there are none.
        timeout_s: how long to wait for the producer's event loop, in seconds. If the loop does
            not answer in this time, ``kafkaclient_producer_up`` is 0, and the producer's other
            series are missing on this page.

    Raises:
        ValueError: a limit is negative, ``timeout_s`` is no positive number, or the registry has
            other metrics with these names.
        TypeError: ``registry`` is no registry.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        topic_limit: int = 200,
        partition_limit: int = 0,
        timeout_s: float = 2.0,
    ) -> None:
        self._topics = FirstSeen("topic_limit", topic_limit)
        self._partitions = FirstSeen("partition_limit", partition_limit)
        self._page = _pages.of(registry, timeout_s)
        self._timeout_s = timeout_s
        self._producer: weakref.ref[Producer] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client_id = ""
        self._process = 0
        self._reset()

    def _reset(self) -> None:
        self._queue_times = Histogram(SECONDS)
        self._delivery_times = Histogram(SECONDS)
        self._batch_sizes = Histogram(BYTES)
        self._latencies: dict[int, Histogram] = {}
        self._failed_requests: Counter[int] = Counter()

    # --- hooks, on the producer's event loop ----------------------------------------------------

    def on_start(self, producer: Any) -> None:
        if self._producer is not None:
            if not self.has_ended():
                _log.error(
                    "%r has no series: its collector is in use, create one for each producer",
                    producer,
                )
                producer._core.leave_out(self)  # else its batches count as the other producer's
                return
            self._reset()
        self._loop = asyncio.get_running_loop()
        self._client_id = producer.config.client_id
        self._process = os.getpid()
        self._producer = weakref.ref(producer)
        if not self._page.add(self):
            _log.error(
                "%r has no series: the registry has a producer with client.id %r, give each "
                "producer a client_id of its own",
                producer,
                self._client_id,
            )

    def on_batch(self, batch: FinishedBatch) -> None:
        sent_s = batch.sent_s
        self._queue_times.observe((batch.done_s if sent_s is None else sent_s) - batch.created_s)
        if sent_s is not None:
            self._batch_sizes.observe(batch.bytes)
        if batch.error is None:
            self._delivery_times.observe(batch.done_s - batch.created_s)

    def on_request(self, request: FinishedRequest) -> None:
        if request.error is not None:
            self._failed_requests[request.broker] += 1
        elif request.api == _PRODUCE:
            latencies = self._latencies.get(request.broker)
            if latencies is None:
                latencies = self._latencies[request.broker] = Histogram(SECONDS)
            latencies.observe(request.latency_s)

    # --- reading, in any thread -----------------------------------------------------------------

    @property
    def name(self) -> str:
        """``client.id`` of the observed producer."""
        return self._client_id

    def has_ended(self) -> bool:
        """Whether the producer is stopped or dropped, its event loop is closed, or it is the parent
        process's."""
        producer, loop = self._observed(), self._loop
        return producer is None or producer.is_stopped or loop is None or loop.is_closed()

    def is_gone(self) -> bool:
        """Whether the producer cannot be read: it was dropped, or is the parent process's."""
        return self._observed() is None

    def request(self) -> LoopRead[ProducerReading | None]:
        """Ask the producer's event loop for the producer's values; None: it cannot be read any
        more."""
        return LoopRead(None if self.has_ended() else self._loop, self._read, self._timeout_s)

    def add_to(self, families: ProducerFamilies, found: ProducerReading | None) -> bool:
        """Add the producer's series. Returns whether it runs."""
        if found is None:
            return False
        families.add(self._client_id, found, self._topics, self._partitions)
        return found.up

    def _read(self) -> ProducerReading | None:
        producer, loop = self._observed(), self._loop
        if producer is None:
            return None
        partitions = self._partitions.is_wanted
        try:
            metrics = producer.metrics(partitions=partitions)
            load = producer.load(partitions=partitions)
        except ProducerStateError:  # this is a forked child
            return None
        return ProducerReading(
            not self.has_ended() and loop is not None and loop.is_running(),
            metrics,
            load,
            self._queue_times.read(),
            self._delivery_times.read(),
            self._batch_sizes.read(),
            {broker: latencies.read() for broker, latencies in self._latencies.items()},
            dict(self._failed_requests),
        )

    def _observed(self) -> Producer | None:
        if self._producer is None or self._process != os.getpid():
            return None
        return self._producer()
