"""Which metric of a client has which Prometheus name: tables, one line a metric.

``source`` is the name in ``Producer.metrics()`` or ``StreamsApp.metrics()``, or one that
``collector.py`` takes from ``Producer.load()``. Rates, and averages of what a histogram has, are
left out: PromQL makes them from counters and histograms.
"""

from __future__ import annotations

from typing import NamedTuple

_PER_MS = 1e-3
_PER_NS = 1e-9


class Exported(NamedTuple):
    """A metric as it is exported."""

    source: str
    """Empty: the collector computes the metric."""
    name: str
    """Without the prefix of all metrics, and without ``_total``."""
    help: str
    scale: float = 1.0
    """Seconds per unit of the source."""
    kind: str = ""
    """``counter``, ``gauge`` or ``histogram``. Empty: the source's name tells."""

    @property
    def type(self) -> str:
        return self.kind or ("counter" if self.source.endswith("-total") else "gauge")


# fmt: off
PREFIX = "kafkaclient_producer_"

UP = Exported("", "up", "1: the producer runs. 0: it does not, or its event loop did not answer in time.")

PRODUCER = (
    Exported("record-send-total", "records_sent", "Records sent. Retries count again."),
    Exported("record-error-total", "records_failed", "Records that failed."),
    Exported("record-error-unseen-total", "records_failed_unseen", "Records that failed while nothing awaited or inspected their delivery."),
    Exported("record-retry-total", "records_retried", "Records that were sent again."),
    Exported("batch-split-total", "batches_split", "Batches that the broker found too large."),
    Exported("buffer-exhausted-total", "records_refused", "Records that were refused because the buffer was full."),
    Exported("bufferpool-wait-time-ns-total", "buffer_wait_seconds", "Time that callers waited for buffer space.", _PER_NS),
    Exported("metadata-wait-time-ns-total", "metadata_wait_seconds", "Time that callers waited for a topic's metadata.", _PER_NS),
    Exported("flush-time-ns-total", "flush_seconds", "Time that flush() took.", _PER_NS),
    Exported("connection-creation-total", "connections_opened", "Connections that were opened."),
    Exported("connection-close-total", "connections_closed", "Connections that were closed."),
    Exported("connection-count", "connections", "Open connections."),
    Exported("buffer-available-bytes", "buffer_available_bytes", "Buffer space that is free."),
    Exported("buffer-total-bytes", "buffer_size_bytes", "buffer.memory."),
    Exported("waiting-threads", "buffer_waiting_tasks", "Tasks that wait for buffer space."),
    Exported("metadata-age", "metadata_age_seconds", "Time since the last answer with metadata."),
    Exported("event-loop-lag-max", "event_loop_lag_max_seconds", "Longest delay of a producer timer, in the last minute.", _PER_MS),
    Exported("produce-throttle-time-max", "throttle_max_seconds", "The longest pause that a quota demanded, in the last minute.", _PER_MS),
)

BROKER = (
    Exported("request-total", "broker_requests", "Requests of any kind."),
    Exported("outgoing-byte-total", "broker_request_bytes", "Bytes of requests of any kind."),
    Exported("response-total", "broker_responses", "Responses of any kind."),
    Exported("incoming-byte-total", "broker_response_bytes", "Bytes of responses of any kind."),
    Exported("requests-in-flight", "broker_in_flight_requests", "Produce requests in flight."),
    Exported("buffer-used-bytes", "broker_buffer_used_bytes", "Bytes of buffer.memory that records for the broker hold."),
    Exported("in-flight-window", "broker_in_flight_window", "How many Produce requests the broker may have in flight."),
    Exported("round-trip-time-ms", "broker_round_trip_seconds", "The network's part of a Produce request, as the in-flight window assumes it.", _PER_MS),
    Exported("service-time-ms", "broker_service_seconds", "The broker's part of a Produce request, as the in-flight window assumes it.", _PER_MS),
)

BROKER_LOAD = (  # the source is a field of BrokerLoad
    Exported("bytes_sent", "broker_produced_bytes", "Bytes of Produce requests.", kind="counter"),
    Exported("requests_sent", "broker_produce_requests", "Produce requests.", kind="counter"),
    Exported("queued_bytes", "broker_queue_bytes", "Bytes of batches that wait for the broker."),
    Exported("queued_batches", "broker_queue_batches", "Batches that wait for the broker."),
    Exported("oldest_in_flight_s", "broker_oldest_in_flight_seconds", "Age of the oldest Produce request in flight; 0 if there is none."),
)

