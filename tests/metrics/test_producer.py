"""The producer's metrics: Java's names, and what each report changes."""

from __future__ import annotations

import math

import pytest

from kafkaclient.errors import BrokerConnectionError
from kafkaclient.metrics import ProducerMetrics
from kafkaclient.types import TopicPartition

# Java's names (SenderMetricsRegistry, BufferPool, RecordAccumulator, KafkaProducerMetrics,
# Selector), in the short form "name-{a,b}/-c" that stands for name-a, name-b and name-c.
JAVA_PRODUCER = """
    batch-size-avg/-max, batch-split-rate/-total, buffer-available-bytes,
    buffer-exhausted-rate/-total, buffer-total-bytes, bufferpool-wait-ratio,
    bufferpool-wait-time-total, bufferpool-wait-time-ns-total, compression-rate-avg,
    flush-time-ns-total, metadata-age, metadata-wait-time-ns-total,
    produce-throttle-time-avg/-max, record-error-rate/-total, record-queue-time-avg/-max,
    record-retry-rate/-total, record-send-rate/-total, record-size-avg/-max,
    records-per-request-avg, request-latency-avg/-max, requests-in-flight, waiting-threads,
    txn-init-time-ns-total, txn-begin-time-ns-total, txn-send-offsets-time-ns-total,
    txn-commit-time-ns-total, txn-abort-time-ns-total,
    connection-close-rate/-total, connection-creation-rate/-total, connection-count,
    failed-authentication-rate/-total, failed-reauthentication-rate/-total,
    successful-authentication-rate/-total, successful-reauthentication-rate/-total,
    successful-authentication-no-reauth-total, reauthentication-latency-avg/-max,
    incoming-byte-rate/-total, outgoing-byte-rate/-total, network-io-rate/-total,
    request-rate/-total, request-size-avg/-max, response-rate/-total, select-rate/-total,
    io-ratio, io-time-ns-avg, io-time-ns-total, iotime-total, io-wait-ratio, io-wait-time-ns-avg,
    io-wait-time-ns-total, io-waittime-total
"""
JAVA_NODE = """
    request-rate/-total, request-size-avg/-max, outgoing-byte-rate/-total, response-rate/-total,
    incoming-byte-rate/-total, request-latency-avg/-max
"""
JAVA_TOPIC = """
    record-send-rate/-total, byte-rate/-total, compression-rate, record-retry-rate/-total,
    record-error-rate/-total
"""
# Ours among Java's; partition-skew is bound by the producer.
OUR_PRODUCER = "event-loop-lag-avg/-max, record-error-unseen-rate/-total"
OUR_TOPIC = "partition-switch-rate/-total"

# beginning of the name -> why this client has none
DO_NOT_APPLY = {
    "select-": "asyncio's loop is shared: no code here waits in select",
    "io-": "asyncio's loop is shared; see event-loop-lag",
    "iotime-": "deprecated in Java",
    "bufferpool-wait-time-total": "deprecated in Java",
    "failed-authentication-": "no TLS or SASL yet",
    "failed-reauthentication-": "no TLS or SASL yet",
    "successful-": "no TLS or SASL yet",
    "reauthentication-": "no TLS or SASL yet",
}


def names(short: str) -> set[str]:
    found: set[str] = set()
    for entry in short.replace("\n", " ").split(","):
        first, *others = entry.strip().split("/")
        found.add(first)
        found.update(first.rsplit("-", 1)[0] + other for other in others)
    return found


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> ProducerMetrics:
    return ProducerMetrics(clock)


# What LiveGauges adds (test_gauges.py).
GAUGES = {
    "buffer-available-bytes",
    "buffer-total-bytes",
    "metadata-age",
    "requests-in-flight",
    "waiting-threads",
}

# --- names -------------------------------------------------------------------------------------


def test_every_java_name_that_applies_is_there_and_no_other(metrics: ProducerMetrics) -> None:
    metrics.request_sent(0, 1)
    metrics.records_failed("t", 1)
    snapshot = metrics.snapshot()
    applying = {name for name in names(JAVA_PRODUCER) if not name.startswith(tuple(DO_NOT_APPLY))}
    assert set(snapshot.producer) | GAUGES == applying | names(OUR_PRODUCER)
    assert set(snapshot.brokers[0]) == names(JAVA_NODE)
    assert set(snapshot.topics["t"]) == names(JAVA_TOPIC) | names(OUR_TOPIC)


def test_every_exemption_is_needed(metrics: ProducerMetrics) -> None:
    for prefix in DO_NOT_APPLY:
        assert any(name.startswith(prefix) for name in names(JAVA_PRODUCER)), prefix


