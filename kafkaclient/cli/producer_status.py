"""Reads the state of producers back from the metric families of a page, or of a registry."""

from __future__ import annotations

from collections import defaultdict, deque
from math import inf, isfinite, isinf, isnan
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.prometheus.collector import Counts
from kafkaclient.prometheus.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.metrics_core import Metric


# --- Reads the state of producers back from the metric families of a page -------------------------

_Labels = frozenset[tuple[str, str]]


class BrokerFigures(NamedTuple):
    """A broker as a producer sees it."""

    broker: int
    queue_bytes: float
    queue_batches: float
    in_flight: float
    window: float | None
    """How many Produce requests may be in flight; None before the first."""
    produced_bytes: float
    """Since the producer's start."""
    excluded: str | None
    """Why records without key do not go to the broker now."""
    exclusions: float
    """How often a reason came up since the producer's start."""
    latencies: Counts | None
    """Seconds of Produce requests since the producer's start; None before the first."""


class ProducerStatus(NamedTuple):
    """A producer at one moment. Counts are since its start."""

    client_id: str
    up: bool
    records_sent: float
    records_failed: float
    records_retried: float
    buffer_available_bytes: float | None
    """None: the producer has not been started, or its event loop did not answer."""
    buffer_size_bytes: float | None
    waiting_tasks: float
    queue_times: Counts | None
    """Seconds from opening a batch until it was sent."""
    brokers: tuple[BrokerFigures, ...]
    """In the order of their ids, without bootstrap servers."""


class _Series:
    """The samples of one producer, by name and further labels."""

    def __init__(self) -> None:
        self.values: dict[str, dict[_Labels, float]] = defaultdict(dict)

    def value(self, name: str, **labels: str) -> float | None:
        return self.values.get(PREFIX + name, {}).get(frozenset(labels.items()))

    def count(self, name: str, **labels: str) -> float:
        return self.value(name, **labels) or 0.0

    def histogram(self, name: str, **labels: str) -> Counts | None:
        below: dict[float, float] = {}
        for found, value in self.values.get(f"{PREFIX}{name}_bucket", {}).items():
            others = dict(found)
            bound = float(others.pop("le", "nan"))
            if others == labels and not isnan(bound):
                below[bound] = value
        if inf not in below:
            return None
        bounds = sorted(below)
        counts = [int(below[bound]) for bound in bounds]
        own = [now - before for now, before in zip(counts, [0, *counts], strict=False)]
        return Counts(
            tuple(bound for bound in bounds if not isinf(bound)),
            tuple(own),
            self.count(f"{name}_sum", **labels),
        )


def statuses(families: Iterable[Metric]) -> tuple[ProducerStatus, ...]:
    """The producers on a page, in the order of the page; empty if there is none. A NaN or an
    infinite value counts as not known."""
    producers: dict[str, _Series] = defaultdict(_Series)
    for family in families:
        if not family.name.startswith(PREFIX):
            continue
        for sample in family.samples:
            labels = dict(sample.labels)
            series = producers[labels.pop("client_id", "")]
            if isfinite(sample.value):
                series.values[sample.name][frozenset(labels.items())] = sample.value
    return tuple(_status(client_id, series) for client_id, series in producers.items())


def _status(client_id: str, series: _Series) -> ProducerStatus:
    return ProducerStatus(
        client_id,
        bool(series.count("up")),
        series.count("records_sent_total"),
        series.count("records_failed_total"),
        series.count("records_retried_total"),
        series.value("buffer_available_bytes"),
        series.value("buffer_size_bytes"),
        series.count("buffer_waiting_tasks"),
        series.histogram("queue_seconds"),
        tuple(_broker(node_id, series) for node_id in sorted(_node_ids(series.values))),
    )


def _node_ids(values: Mapping[str, Mapping[_Labels, float]]) -> set[int]:
    found = values.get(f"{PREFIX}broker_queue_bytes", {})
    return {int(dict(labels)["broker"]) for labels in found}


def _broker(node_id: int, series: _Series) -> BrokerFigures:
    label = str(node_id)
    reasons = [
        (dict(labels)["reason"], value)
        for labels, value in series.values.get(f"{PREFIX}broker_excluded", {}).items()
        if ("broker", label) in labels
    ]
    exclusions = series.values.get(f"{PREFIX}broker_exclusions_total", {})
    return BrokerFigures(
        node_id,
        series.count("broker_queue_bytes", broker=label),
        series.count("broker_queue_batches", broker=label),
        series.count("broker_in_flight_requests", broker=label),
        series.value("broker_in_flight_window", broker=label),
        series.count("broker_produced_bytes_total", broker=label),
        next((reason for reason, value in reasons if value), None),
        sum(value for labels, value in exclusions.items() if ("broker", label) in labels),
        series.histogram("broker_produce_latency_seconds", broker=label),
    )


# --- What changed from one scrape of producers to the next: rates, shares -------------------------

_WINDOW_S = 10.0  # seconds that shares and percentiles cover
_HISTORY = 60  # scrapes that the history of a rate covers


