"""The metrics that a client can push, as points: a name by KIP-714's rules, a value, attributes.

Names are those of Java's ``TelemetryMetricNamingConvention``: ``record-send-total`` of a topic is
``org.apache.kafka.producer.topic.record.send.total`` with the attribute ``topic``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkaclient.metrics.consumer import ConsumerMetricsSnapshot
    from kafkaclient.metrics.snapshot import MetricsSnapshot, Values

_log = logging.getLogger(__name__)

# Java's groups of a consumer's metrics, by the first word of the name; others have no group.
_CONSUMER_GROUPS = {
    **dict.fromkeys(
        ("assigned", "commit", "failed", "heartbeat", "join", "rebalance", "sync"), "coordinator"
    ),
    **dict.fromkeys(("last-heartbeat", "last-rebalance"), "coordinator"),
    **dict.fromkeys(("bytes", "fetch", "records"), "fetch-manager"),
}


Key: TypeAlias = "tuple[str, tuple[tuple[str, str], ...]]"
"""The full name of a metric, and its attributes."""


class Point(NamedTuple):
    """The value of one metric now."""

    name: str
    value: float
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> Key:
        return self.name, self.attributes

    @property
    def is_counter(self) -> bool:
        """Whether the value counts up from the client's start; otherwise it is of this moment."""
        return self.name.endswith(".total")


def metric_name(group: str, name: str) -> str:
    """The full name of a metric. ``group`` may end in ``-metrics``, as Java's groups do."""
    words = f"{group.removesuffix('-metrics')}.{name}"
    return f"org.apache.kafka.{words.lower().replace('-', '.')}"


def labels(**known: str | None) -> dict[str, str]:
    """The attributes of a client, of those that it has (Java: ``ClientTelemetryProvider``)."""
    return {name: value for name, value in known.items() if value}


def producer_points(found: MetricsSnapshot) -> Iterator[Point]:
    """The metrics of a producer, its brokers and its topics."""
    yield from _points("producer", found.producer)
    for node_id, values in found.brokers.items():
        yield from _points("producer-node", values, ("node_id", f"node-{node_id}"))
    for topic, values in found.topics.items():
        yield from _points("producer-topic", values, ("topic", topic))


def consumer_points(found: ConsumerMetricsSnapshot) -> Iterator[Point]:
    """The metrics of a consumer, its brokers, its topics and its partitions."""
    for name, value in found.consumer.items():
        if name == "records-lag":  # Java has it of partitions only: it would count twice in a sum
            continue
        words = name.split("-")
        group = _CONSUMER_GROUPS.get("-".join(words[:2])) or _CONSUMER_GROUPS.get(words[0])
        yield Point(metric_name(f"consumer-{group}" if group else "consumer", name), value)
    for node_id, values in found.brokers.items():
        yield from _points("consumer-node", values, ("node_id", f"node-{node_id}"))
    for topic, values in found.topics.items():
        yield from _points("consumer-fetch-manager", values, ("topic", topic))
    for (topic, partition), values in found.partitions.items():
        where = ("topic", topic), ("partition", str(partition))
        yield from _points("consumer-fetch-manager", values, *where)


def _points(group: str, values: Values, *attributes: tuple[str, str]) -> Iterator[Point]:
    for name, value in values.items():
        yield Point(metric_name(group, name), value, attributes)


# --- metrics of the application (KIP-1076) --------------------------------------------------------


class KafkaMetric:
    """A metric of the application that a client pushes with its own (KIP-1076).

    The broker gets it as ``org.apache.kafka.GROUP.NAME``, with dots in place of hyphens, and with
    ``tags`` as attributes. ``value`` is called before each push, on the client's event loop, and
    must return at once; what it raises is logged. The values of a name that ends in ``-total`` are
    those of a counter, which never falls; of any other name those of a gauge. NaN is not pushed.

    Raises ConfigError if ``value`` cannot be called, or if a name or a tag is no text that can be
    encoded as UTF-8.
    """

    __slots__ = ("key", "value")

    def __init__(
        self,
        name: str,
        group: str,
        value: Callable[[], float],
        tags: Mapping[str, str] | None = None,
    ) -> None:
        for text in (name, group, *(text for tag in (tags or {}).items() for text in tag)):
            _check_text(text)
        if not callable(value):
            raise ConfigError(f"the value of a KafkaMetric is a function, not {value!r}")
        attributes = sorted((tag.replace("-", "_"), text) for tag, text in (tags or {}).items())
        self.key: Key = metric_name(group, name), tuple(attributes)
        """What tells it from other metrics: its full name, and its attributes."""
        self.value = value

    def __repr__(self) -> str:
        return f"KafkaMetric({self.key[0]}, {dict(self.key[1])})"


def _check_text(text: str) -> None:
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise ConfigError(f"names and tags of a KafkaMetric are text, not {text!r}") from None


class ApplicationMetrics:
    """The metrics that an application has registered with one client."""

    def __init__(self) -> None:
        self._metrics: dict[Key, KafkaMetric] = {}

    def register(self, metric: KafkaMetric) -> None:
        """Push the metric from now on, in place of one with the same names and tags."""
        self._metrics[metric.key] = metric

    def unregister(self, metric: KafkaMetric) -> None:
        """Push the metric no more; does nothing if it is not registered."""
        self._metrics.pop(metric.key, None)

    def beside(self, own: Iterable[Point]) -> list[Point]:
        """The client's own points, and those of the application, which cannot replace them."""
        points = list(own)
        if self._metrics:
            taken = {point.key for point in points}
            points += self._read(taken)
        return points

    def _read(self, taken: set[Key]) -> Iterator[Point]:
        for key, metric in list(self._metrics.items()):
            if key in taken:
                _log.debug("%s is a metric of the client: the application's is not pushed", key[0])
                continue
            try:
                value = float(metric.value())
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - the application's code
                _log.exception("the metric %s of the application is not pushed", key[0])
            else:
                yield Point(key[0], value, key[1])


class PushesMetricsMixin:
    """What clients that push metrics have in common."""

    _application_metrics: ApplicationMetrics

    def register_metric_for_subscription(self, metric: KafkaMetric) -> None:
        """Push a metric of the application with those of the client, to clusters that subscribe to
        it (KIP-1076), also before the start. It replaces a metric with the same names and tags; one
        of the client's own is not replaced."""
        self._application_metrics.register(metric)

    def unregister_metric_from_subscription(self, metric: KafkaMetric) -> None:
        """Push the metric no more. Does nothing if it is not registered."""
        self._application_metrics.unregister(metric)