TOPIC = (
    Exported("record-send-total", "topic_records_sent", "Records sent. Retries count again."),
    Exported("byte-total", "topic_sent_bytes", "Bytes sent, as on the wire."),
    Exported("record-error-total", "topic_records_failed", "Records that failed."),
    Exported("record-retry-total", "topic_records_retried", "Records that were sent again."),
    Exported("partition-switch-total", "topic_partition_switches", "Batches of records without key that went to another partition than the one before."),
    Exported("partition-skew", "topic_partition_skew_ratio", "The most bytes of a partition, divided by the mean; 1 is even."),
    Exported("compression-rate", "topic_compression_ratio", "Compressed size divided by the size before, in the last minute."),
    Exported("unbound-bytes", "topic_unbound_queue_bytes", "Bytes of batches that wait and have no partition yet."),
)

PARTITION = (
    Exported("record-send-total", "partition_records_sent", "Records sent. Retries count again."),
    Exported("byte-total", "partition_sent_bytes", "Bytes sent, as on the wire."),
    Exported("batch-send-total", "partition_batches_sent", "Batches sent. Retries count again."),
    Exported("queued-bytes", "partition_queue_bytes", "Bytes of batches that wait."),
)

TRANSACTIONS = (
    Exported("", "transaction_seconds", "Time that calls for transactions took.", kind="counter"),
)

REQUESTS_FAILED = (
    Exported("", "broker_requests_failed", "Requests of any kind without a response.", kind="counter"),
)

EXCLUSIONS = (
    Exported("", "broker_excluded", "1: records without key do not go to the broker, for this reason."),
    Exported("", "broker_exclusions", "How often this became the reason why records without key do not go to the broker.", kind="counter"),
)

LEFT_OUT = (
    Exported("", "series_left_out", "Topics or partitions without series, because there are more than the limit."),
)

TIMES = (
    Exported("", "queue_seconds", "From opening a batch until it was first sent, or failed before.", kind="histogram"),
    Exported("", "delivery_seconds", "From opening a batch until its records were acknowledged.", kind="histogram"),
    Exported("", "batch_size_bytes", "Size of batches that were sent.", kind="histogram"),
)

LATENCY = (
    Exported("", "broker_produce_latency_seconds", "From writing a Produce request until its response was read.", kind="histogram"),
)

CONSUMER_PREFIX = "kafkaclient_consumer_"

CONSUMER_UP = Exported("", "up", "1: the consumer runs. 0: it does not, or its event loop did not answer in time.")

CONSUMER = (
    Exported("records-consumed-total", "records_consumed", "Records handed out, counted when the first of a fetched batch is. One that is handed out again counts only after a seek."),
    Exported("bytes-consumed-total", "consumed_bytes", "Bytes of the keys and values of these records."),
    Exported("dropped-records-total", "dropped_records", "Records that could not be deserialized, and were skipped or given to on_error."),
    Exported("records-lag", "lag_records", "Records between the positions and the ends of all assigned partitions."),
    Exported("records-lag-max", "lag_max_records", "The same of the partition that is furthest behind."),
    Exported("assigned-partitions", "assigned_partitions", "Partitions that the consumer has now."),
    Exported("fetch-total", "fetches", "Responses to Fetch requests."),
    Exported("fetch-latency-avg", "fetch_latency_avg_seconds", "Time of a Fetch request, with the broker's wait for records, in the last minute.", _PER_MS),
    Exported("commit-total", "commits", "Commits that were answered."),
    Exported("commit-latency-avg", "commit_latency_avg_seconds", "Time of a commit, in the last minute.", _PER_MS),
    Exported("commit-latency-max", "commit_latency_max_seconds", "Time of the slowest commit in the last minute.", _PER_MS),
    Exported("rebalance-total", "rebalances", "Rebalances that changed or confirmed the assignment."),
    Exported("rebalance-latency-total", "rebalance_seconds", "Time of rebalances, with giving up partitions.", _PER_MS),
    Exported("last-rebalance-seconds-ago", "last_rebalance_age_seconds", "Time since the last rebalance; -1 before the first."),
    Exported("last-heartbeat-seconds-ago", "last_heartbeat_age_seconds", "Time since the last answer to a heartbeat; -1 before the first."),
    Exported("last-poll-seconds-ago", "last_poll_age_seconds", "Time since a loop took a record or waited for one; -1 before the first. Without a group: since it last had to wait."),
    Exported("failed-rebalance-total", "memberships_lost", "How often the group removed this member, or it had to leave."),
    Exported("connection-count", "connections", "Open connections."),
)

