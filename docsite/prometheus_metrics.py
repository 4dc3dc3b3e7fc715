"""The page of Prometheus metrics, written from the exporter's families."""

from __future__ import annotations

from typing import Any

from docsite.tables import table
from kafkaclient.prometheus.collector import ProducerFamilies
from kafkaclient.prometheus.consumer import ConsumerFamilies
from kafkaclient.prometheus.names import (
    BROKER,
    CONSUMER,
    CONSUMER_PARTITION,
    CONSUMER_PREFIX,
    CONSUMER_TOPIC,
    PARTITION,
    PRODUCER,
    STREAMS,
    STREAMS_PREFIX,
    STREAMS_TASK,
    TOPIC,
)
from kafkaclient.prometheus.streams import StreamsFamilies

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


_CONSUMERS = """
## Consumers

`kafkaclient.prometheus.ConsumerMetricsCollector` exports these metrics
([how to](../how-to/consume.md#how-do-i-see-the-lag-rebalances-and-commits)). All series have the
label `client_id`. Averages and maxima are of the last minute. The last column has the name in
`consumer.metrics()`.
"""

_STREAMS = """
## Streams applications

`kafkaclient.prometheus.StreamsMetricsCollector` exports these metrics
([how to](../how-to/watch-streams.md)). All series have the label `application_id`. Averages and
maxima are of the last minute. The last column has the name in `app.metrics()`.
"""


def page() -> str:
    """The Markdown text."""
    producer = (PRODUCER, BROKER, TOPIC, PARTITION)
    consumer = (CONSUMER, CONSUMER_TOPIC, CONSUMER_PARTITION)
    return "\n".join(
        (
            _HEAD,
            _table(ProducerFamilies().all(), "kafkaclient_producer_", "client_id", producer),
            _CONSUMERS,
            _table(ConsumerFamilies().all(), CONSUMER_PREFIX, "client_id", consumer),
            _STREAMS,
            _table(
                StreamsFamilies().all(), STREAMS_PREFIX, "application_id", (STREAMS, STREAMS_TASK)
            ),
        )
    )


def _table(families: list[Any], prefix: str, common: str, tables: Any) -> str:
    sources = {each.name: each.source for tab in tables for each in tab}
    rows = (
        (
            f"`{family.name}{'_total' if family.type == 'counter' else ''}`",
            family.type,
            ", ".join(label for label in label_names(family) if label != common),
            family.documentation.removesuffix("."),
            f"`{source}`" if (source := sources.get(family.name.removeprefix(prefix))) else "",
        )
        for family in families
    )
    return table(("name", "type", "labels", "meaning", "`metrics()`"), rows)


def label_names(family: Any) -> tuple[str, ...]:
    """The labels of a metric family; prometheus-client has no public name for them."""
    return tuple(family._labelnames)