def test_values_are_numbers_before_anything_happened(metrics: ProducerMetrics) -> None:
    for name, value in metrics.snapshot().producer.items():
        if name.endswith(("-rate", "-total", "-ratio")) or name == "connection-count":
            assert value == 0, name
        else:
            assert math.isnan(value), name


# --- what the reports change -------------------------------------------------------------------


def test_batches(metrics: ProducerMetrics) -> None:
    metrics.batch_sent("t", 3, 500, 0.010, 0, 1000)
    metrics.batch_sent("t", 7, 500, 0.020, 0, None)  # a retry: its sizes are recorded already
    metrics.batch_sent("u", 10, 1000, 0.030, 0, 1000)
    metrics.produce_request(20)
    metrics.batch_split()
    snapshot = metrics.snapshot()
    values = snapshot.producer
    assert values["batch-size-avg"] == 750
    assert values["batch-size-max"] == 1000
    assert values["compression-rate-avg"] == 0.75
    assert values["record-size-avg"] == (333 + 100) / 2
    assert values["record-size-max"] == 333
    assert values["record-send-total"] == 20
    assert values["record-send-rate"] == pytest.approx(20 / 30)
    assert values["record-queue-time-avg"] == pytest.approx(20)
    assert values["record-queue-time-max"] == pytest.approx(30)
    assert values["records-per-request-avg"] == 20
    assert values["batch-split-total"] == 1
    topics = snapshot.topics
    assert topics["t"]["record-send-total"] == topics["u"]["record-send-total"] == 10
    assert (topics["t"]["byte-total"], topics["u"]["byte-total"]) == (1000, 1000)
    assert (topics["t"]["compression-rate"], topics["u"]["compression-rate"]) == (0.5, 1.0)


def test_switches_count_per_topic(metrics: ProducerMetrics) -> None:
    metrics.partition_switched("t")
    metrics.partition_switched("t")
    metrics.partition_switched("u")
    topics = metrics.snapshot().topics
    assert topics["t"]["partition-switch-total"] == 2
    assert topics["t"]["partition-switch-rate"] == pytest.approx(2 / 30)
    assert topics["u"]["partition-switch-total"] == 1


def test_queue_time_includes_expired_batches(metrics: ProducerMetrics) -> None:
    metrics.batch_sent("t", 1, 100, 1, 0, 100)
    metrics.expired_in_queue(120)
    values = metrics.snapshot().producer
    assert values["record-queue-time-max"] == 120_000
    assert values["record-queue-time-avg"] == 60_500
    assert values["record-send-total"] == 1


def test_failures_and_retries(metrics: ProducerMetrics) -> None:
    metrics.records_failed("t", 3)
    metrics.records_retried("t", 5)
    metrics.errors_unseen(2)
    snapshot = metrics.snapshot()
    for values in (snapshot.producer, snapshot.topics["t"]):
        assert values["record-error-total"] == 3
        assert values["record-retry-total"] == 5
    assert snapshot.producer["record-error-unseen-total"] == 2


def test_requests_by_node(metrics: ProducerMetrics, clock: Clock) -> None:
    metrics.request_sent(0, 100)
    metrics.request_sent(1, 300)
    clock.now += 10
    metrics.request_done(0, "PRODUCE", 50, 0.020, None)
    metrics.request_done(0, "PRODUCE", 0, 3, BrokerConnectionError("lost"))
    metrics.throttled(0.5)
    snapshot = metrics.snapshot()
    values = snapshot.producer
    assert values["request-total"] == 2
    assert values["request-rate"] == pytest.approx(2 / 40)
    assert values["outgoing-byte-total"] == 400
    assert values["outgoing-byte-rate"] == pytest.approx(10)
    assert (values["request-size-avg"], values["request-size-max"]) == (200, 300)
    assert values["incoming-byte-total"] == 50
    assert values["network-io-total"] == 3
    assert values["request-latency-max"] == pytest.approx(20)
    assert values["produce-throttle-time-avg"] == 500
    nodes = snapshot.brokers
    assert list(nodes) == [0, 1]
    assert (nodes[0]["outgoing-byte-total"], nodes[1]["request-total"]) == (100, 1)
    assert nodes[0]["request-latency-avg"] == pytest.approx(20)
    assert math.isnan(nodes[1]["request-latency-avg"])