class BrokerTrend(NamedTuple):
    """A broker: its state, and the last 10 seconds. None: not known."""

    status: BrokerFigures
    share: float | None
    """Of the bytes that the producer sent, from 0 to 1."""
    bytes_per_s: float | None
    """Since the scrape before."""
    p50_s: float | None
    """Median latency of Produce requests in seconds."""
    p99_s: float | None
    history: tuple[float, ...]
    """``bytes_per_s`` of the last scrapes, 60 at most, the latest last."""


class ProducerTrend(NamedTuple):
    """A producer: its state, and the last 10 seconds. None: not known."""

    status: ProducerStatus
    records_per_s: float | None
    """Since the scrape before."""
    bytes_per_s: float | None
    buffer_used: float | None
    """The part of ``buffer.memory`` that is in use, from 0 to 1."""
    queue_p50_s: float | None
    """Median seconds that a batch waited in the producer."""
    queue_p99_s: float | None
    brokers: tuple[BrokerTrend, ...]


class Trends:
    """Remembers what was seen of each producer in the last 10 seconds.

    After the first scrape, shares and percentiles are since the producer's start, and rates are not
    known.
    """

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, ProducerStatus]]] = {}
        self._histories: dict[tuple[str, int], deque[float]] = {}

    def add(self, now: float, found: Iterable[ProducerStatus]) -> tuple[ProducerTrend, ...]:
        """The trends at ``now``, seconds of a monotonic clock. A producer that is not in ``found``
        is forgotten."""
        statuses = list(found)
        ids = {status.client_id for status in statuses}
        self._seen = {id_: seen for id_, seen in self._seen.items() if id_ in ids}
        self._histories = {key: h for key, h in self._histories.items() if key[0] in ids}
        return tuple(self._trend(now, status) for status in statuses)

    def _trend(self, now: float, status: ProducerStatus) -> ProducerTrend:
        seen = self._seen.setdefault(status.client_id, deque())
        if seen and _began_again(seen[-1][1], status):
            seen.clear()
        last_at, last = seen[-1] if seen else (now, None)
        while len(seen) > 1 and now - seen[1][0] >= _WINDOW_S:
            seen.popleft()
        first = seen[0][1] if seen else None
        seen.append((now, status))
        elapsed_s = now - last_at
        before = {} if last is None else {broker.broker: broker for broker in last.brokers}
        begun = {} if first is None else {broker.broker: broker for broker in first.brokers}
        sent = {b.broker: b.produced_bytes - _produced(begun, b.broker) for b in status.brokers}
        total = sum(sent.values())
        brokers = []
        for broker in status.brokers:
            node_id = broker.broker
            rate = _rate(broker.produced_bytes, _produced(before, node_id), elapsed_s)
            history = self._histories.setdefault(
                (status.client_id, node_id), deque(maxlen=_HISTORY)
            )
            if rate is not None:
                history.append(rate)
            latencies = (
                _since(broker.latencies, begun[node_id].latencies)
                if (node_id in begun)
                else broker.latencies
            )
            brokers.append(
                BrokerTrend(
                    broker,
                    share=sent[node_id] / total if total else None,
                    bytes_per_s=rate,
                    p50_s=percentile(latencies, 0.5),
                    p99_s=percentile(latencies, 0.99),
                    history=tuple(history),
                )
            )
        rates = [broker.bytes_per_s for broker in brokers if broker.bytes_per_s is not None]
        queue_times = _since(status.queue_times, None if first is None else first.queue_times)
        return ProducerTrend(
            status,
            records_per_s=(
                None if last is None else _rate(status.records_sent, last.records_sent, elapsed_s)
            ),
            bytes_per_s=sum(rates) if rates else None,
            buffer_used=_used(status),
            queue_p50_s=percentile(queue_times, 0.5),
            queue_p99_s=percentile(queue_times, 0.99),
            brokers=tuple(brokers),
        )


def percentile(counts: Counts | None, part: float) -> float | None:
    """The value that ``part`` of the values do not exceed, interpolated in its bucket as
    PromQL's ``histogram_quantile`` does; None without values."""
    total = 0 if counts is None else sum(counts.counts)
    if counts is None or not total:
        return None
    rank, below, lower = part * total, 0, 0.0
    for bound, count in zip(counts.bounds, counts.counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below += count
        lower = bound
    return lower  # above all bounds: not known more exactly


def _since(now: Counts | None, before: Counts | None) -> Counts | None:
    if now is None or before is None or now.bounds != before.bounds:
        return now
    counts = tuple(n - b for n, b in zip(now.counts, before.counts, strict=True))
    return Counts(now.bounds, counts, now.sum - before.sum)


def _began_again(before: ProducerStatus, now: ProducerStatus) -> bool:
    """Whether the counters fell: a new producer, or one that cannot be read."""
    return now.records_sent < before.records_sent or before.up != now.up


def _produced(brokers: dict[int, BrokerFigures], node_id: int) -> float:
    return brokers[node_id].produced_bytes if node_id in brokers else 0.0


def _rate(now: float, before: float, elapsed_s: float) -> float | None:
    return max(now - before, 0.0) / elapsed_s if elapsed_s > 0 else None


def _used(status: ProducerStatus) -> float | None:
    free, size = status.buffer_available_bytes, status.buffer_size_bytes
    return None if free is None or not size else 1.0 - free / size
