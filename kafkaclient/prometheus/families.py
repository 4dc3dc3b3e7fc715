"""Producers' metrics as prometheus-client's families and histograms."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.utils import floatToGoString

from kafkaclient.prometheus import names
from kafkaclient.prometheus.page import MetricFamilies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.producer.partitioning.partitioners import LoadSnapshot
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

    A choice by size would make series come and go, and counters with gaps are wrong.
    """

    def __init__(self, limit: int) -> None:
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
