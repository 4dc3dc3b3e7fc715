"""The page of Prometheus metrics, written from the exporter's families."""

from __future__ import annotations

from typing import Any

from docsite.tables import table
from kafkaclient.prometheus.families import Families
from kafkaclient.prometheus.names import BROKER, PARTITION, PRODUCER, TOPIC

_HEAD = """\
# Prometheus metrics

`kafkaclient.prometheus.ProducerMetricsCollector` exports these metrics
([how to](../how-to/prometheus.md)). All series have the label `client_id`. Negative brokers are
bootstrap servers, as in Java. Maxima are of the last minute (`metrics.sample.window.ms`,
`metrics.num.samples`). The last column has the name in `producer.metrics()`, if the metric has one.

Histograms have classic buckets: prometheus-client writes native histograms only in OpenMetrics 2.0,
which is experimental and which Prometheus does not ask for. With
`convert_classic_histograms_to_nhcb: true` in the scrape configuration, Prometheus stores them as
native histograms with these buckets.
"""


def page() -> str:
    """The Markdown text."""
    sources = {
        each.name: each.source for tab in (PRODUCER, BROKER, TOPIC, PARTITION) for each in tab
    }
    rows = (
        (
            f"`{family.name}{'_total' if family.type == 'counter' else ''}`",
            family.type,
            ", ".join(label for label in label_names(family) if label != "client_id"),
            family.documentation.removesuffix("."),
            f"`{source}`" if (source := sources.get(_own_name(family.name))) else "",
        )
        for family in Families().all()
    )
    return _HEAD + "\n" + table(("name", "type", "labels", "meaning", "`metrics()`"), rows)


def label_names(family: Any) -> tuple[str, ...]:
    """The labels of a metric family; prometheus-client has no public name for them."""
    return tuple(family._labelnames)


def _own_name(name: str) -> str:
    return name.removeprefix("kafkaclient_producer_")
