"""``MetricsSnapshot``, and the group of values that one is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaclient.metrics.stats import Windowed, Windows

if TYPE_CHECKING:
    from kafkaclient.types import TopicPartition


# --- ``MetricsSnapshot``: what ``Producer.metrics()`` returns -------------------------------------

Values: TypeAlias = "dict[str, float]"
"""Metrics by name, sorted. Averages and maxima without recorded values are NaN.

A name that ends in ``-total`` counts since the producer's start, and never falls. All other values
are of this moment, or of the last ``metrics.num.samples`` windows.
"""


class MetricsSnapshot(NamedTuple):
    """All metrics at one moment, under Java's names; docs/reference/metrics.md lists those
    that Java does not have."""

    producer: Values
    """Of the whole producer (Java's group ``producer-metrics``)."""
    brokers: dict[int, Values]
    """By node id, in order (``producer-node-metrics``). Negative: a bootstrap server, as in Java.
    """
    topics: dict[str, Values]
    """By topic, in order (``producer-topic-metrics``)."""
    partitions: dict[TopicPartition, Values]
    """By partition, in order. Java does not have these."""
    exclusions: dict[int, dict[str, int]]
    """By node id and reason: how often this became the reason why records without key do not go to
    the broker. ``brokers`` has the same counts as ``exclusion-REASON-total``."""
    transaction_seconds: dict[str, float]
    """How long the calls of a transaction took together: ``init``, ``begin``, ``send_offsets``,
    ``commit``, ``abort``. ``producer`` has the same times as ``txn-CALL-time-ns-total``."""


# --- A group of named metrics that are read together ----------------------------------------------

Reading: TypeAlias = Callable[[float], float]
"""The value of a metric at the time ``now``."""

_MS_PER_S = 1000.0
_S_PER_HOUR = 3600.0


class Group:
    """Metrics by name. Each method adds the names that Java derives from one sensor.

    Values recorded in the returned statistics count in ``total``, too. For example, a value of a
    node's group counts in the group of all nodes.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._readings: dict[str, Reading] = {}

    def meter(self, name: str, total: Windowed | None = None) -> Windowed:
        """``name-rate`` (per second) and ``name-total`` of the values recorded."""
        values = Windowed(self._windows, total)
        self._readings[f"{name}-rate"] = values.rate
        self._readings[f"{name}-total"] = lambda _now: values.total
        return values

    def traffic(self, messages: str, nbytes: str, total: Windowed | None = None) -> Windowed:
        """Rate and total of the number of messages, and of their bytes."""
        sizes = Windowed(self._windows, total)
        self._readings[f"{messages}-rate"] = sizes.frequency
        self._readings[f"{messages}-total"] = lambda _now: sizes.events
        self._readings[f"{nbytes}-rate"] = sizes.rate
        self._readings[f"{nbytes}-total"] = lambda _now: sizes.total
        return sizes

    def spread(self, name: str, values: Windowed | None = None) -> Windowed:
        """``name-avg`` and ``name-max`` of the values recorded."""
        values = values or Windowed(self._windows)
        self._readings[f"{name}-avg"] = values.average
        self._readings[f"{name}-max"] = values.maximum
        return values

    def duration(self, name: str, total: Windowed | None = None) -> Windowed:
        """``name-avg`` and ``name-max`` in milliseconds of times recorded in seconds."""
        seconds = Windowed(self._windows, total)
        self._readings[f"{name}-avg"] = lambda now: seconds.average(now) * _MS_PER_S
        self._readings[f"{name}-max"] = lambda now: seconds.maximum(now) * _MS_PER_S
        return seconds

    def rebalances(self) -> Windowed:
        """How often and for how long a group rebalances, of times recorded in seconds (Java:
        ``ConsumerRebalanceMetricsManager``)."""
        seconds = self.duration("rebalance-latency")
        self._readings["rebalance-total"] = lambda _now: seconds.events
        self._readings["rebalance-latency-total"] = lambda _now: seconds.total * _MS_PER_S
        self._readings["rebalance-rate-per-hour"] = lambda now: seconds.frequency(now) * _S_PER_HOUR
        return seconds

    def average(self, name: str, total: Windowed | None = None) -> Windowed:
        """``name``, the average of the values recorded."""
        values = Windowed(self._windows, total)
        self._readings[name] = values.average
        return values

    def read_by(self, name: str, reading: Reading) -> None:
        """``name``, with ``reading`` as its value."""
        self._readings[name] = reading

    def snapshot(self, now: float) -> dict[str, float]:
        return {name: read(now) for name, read in self._readings.items()}
