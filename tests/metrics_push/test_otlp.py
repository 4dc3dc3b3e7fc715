"""The bytes of a push, read by OpenTelemetry's own classes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from kafkaclient.metrics.consumer import ConsumerMetrics
from kafkaclient.metrics.producer import ProducerMetrics
from kafkaclient.metrics_push.otlp import Counters, metrics_data
from kafkaclient.metrics_push.points import Point, consumer_points, producer_points
from kafkaclient.types import TopicPartition

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
_ATTRIBUTES = st.lists(st.tuples(_TEXT, _TEXT), max_size=3).map(tuple)


@given(
    st.lists(
        st.builds(
            Point,
            _TEXT | _TEXT.map("{}.total".format),
            st.floats(allow_nan=False),
            _ATTRIBUTES,
        ),
        max_size=20,
    ),
    st.dictionaries(_TEXT, _TEXT, max_size=3),
    st.integers(0, 2**63 - 1),
    st.booleans(),
)
def test_opentelemetry_reads_every_point(
    points: list[Point], resource: dict[str, str], at_ns: int, delta: bool
) -> None:
    encoded = metrics_data(points, resource, Counters(5), at_ns, delta=delta)
    (found,) = MetricsData.FromString(encoded).resource_metrics
    assert {each.key: each.value.string_value for each in found.resource.attributes} == resource
    read = []
    for metric in found.scope_metrics[0].metrics:
        is_counter = metric.name.endswith(".total")
        assert metric.HasField("sum") == is_counter
        assert metric.HasField("gauge") == (not is_counter)
        if is_counter:
            wanted = "DELTA" if delta else "CUMULATIVE"
            temporality = AggregationTemporality.Name(metric.sum.aggregation_temporality)
            assert temporality == f"AGGREGATION_TEMPORALITY_{wanted}"
            assert metric.sum.is_monotonic
        for each in (metric.sum if is_counter else metric.gauge).data_points:
            assert each.time_unix_nano == at_ns
            assert each.start_time_unix_nano == (5 if is_counter else 0)
            attributes = tuple((a.key, a.value.string_value) for a in each.attributes)
            read.append(Point(metric.name, each.as_double, attributes))
    assert read == sorted(points, key=lambda point: point.name)


def test_deltas_are_what_was_added_since_the_last_push() -> None:
    counters, where = Counters(10), (("topic", "t"),)
    first, other = Point("a.total", 7.0, where), Point("b.total", 5.0)
    gauge = Point("a.gauge", 3.0)
    assert counters.delta(first) == (10, 7.0)
    counters.pushed([first, gauge], 20, [first, gauge, other])
    second = Point("a.total", 9.0, where)
    assert counters.delta(second) == (20, 2.0)
    assert counters.total(second) == (10, 9.0)
    assert counters.delta(Point("a.total", 9.0)) == (10, 9.0), "another counter"
    assert counters.delta(Point("a.total", 4.0, where)) == (20, 4.0), "the topic was forgotten"
    counters.pushed([other], 30, [second, other])  # the subscription was another one
    assert counters.delta(second) == (20, 2.0), "nothing counts twice"
    assert counters.delta(Point("b.total", 6.0)) == (30, 1.0)
    counters.pushed([other], 40, [other])
    assert counters.delta(second) == (10, 9.0), "what is gone takes no memory"


# What KIP-714 requires.
_REQUIRED_OF_PRODUCERS = """
    connection.creation.rate connection.creation.total node.request.latency.avg
    node.request.latency.max produce.throttle.time.avg produce.throttle.time.max
    record.queue.time.avg record.queue.time.max
"""
_REQUIRED_OF_CONSUMERS = """
    connection.creation.rate connection.creation.total coordinator.assigned.partitions
    coordinator.commit.latency.avg coordinator.commit.latency.max
    coordinator.rebalance.latency.avg coordinator.rebalance.latency.max
    coordinator.rebalance.latency.total fetch.manager.fetch.latency.avg
    fetch.manager.fetch.latency.max node.request.latency.avg node.request.latency.max
    poll.idle.ratio.avg
"""


def test_a_producers_metrics_have_the_names_of_the_kip() -> None:
    metrics = ProducerMetrics(lambda: 1.0)
    metrics.request_sent(-1, 100)
    metrics.batch_sent("t", 1, 10, 0.1, 0, 10)
    points = list(producer_points(metrics.snapshot(partitions=False)))
    names = {point.name for point in points}
    assert {f"org.apache.kafka.producer.{each}" for each in _REQUIRED_OF_PRODUCERS.split()} <= names
    assert (
        Point("org.apache.kafka.producer.topic.record.send.total", 1, (("topic", "t"),)) in points
    )
    sent = "org.apache.kafka.producer.node.request.total"
    assert Point(sent, 1, (("node_id", "node--1"),)) in points


def test_a_consumers_metrics_have_the_names_of_the_kip() -> None:
    metrics = ConsumerMetrics(lambda: 1.0)
    metrics.request_done(1, "FETCH", 100, 0.1, None)
    metrics.consumed("t", 3, 30)
    points = list(consumer_points(metrics.snapshot({TopicPartition("t", 0): 4})))
    names = {point.name.removeprefix("org.apache.kafka.consumer.") for point in points}
    assert set(_REQUIRED_OF_CONSUMERS.split()) <= names
    assert names >= {
        "last.poll.seconds.ago",
        "dropped.records.total",
        "coordinator.last.heartbeat.seconds.ago",
        "coordinator.failed.rebalance.total",
        "fetch.manager.bytes.consumed.total",
        "fetch.manager.records.lag.max",
    }
    prefix = "org.apache.kafka.consumer.fetch.manager."
    assert Point(f"{prefix}records.consumed.total", 3, (("topic", "t"),)) in points
    where = (("topic", "t"), ("partition", "0"))
    assert [p for p in points if p.name == f"{prefix}records.lag"] == [
        Point(f"{prefix}records.lag", 4, where)
    ]
