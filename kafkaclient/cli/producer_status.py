"""Reads the state of producers back from the metric families of a page, or of a registry."""

from __future__ import annotations

from collections import defaultdict
from math import inf, isfinite, isinf, isnan
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.prometheus.histogram import Counts
from kafkaclient.prometheus.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.metrics_core import Metric

_Labels = frozenset[tuple[str, str]]


class BrokerStatus(NamedTuple):
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
    brokers: tuple[BrokerStatus, ...]
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


def _broker(node_id: int, series: _Series) -> BrokerStatus:
    label = str(node_id)
    reasons = [
        (dict(labels)["reason"], value)
        for labels, value in series.values.get(f"{PREFIX}broker_excluded", {}).items()
        if ("broker", label) in labels
    ]
    exclusions = series.values.get(f"{PREFIX}broker_exclusions_total", {})
    return BrokerStatus(
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
