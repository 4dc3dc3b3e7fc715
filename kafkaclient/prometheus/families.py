"""Producers' metrics as prometheus-client's families and histograms, and their page."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from math import isnan
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from kafkaclient.prometheus.names import (
    BROKER,
    BROKER_LOAD,
    PARTITION,
    PREFIX,
    PRODUCER,
    TOPIC,
    Exported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

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


# --- Turns what was read of producers into prometheus-client's metric families --------------------

_CLIENT = ("client_id",)
_BROKER = ("client_id", "broker")
_TOPIC = ("client_id", "topic")
_PARTITION = ("client_id", "topic", "partition")
_REASON = ("client_id", "broker", "reason")


class Reading(NamedTuple):
    """A producer at one moment."""

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


class Families:
    """The metric families of all producers of a registry: each name occurs once on a page."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}
        counter, gauge, histogram = (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )
        self._add(
            gauge,
            "up",
            "1: the producer runs. 0: it does not, or its event loop did not answer in time.",
            _CLIENT,
        )
        for table, labels in (
            (PRODUCER, _CLIENT),
            (BROKER, _BROKER),
            (BROKER_LOAD, _BROKER),
            (TOPIC, _TOPIC),
            (PARTITION, _PARTITION),
        ):
            for each in table:
                self._add(counter if each.is_counter else gauge, each.name, each.help, labels)
        self._add(
            counter,
            "transaction_seconds",
            "Time that calls for transactions took.",
            (*_CLIENT, "call"),
        )
        self._add(
            counter, "broker_requests_failed", "Requests of any kind without a response.", _BROKER
        )
        self._add(
            gauge,
            "broker_excluded",
            "1: records without key do not go to the broker, for this reason.",
            _REASON,
        )
        self._add(
            counter,
            "broker_exclusions",
            "How often this became the reason why records without key do not go to the broker.",
            _REASON,
        )
        self._add(
            gauge,
            "series_left_out",
            "Topics or partitions without series, because there are more than the limit.",
            (*_CLIENT, "kind"),
        )
        self._add(
            histogram,
            "queue_seconds",
            "From opening a batch until it was first sent, or failed before.",
            _CLIENT,
        )
        self._add(
            histogram,
            "delivery_seconds",
            "From opening a batch until its records were acknowledged.",
            _CLIENT,
        )
        self._add(histogram, "batch_size_bytes", "Size of batches that were sent.", _CLIENT)
        self._add(
            histogram,
            "broker_produce_latency_seconds",
            "From writing a Produce request until its response was read.",
            _BROKER,
        )

    def _add(
        self,
        kind: Callable[..., Metric],
        name: str,
        help_text: str,
        labels: Sequence[str],
    ) -> None:
        self._families[name] = kind(PREFIX + name, help_text, labels=labels)

    def all(self) -> list[Metric]:
        """All families, also those without a sample."""
        return list(self._families.values())

    def with_samples(self) -> list[Metric]:
        return [family for family in self._families.values() if family.samples]

    def add_up(self, client_id: str, up: bool) -> None:
        self._sample("up", (client_id,), float(up))

    def add(self, client_id: str, read: Reading, topics: FirstSeen, partitions: FirstSeen) -> None:
        """The series of a producer."""
        self._table(PRODUCER, (client_id,), read.metrics.producer)
        for call, seconds in read.metrics.transaction_seconds.items():
            if seconds:  # most producers have no transactions
                self._sample("transaction_seconds", (client_id, call), seconds)
        self._brokers(client_id, read)
        self._topics(client_id, read, topics)
        self._partitions(client_id, read, partitions)
        self._histogram("queue_seconds", (client_id,), read.queue_times)
        self._histogram("delivery_seconds", (client_id,), read.delivery_times)
        self._histogram("batch_size_bytes", (client_id,), read.batch_sizes)

    def _brokers(self, client_id: str, read: Reading) -> None:
        loads = {load.node_id: load for load in read.load.brokers}
        for node_id in sorted(read.metrics.brokers.keys() | loads.keys()):
            labels, load = (client_id, str(node_id)), loads.get(node_id)
            self._table(BROKER, labels, read.metrics.brokers.get(node_id, {}))
            if load is not None:
                self._table(BROKER_LOAD, labels, load._asdict())
            excluded = None if load is None else load.excluded
            for reason, times in read.metrics.exclusions.get(node_id, {}).items():
                self._sample("broker_exclusions", (*labels, reason), times)
                self._sample("broker_excluded", (*labels, reason), float(excluded == reason))
            failed = read.failed_requests.get(node_id, 0)
            self._sample("broker_requests_failed", labels, failed)
            if node_id in read.latencies:
                self._histogram("broker_produce_latency_seconds", labels, read.latencies[node_id])

    def _topics(self, client_id: str, read: Reading, first_seen: FirstSeen) -> None:
        topics = read.metrics.topics
        kept = first_seen(topics.keys())
        for name, values in topics.items():
            if name in kept:
                unbound = {"unbound-bytes": read.load.unbound.get(name, 0)}
                self._table(TOPIC, (client_id, name), {**values, **unbound})
        self._sample("series_left_out", (client_id, "topic"), first_seen.left_out)

    def _partitions(self, client_id: str, read: Reading, first_seen: FirstSeen) -> None:
        if not first_seen.is_wanted:
            return
        partitions: Mapping[TopicPartition, Mapping[str, float]] = read.metrics.partitions
        kept = first_seen(partitions.keys())
        queued = {(load.topic, load.partition): load.queued_bytes for load in read.load.partitions}
        for partition, values in partitions.items():
            if partition in kept:
                topic, number = partition
                queue = {"queued-bytes": queued.get((topic, number), 0)}
                self._table(PARTITION, (client_id, topic, str(number)), {**values, **queue})
        self._sample("series_left_out", (client_id, "partition"), first_seen.left_out)

    def _table(
        self, table: Iterable[Exported], labels: Sequence[str], values: Mapping[str, float]
    ) -> None:
        for each in table:
            value = values.get(each.source)
            if value is not None:
                self._sample(each.name, labels, value * each.scale)

    def _sample(self, name: str, labels: Sequence[str], value: float) -> None:
        if not isnan(value):  # nothing happened yet, or not in the last minute
            family = self._families[name]
            assert isinstance(family, (CounterMetricFamily, GaugeMetricFamily))
            family.add_metric(labels, value)

    def _histogram(self, name: str, labels: Sequence[str], counts: Counts) -> None:
        buckets, below = [], 0
        for bound, count in zip((*counts.bounds, float("inf")), counts.counts, strict=True):
            below += count
            bucket: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
            buckets.append((bucket, float(below)))
        family = self._families[name]
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, buckets, counts.sum)


# --- One page for each registry: a page may have each family once only ----------------------------

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    P = TypeVar("P", bound=Collector)
else:
    P = TypeVar("P")


class Pages(Generic[P]):
    """The pages of one kind. ``new`` makes one, which is registered as its registry's collector."""

    def __init__(self, new: Callable[[], P]) -> None:
        self._new = new
        self._pages: weakref.WeakKeyDictionary[CollectorRegistry, P] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, registry: CollectorRegistry) -> P:
        """The registry's page. Raises ValueError if the registry has metrics of these names."""
        with self._lock:
            page = self._pages.get(registry)
            if page is None:
                page = self._new()
                registry.register(page)
                self._pages[registry] = page
            return page
