"""The producer's metrics under Java's names.

Sources in Java: ``SenderMetricsRegistry``, ``BufferPool``, ``KafkaProducerMetrics``, ``Selector``.
Values are recorded for each batch, request or wait, not for each record, and on the event loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from kafkaclient.metrics.snapshot import Group, MetricsSnapshot, Values
from kafkaclient.metrics.stats import Windowed, Windows
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.errors import KafkaError

Gauges: TypeAlias = "Mapping[str, float]"
_Key = TypeVar("_Key", int, str, TopicPartition)

_TXN_CALLS = ("init", "begin", "send-offsets", "commit", "abort")
_NS_PER_S = 1_000_000_000


class Recorder(Protocol):
    """Records a value now; without argument, an event."""

    def __call__(self, value: float = 1, /) -> None: ...


class GaugeSource(Protocol):
    """What reads the gauges of a producer at each snapshot."""

    def of_producer(self) -> Gauges: ...
    def of_brokers(self) -> Mapping[int, Gauges]:
        """By node id."""
        ...

    def of_topics(self) -> Mapping[str, Gauges]: ...
    def of_partitions(self) -> Mapping[TopicPartition, Gauges]: ...
    def exclusions(self) -> dict[int, dict[str, int]]:
        """By node id and reason: how often the broker was excluded for it."""
        ...


class ProducerMetrics:
    """Counts what the producer's parts report; :meth:`snapshot` returns all metrics.

    Parameters: ``clock`` gives monotonic seconds; ``sample_window_ms`` and ``num_samples`` are the
    options ``metrics.sample.window.ms`` and ``metrics.num.samples``. Node ids are negative for
    bootstrap servers, as in Java. Times are recorded in seconds.
    """

    def __init__(
        self, clock: Callable[[], float], sample_window_ms: float = 30_000, num_samples: int = 2
    ) -> None:
        self._clock = clock
        self._windows = Windows(sample_window_ms / 1000, num_samples)
        self.gauges: GaugeSource | None = None
        """What is read at each snapshot. Assigned when the parts that it reads are made."""

        group = self._group = Group(self._windows)
        nanoseconds, recorder = self._nanoseconds, self._recorder

        # Batches and records
        self._batch_size = group.spread("batch-size")
        self._compression = group.average("compression-rate-avg")
        self._record_size = group.spread("record-size")
        self._queue_time = group.duration("record-queue-time")
        self.expired_in_queue = recorder(self._queue_time)
        """The queue time of a batch that expired before it was sent. Java does not record it, which
        hides the longest waits (KAFKA-14672)."""
        self.batch_split = recorder(group.meter("batch-split"))
        """A batch was too large for the broker and was split (KIP-126)."""
        self._sent = group.meter("record-send")
        self._errors = group.meter("record-error")
        self._retries = group.meter("record-retry")
        self.errors_unseen = recorder(group.meter("record-error-unseen"))
        """The number of records that failed while their Delivery was not awaited or inspected."""

        # Requests and connections
        self.produce_request = recorder(group.average("records-per-request-avg"))
        """The number of records in a Produce request."""
        self._latency = group.duration("request-latency")
        self.throttled = recorder(group.duration("produce-throttle-time"))
        """The throttle time in a Produce response, usually 0."""
        self._requests = group.spread("request-size", group.traffic("request", "outgoing-byte"))
        self._responses = group.traffic("response", "incoming-byte")
        reads, writes = self._responses, self._requests
        group.read_by("network-io-rate", lambda now: reads.frequency(now) + writes.frequency(now))
        group.read_by("network-io-total", lambda _now: reads.events + writes.events)
        opened = self._opened = group.meter("connection-creation")
        closed = self._closed = group.meter("connection-close")
        group.read_by("connection-count", lambda _now: opened.events - closed.events)

        # Waits
        buffer_wait = nanoseconds("bufferpool-wait-time")
        group.read_by("bufferpool-wait-ratio", buffer_wait.rate)
        self.buffer_waited = recorder(buffer_wait)
        """How long a caller waited for buffer space, with or without success."""
        self.buffer_exhausted = recorder(group.meter("buffer-exhausted"))
        """A record was refused for lack of buffer space."""
        self.flushed = recorder(nanoseconds("flush-time"))
        self.metadata_waited = recorder(nanoseconds("metadata-wait-time"))
        """How long a caller waited for a topic's metadata."""
        self._transactions = {call: nanoseconds(f"txn-{call}-time") for call in _TXN_CALLS}
        self.event_loop_lagged = recorder(group.duration("event-loop-lag"))
        """How late a timer of the producer ran."""

        self._nodes: defaultdict[int, _Node] = defaultdict(
            partial(_Node, self._windows, self._requests, self._responses, self._latency)
        )
        self._topics: defaultdict[str, _Topic] = defaultdict(
            partial(
                _Topic, self._windows, self._sent, self._compression, self._retries, self._errors
            )
        )

    def _recorder(self, values: Windowed) -> Recorder:
        clock = self._clock
        return lambda value=1: values.record(value, clock())

    def _nanoseconds(self, name: str) -> Windowed:
        seconds = Windowed(self._windows)
        self._group.read_by(f"{name}-ns-total", lambda _now: round(seconds.total * _NS_PER_S))
        return seconds

    def batch_sent(
        self,
        topic: str,
        records: int,
        nbytes: int,
        queue_time_s: float,
        partition: int,
        raw_bytes: int | None,
    ) -> None:
        """A batch was sent, ``queue_time_s`` after it was opened. Each retry counts again, as in
        Java.

        The batch had ``raw_bytes`` before compression; None for a retry, and for the parts of a
        batch that was split after an attempt: their sizes are not recorded. The record size is the
        batch's mean. Java records the size of the batch's largest record.
        """
        now = self._clock()
        entry = self._topics[topic]
        if raw_bytes is not None:
            self._batch_size.record(nbytes, now)
            self._record_size.record(raw_bytes // max(records, 1), now)
            entry.compression.record(nbytes / raw_bytes if raw_bytes else 1.0, now)
        self._queue_time.record(queue_time_s, now)
        entry.sent.record(records, now)
        entry.bytes.record(nbytes, now)
        totals = entry.partitions[partition]
        totals["batch-send-total"] += 1
        totals["byte-total"] += nbytes
        totals["record-send-total"] += records

    def partition_switched(self, topic: str) -> None:
        """A batch of unkeyed records goes to another partition than the previous batch."""
        self._topics[topic].switches.record(1, self._clock())

    def records_failed(self, topic: str, records: int) -> None:
        """Records failed, and are not sent again."""
        self._topics[topic].errors.record(records, self._clock())

    def records_retried(self, topic: str, records: int) -> None:
        """Records will be sent again."""
        self._topics[topic].retries.record(records, self._clock())

    def request_sent(self, node_id: int, nbytes: int) -> None:
        """A request of any kind was written; ``nbytes`` includes its size field."""
        self._nodes[node_id].requests.record(nbytes, self._clock())

    def request_done(
        self, node_id: int, api: str, nbytes: int, latency_s: float, error: KafkaError | None
    ) -> None:
        """A response of any kind was read, ``latency_s`` after its request was written; or there
        will be none, because of ``error``, which does not count."""
        if error is not None:
            return
        now = self._clock()
        node = self._nodes[node_id]
        node.responses.record(nbytes, now)
        node.latency.record(latency_s, now)

    def connection_opened(self, node_id: int) -> None:
        self._opened.record(1, self._clock())

    def connection_closed(self, node_id: int) -> None:
        self._closed.record(1, self._clock())

    def transaction_waited(self, call: str, seconds: float) -> None:
        """A call on a transaction ended: init, begin, send-offsets, commit or abort."""
        self._transactions[call].record(seconds, self._clock())

    def forget_topic(self, topic: str) -> None:
        """Drop the metrics of a topic that is no longer used."""
        self._topics.pop(topic, None)

    def snapshot(self, *, partitions: bool = True) -> MetricsSnapshot:
        """The values of all metrics now; ``partitions`` False: without those of partitions."""
        now, gauges = self._clock(), self.gauges
        totals = self._group.snapshot(now)
        brokers = {id_: node.group.snapshot(now) for id_, node in self._nodes.items()}
        topics = {name: topic.group.snapshot(now) for name, topic in self._topics.items()}
        by_partition: dict[TopicPartition, Values] = {}
        if partitions:
            by_partition = {
                TopicPartition(name, number): dict(counts)
                for name, topic in self._topics.items()
                for number, counts in topic.partitions.items()
            }
        exclusions: dict[int, dict[str, int]] = {}
        if gauges is not None:
            exclusions = gauges.exclusions()
            totals |= gauges.of_producer()
            _add(brokers, gauges.of_brokers())
            _add(
                brokers, {node_id: _exclusion_totals(each) for node_id, each in exclusions.items()}
            )
            _add(topics, gauges.of_topics())
            if partitions:
                _add(by_partition, gauges.of_partitions())
        return MetricsSnapshot(
            dict(sorted(totals.items())),
            _sorted(brokers),
            _sorted(topics),
            _sorted(by_partition),
            exclusions,
            {call.replace("-", "_"): time.total for call, time in self._transactions.items()},
        )


def _add(values: dict[_Key, Values], gauges: Mapping[_Key, Gauges]) -> None:
    for key, more in gauges.items():
        values.setdefault(key, {}).update(more)


def _exclusion_totals(reasons: Mapping[str, int]) -> Gauges:
    return {f"exclusion-{reason}-total": times for reason, times in reasons.items()}


def _sorted(values: dict[_Key, Values]) -> dict[_Key, Values]:
    return {key: dict(sorted(values[key].items())) for key in sorted(values)}


class _Node:
    """A broker's metrics (Java: ``producer-node-metrics``). Each value is also recorded in the
    totals of all brokers."""

    def __init__(
        self, windows: Windows, requests: Windowed, responses: Windowed, latency: Windowed
    ) -> None:
        group = self.group = Group(windows)
        sizes = group.traffic("request", "outgoing-byte", requests)
        self.requests = group.spread("request-size", sizes)
        self.responses = group.traffic("response", "incoming-byte", responses)
        self.latency = group.duration("request-latency", latency)


class _Topic:
    """A topic's metrics (Java: ``producer-topic-metrics``). Each value is also recorded in the
    totals of all topics."""

    def __init__(
        self,
        windows: Windows,
        sent: Windowed,
        compression: Windowed,
        retries: Windowed,
        errors: Windowed,
    ) -> None:
        group = self.group = Group(windows)
        self.sent = group.meter("record-send", sent)
        self.bytes = group.meter("byte")
        self.compression = group.average("compression-rate", compression)
        self.retries = group.meter("record-retry", retries)
        self.errors = group.meter("record-error", errors)
        self.switches = group.meter("partition-switch")
        self.partitions: defaultdict[int, Counter[str]] = defaultdict(Counter)
