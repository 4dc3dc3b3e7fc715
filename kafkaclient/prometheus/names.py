"""Which metric of a producer has which Prometheus name: tables, one line a metric.

``source`` is the name in ``Producer.metrics()``, or one that ``families.py`` takes from
``Producer.load()``. Rates, and averages of what a histogram has, are left out: PromQL makes them
from counters and histograms.
"""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "kafkaclient_producer_"

_PER_MS = 1e-3
_PER_NS = 1e-9


class Exported(NamedTuple):
    """A metric as it is exported."""

    source: str
    name: str
    """Without ``PREFIX``, and without ``_total``."""
    help: str
    scale: float = 1.0
    """Seconds per unit of the source."""
    counter: bool = False
    """Whether it is a counter although its source's name does not say so."""

    @property
    def is_counter(self) -> bool:
        return self.counter or self.source.endswith("-total")


PRODUCER = (
    Exported("record-send-total", "records_sent", "Records sent. Retries count again."),
    Exported("record-error-total", "records_failed", "Records that failed."),
    Exported(
        "record-error-unseen-total",
        "records_failed_unseen",
        "Records that failed while nothing awaited or inspected their delivery.",
    ),
    Exported("record-retry-total", "records_retried", "Records that were sent again."),
    Exported("batch-split-total", "batches_split", "Batches that the broker found too large."),
    Exported(
        "buffer-exhausted-total",
        "records_refused",
        "Records that were refused because the buffer was full.",
    ),
    Exported(
        "bufferpool-wait-time-ns-total",
        "buffer_wait_seconds",
        "Time that callers waited for buffer space.",
        _PER_NS,
    ),
    Exported(
        "metadata-wait-time-ns-total",
        "metadata_wait_seconds",
        "Time that callers waited for a topic's metadata.",
        _PER_NS,
    ),
    Exported("flush-time-ns-total", "flush_seconds", "Time that flush() took.", _PER_NS),
    Exported("connection-creation-total", "connections_opened", "Connections that were opened."),
    Exported("connection-close-total", "connections_closed", "Connections that were closed."),
    Exported("connection-count", "connections", "Open connections."),
    Exported("buffer-available-bytes", "buffer_available_bytes", "Buffer space that is free."),
    Exported("buffer-total-bytes", "buffer_size_bytes", "buffer.memory."),
    Exported("waiting-threads", "buffer_waiting_tasks", "Tasks that wait for buffer space."),
    Exported("metadata-age", "metadata_age_seconds", "Time since the last answer with metadata."),
    Exported(
        "event-loop-lag-max",
        "event_loop_lag_max_seconds",
        "Longest delay of a producer timer, in the last minute.",
        _PER_MS,
    ),
    Exported(
        "produce-throttle-time-max",
        "throttle_max_seconds",
        "The longest pause that a quota demanded, in the last minute.",
        _PER_MS,
    ),
)

BROKER = (
    Exported("request-total", "broker_requests", "Requests of any kind."),
    Exported("outgoing-byte-total", "broker_request_bytes", "Bytes of requests of any kind."),
    Exported("response-total", "broker_responses", "Responses of any kind."),
    Exported("incoming-byte-total", "broker_response_bytes", "Bytes of responses of any kind."),
    Exported("requests-in-flight", "broker_in_flight_requests", "Produce requests in flight."),
    Exported(
        "in-flight-window",
        "broker_in_flight_window",
        "How many Produce requests the broker may have in flight.",
    ),
    Exported(
        "round-trip-time-ms",
        "broker_round_trip_seconds",
        "The network's part of a Produce request, as the in-flight window assumes it.",
        _PER_MS,
    ),
    Exported(
        "service-time-ms",
        "broker_service_seconds",
        "The broker's part of a Produce request, as the in-flight window assumes it.",
        _PER_MS,
    ),
)

BROKER_LOAD = (  # the source is a field of BrokerLoad
    Exported("bytes_sent", "broker_produced_bytes", "Bytes of Produce requests.", counter=True),
    Exported("requests_sent", "broker_produce_requests", "Produce requests.", counter=True),
    Exported("queued_bytes", "broker_queue_bytes", "Bytes of batches that wait for the broker."),
    Exported("queued_batches", "broker_queue_batches", "Batches that wait for the broker."),
    Exported(
        "oldest_in_flight_s",
        "broker_oldest_in_flight_seconds",
        "Age of the oldest Produce request in flight; 0 if there is none.",
    ),
)

TOPIC = (
    Exported("record-send-total", "topic_records_sent", "Records sent. Retries count again."),
    Exported("byte-total", "topic_sent_bytes", "Bytes sent, as on the wire."),
    Exported("record-error-total", "topic_records_failed", "Records that failed."),
    Exported("record-retry-total", "topic_records_retried", "Records that were sent again."),
    Exported(
        "partition-switch-total",
        "topic_partition_switches",
        "Batches of records without key that went to another partition than the one before.",
    ),
    Exported(
        "partition-skew",
        "topic_partition_skew_ratio",
        "The most bytes of a partition, divided by the mean; 1 is even.",
    ),
    Exported(
        "compression-rate",
        "topic_compression_ratio",
        "Compressed size divided by the size before, in the last minute.",
    ),
    Exported(
        "unbound-bytes",
        "topic_unbound_queue_bytes",
        "Bytes of batches that wait and have no partition yet.",
    ),
)

PARTITION = (
    Exported("record-send-total", "partition_records_sent", "Records sent. Retries count again."),
    Exported("byte-total", "partition_sent_bytes", "Bytes sent, as on the wire."),
    Exported("batch-send-total", "partition_batches_sent", "Batches sent. Retries count again."),
    Exported("queued-bytes", "partition_queue_bytes", "Bytes of batches that wait."),
)