CONSUMER_TOPIC = (
    Exported("records-consumed-total", "topic_records_consumed", "Records handed out, counted when the first of a fetched batch is. One that is handed out again counts only after a seek."),
    Exported("bytes-consumed-total", "topic_consumed_bytes", "Bytes of the keys and values of these records."),
)

CONSUMER_PARTITION = (
    Exported("records-lag", "partition_lag_records", "Records between the position and the end of the partition."),
)

STREAMS_PREFIX = "kafkaclient_streams_"

STREAMS_UP = Exported("", "up", "1: the application runs. 0: it does not, or its event loop did not answer in time.")

STREAMS_STATE = (
    Exported("", "state", "1 for the state of the instance, 0 for the others."),
)

STREAMS_STATES = ("created", "rebalancing", "running", "pending shutdown", "not running", "error")
"""The values of ``kafkaclient.streams.AppState``."""

STREAMS = (
    Exported("process-total", "records_processed", "Records processed."),
    Exported("process-latency-avg", "process_latency_avg_seconds", "Time of the processor for a record, with its waits, in the last minute.", _PER_MS),
    Exported("dropped-records-total", "records_dropped", "Records that failed and were skipped, or became dead letters."),
    Exported("commit-total", "commits", "Commits; with exactly once, transactions."),
    Exported("failed-commit-total", "commits_failed", "Commits that failed and transactions aborted."),
    Exported("commit-latency-avg", "commit_latency_avg_seconds", "Length of a commit, in the last minute.", _PER_MS),
    Exported("commit-latency-max", "commit_latency_max_seconds", "Length of the longest commit in the last minute.", _PER_MS),
    Exported("rebalance-total", "rebalances", "Rebalances that this instance took part in."),
    Exported("rebalance-latency-total", "rebalance_seconds", "Time from joining the group to the applied assignment.", _PER_MS),
    Exported("last-rebalance-seconds-ago", "last_rebalance_age_seconds", "Time since the last rebalance; -1 before the first."),
    Exported("failed-rebalance-total", "memberships_lost", "How often the group removed this instance."),
    Exported("active-tasks", "active_tasks", "Active tasks of this instance."),
    Exported("running-tasks", "running_tasks", "Active tasks that process records."),
    Exported("active-restoring-tasks", "restoring_tasks", "Active tasks whose state is being restored."),
    Exported("standby-tasks", "standby_tasks", "Standbys and warm-ups of this instance."),
    Exported("warmup-tasks", "warmup_tasks", "Copies that have not caught up while tasks are to move (KIP-441)."),
    Exported("restore-remaining-records", "restore_remaining_records", "Changelog records that restoring tasks lack."),
    Exported("standby-lag", "standby_lag_records", "Changelog records that all copies lack."),
    Exported("standby-lag-max", "standby_lag_max_records", "Changelog records that the copy lacks which is furthest behind."),
    Exported("restore-records-total", "restored_records", "Changelog records read for active tasks."),
    Exported("restore-bytes-total", "restored_bytes", "Changelog bytes read for active tasks."),
    Exported("standby-update-records-total", "standby_updated_records", "Changelog records read for standbys and warm-ups."),
    Exported("restored-tasks-total", "restores_ended", "Tasks that got all their state."),
    Exported("suspended-restores-total", "restores_suspended", "Tasks that were taken away, or failed, while they were restored."),
)

STREAMS_TASK = (
    Exported("process-total", "task_records_processed", "Records processed here."),
    Exported("dropped-records-total", "task_records_dropped", "Records dropped here."),
    Exported("running", "task_running", "1: the task processes records here. 0: it does not."),
    Exported("lag", "task_lag_records", "Changelog records that the task lacks here."),
)
# fmt: on