def test_connections(metrics: ProducerMetrics) -> None:
    metrics.connection_opened(0)
    metrics.connection_opened(1)
    metrics.connection_closed(0)
    values = metrics.snapshot().producer
    assert values["connection-count"] == 1
    assert (values["connection-creation-total"], values["connection-close-total"]) == (2, 1)


def test_waits(metrics: ProducerMetrics) -> None:
    metrics.buffer_waited(3)
    metrics.buffer_exhausted()
    metrics.metadata_waited(0.25)
    metrics.flushed(2e-9)
    metrics.transaction_waited("send-offsets", 0.5)
    metrics.transaction_waited("send-offsets", 0.25)
    metrics.event_loop_lagged(0.004)
    snapshot = metrics.snapshot()
    values = snapshot.producer
    assert values["bufferpool-wait-ratio"] == pytest.approx(0.1)
    assert values["bufferpool-wait-time-ns-total"] == 3_000_000_000
    assert values["buffer-exhausted-total"] == 1
    assert values["metadata-wait-time-ns-total"] == 250_000_000
    assert values["flush-time-ns-total"] == 2
    assert values["txn-send-offsets-time-ns-total"] == 750_000_000
    assert values["txn-commit-time-ns-total"] == 0
    calls = {"init": 0, "begin": 0, "send_offsets": 0.75, "commit": 0, "abort": 0}
    assert snapshot.transaction_seconds == calls
    assert snapshot.producer["event-loop-lag-max"] == pytest.approx(4)


# --- gauges ------------------------------------------------------------------------------------


class Gauges:
    """What a producer has now."""

    def __init__(self) -> None:
        self.waiting = 1

    def of_producer(self) -> dict[str, float]:
        return {"waiting-threads": self.waiting}

    def of_brokers(self) -> dict[int, dict[str, float]]:
        return {0: {"queued-bytes": 9}, 1: {"queued-bytes": 8}}

    def of_topics(self) -> dict[str, dict[str, float]]:
        return {"unsent": {"partition-skew": 1.5}, "t": {"partition-skew": 1.0}}

    def of_partitions(self) -> dict[TopicPartition, dict[str, float]]:
        return {TopicPartition("t", 10): {"queued": 3}, TopicPartition("t", 2): {"queued": 1}}

    def exclusions(self) -> dict[int, dict[str, int]]:
        return {0: {"slow": 2}}


def test_gauges_are_read_when_asked(metrics: ProducerMetrics) -> None:
    metrics.gauges = gauges = Gauges()
    assert metrics.snapshot().producer["waiting-threads"] == 1
    gauges.waiting = 7
    assert metrics.snapshot().producer["waiting-threads"] == 7


def test_gauges_by_node_and_partition(metrics: ProducerMetrics) -> None:
    metrics.request_sent(1, 10)
    metrics.batch_sent("t", 5, 60, 0.1, 10, 60)
    metrics.batch_sent("t", 5, 60, 0.1, 10, 60)
    metrics.gauges = Gauges()
    snapshot = metrics.snapshot()
    nodes = snapshot.brokers
    assert nodes[0] == {"exclusion-slow-total": 2, "queued-bytes": 9}
    assert snapshot.exclusions == {0: {"slow": 2}}
    topics = snapshot.topics
    assert list(topics) == ["t", "unsent"]
    assert topics["unsent"] == {"partition-skew": 1.5}
    assert (topics["t"]["partition-skew"], topics["t"]["record-send-total"]) == (1.0, 10)
    assert (nodes[1]["queued-bytes"], nodes[1]["request-total"]) == (8, 1)
    partitions = snapshot.partitions
    assert list(partitions) == [TopicPartition("t", 2), TopicPartition("t", 10)]
    assert partitions[TopicPartition("t", 10)] == {
        "batch-send-total": 2,
        "byte-total": 120,
        "record-send-total": 10,
        "queued": 3,
    }


def test_topics_can_be_forgotten(metrics: ProducerMetrics) -> None:
    metrics.batch_sent("t", 5, 60, 0.1, 0, 60)
    metrics.forget_topic("t")
    metrics.forget_topic("never seen")
    snapshot = metrics.snapshot()
    assert snapshot.topics == {}
    assert snapshot.partitions == {}
    assert snapshot.producer["record-send-total"] == 5


def test_window_options(clock: Clock) -> None:
    metrics = ProducerMetrics(clock, sample_window_ms=1000, num_samples=1)
    metrics.batch_split()
    clock.now += 0.5
    assert metrics.snapshot().producer["batch-split-rate"] == pytest.approx(2)
    clock.now += 1
    values = metrics.snapshot().producer
    assert (values["batch-split-rate"], values["batch-split-total"]) == (0, 1)
