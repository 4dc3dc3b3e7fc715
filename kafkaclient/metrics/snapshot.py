"""``MetricsSnapshot``: what ``Producer.metrics()`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from kafkaclient.types import TopicPartition

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
