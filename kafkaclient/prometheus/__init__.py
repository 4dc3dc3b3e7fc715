"""Prometheus metrics of producers, consumers and streams applications: collectors for
prometheus-client, dashboards, alert rules.

Needs the extra ``prometheus``. docs/how-to/prometheus.md describes it.
"""

from __future__ import annotations

from pathlib import Path

try:
    import prometheus_client as _prometheus_client  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError(
        f"kafkaclient.prometheus needs prometheus-client ({error}): "
        "pip install 'kafkaclient[prometheus]'",
        name="prometheus_client",
    ) from error

from kafkaclient.prometheus.collector import ProducerMetricsCollector
from kafkaclient.prometheus.consumer import ConsumerMetricsCollector
from kafkaclient.prometheus.streams import StreamsMetricsCollector

__all__ = [
    "ALERT_RULES",
    "CONSUMER_DASHBOARD",
    "DASHBOARD",
    "ConsumerMetricsCollector",
    "ProducerMetricsCollector",
    "StreamsMetricsCollector",
]

DASHBOARD = Path(__file__).with_name("grafana.json")
"""The file of the Grafana dashboard for producers."""

CONSUMER_DASHBOARD = Path(__file__).with_name("grafana-consumers.json")
"""The file of the Grafana dashboard for consumers."""

ALERT_RULES = Path(__file__).with_name("alerts.yml")
"""The file of the alert rules, in Prometheus' format."""
