"""What the producer counts: windowed statistics and Java's metric names on top of them."""

from __future__ import annotations

from kafkaclient.metrics.producer import ProducerMetrics

__all__ = ["ProducerMetrics"]
