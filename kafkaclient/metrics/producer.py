"""The producer's metrics under Java's names.

Sources in Java: ``SenderMetricsRegistry``, ``BufferPool``, ``KafkaProducerMetrics``, ``Selector``.
Everything is recorded per batch, request or wait, never per record, and on the event loop.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.metrics.group import Group
from kafkaclient.metrics.stats import Windowed, Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Gauges", "ProducerMetrics", "Snapshot"]

Snapshot: TypeAlias = "dict[str, dict[str, Any]]"
Gauges: TypeAlias = "Mapping[str, float]"

_TXN_CALLS = ("init", "begin", "send-offsets", "commit", "abort")
_NS_PER_S = 1_000_000_000


class ProducerMetrics:
    """Counts what the producer's parts report; :meth:`snapshot` gives it all back.

    Parameters: ``clock`` gives monotonic seconds; ``sample_window_ms`` and ``num_samples`` are the
    options ``metrics.sample.window.ms`` and ``metrics.num.samples``. Node ids are negative for
    bootstrap servers, as in Java.
    """

    def __init__(
        self, clock: Callable[[], float], sample_window_ms: float = 30_000, num_samples: int = 2
    ) -> None:
        self._clock = clock
        self._windows = Windows(sample_window_ms / 1000, num_samples)
        self._read_nodes: Callable[[], Mapping[int, Gauges]] = dict
        self._read_topics: Callable[[], Mapping[str, Gauges]] = dict
        self._read_partitions: Callable[[], Mapping[str, Mapping[int, Gauges]]] = dict
        self._connections = 0

        group = self._group = Group(self._windows)
        self._batch_size = group.spread("batch-size")
        self._compression = group.average("compression-rate-avg")
        self._record_size = group.spread("record-size")
        self._queue_time = group.duration("record-queue-time")
        self._sent = group.meter("record-send")
        self._per_request = group.average("records-per-request-avg")
        self._latency = group.duration("request-latency")
        self._throttle = group.duration("produce-throttle-time")
        self._errors = group.meter("record-error")
        self._retries = group.meter("record-retry")
        self._splits = group.meter("batch-split")
        self._exhausted = group.meter("buffer-exhausted")
        self._buffer_wait = self._nanoseconds("bufferpool-wait-time")
        group.read_by("bufferpool-wait-ratio", self._buffer_wait.rate)
        self._flush = self._nanoseconds("flush-time")
        self._metadata_wait = self._nanoseconds("metadata-wait-time")
        self._transactions = {call: self._nanoseconds(f"txn-{call}-time") for call in _TXN_CALLS}
        group.gauges(
            "buffer-available-bytes",
            "buffer-total-bytes",
            "metadata-age",
            "requests-in-flight",
            "waiting-threads",
        )
        self._requests = group.spread("request-size", group.traffic("request", "outgoing-byte"))
        self._responses = group.traffic("response", "incoming-byte")
        reads, writes = self._responses, self._requests
        group.read_by("network-io-rate", lambda now: reads.frequency(now) + writes.frequency(now))
        group.read_by("network-io-total", lambda _now: reads.events + writes.events)
        self._created = group.meter("connection-creation")
        self._closed = group.meter("connection-close")
        group.read_by("connection-count", lambda _now: self._connections)

        self._nodes: defaultdict[int, _Node] = defaultdict(
            partial(_Node, self._windows, self._requests, self._responses, self._latency)
        )
        self._topics: defaultdict[str, _Topic] = defaultdict(
            partial(
                _Topic, self._windows, self._sent, self._compression, self._retries, self._errors
            )
        )

        own = self._own = Group(self._windows)
        self._unseen = own.meter("record-error-unseen")
        self._loop_lag = own.duration("event-loop-lag")

    def _nanoseconds(self, name: str) -> Windowed:
        seconds = Windowed(self._windows)
        self._group.read_by(f"{name}-ns-total", lambda _now: round(seconds.total * _NS_PER_S))
        return seconds

    # --- batches ------------------------------------------------------------------------------

    def batch_sealed(
        self,
        topic: str,
        records: int,
        nbytes: int,
        raw_bytes: int,
        largest_record: int | None = None,
    ) -> None:
        """A batch is ready to leave: ``nbytes`` on the wire, ``raw_bytes`` before compression.

        ``largest_record`` is the size of its largest record; the mean stands for it when unknown.
        As in Java, record-size-avg is the average of the batches' largest records.
        """
        now = self._clock()
        ratio = nbytes / raw_bytes if raw_bytes else 1.0
        if largest_record is None:
            largest_record = raw_bytes // max(records, 1)
        self._batch_size.record(nbytes, now)
        self._record_size.record(largest_record, now)
        self._topics[topic].compression.record(ratio, now)

    def batch_sent(
        self,
        topic: str,
        records: int,
        nbytes: int,
        queue_time_s: float,
        partition: int | None = None,
    ) -> None:
        """A batch left in a request; each retry counts again, as in Java.

        ``queue_time_s`` is the time since the batch was opened. A ``partition`` keeps totals of
        its own in ``producer-partition-metrics``.
        """
        now = self._clock()
        self._queue_time.record(queue_time_s, now)
        entry = self._topics[topic]
        entry.sent.record(records, now)
        entry.bytes.record(nbytes, now)
        if partition is not None:
            totals = entry.partitions.get(partition)
            if totals is None:
                totals = entry.partitions[partition] = _PartitionTotals()
            totals.batches += 1
            totals.records += records
            totals.bytes += nbytes

    def batch_expired(self, queue_time_s: float) -> None:
        """A batch ran out of time before it was ever sent.

        Java leaves these out of record-queue-time, which hides the longest waits (KAFKA-14672).
        """
        self._queue_time.record(queue_time_s, self._clock())

    def batch_split(self) -> None:
        """A batch was too large for the broker and was split (KIP-126)."""
        self._splits.record(1, self._clock())

    def partition_switched(self, topic: str) -> None:
        """A batch of unkeyed records goes to another partition than the one before it."""
        self._topics[topic].switches.record(1, self._clock())

    def records_failed(self, topic: str, records: int) -> None:
        """Records failed for good."""
        self._topics[topic].errors.record(records, self._clock())

    def records_retried(self, topic: str, records: int) -> None:
        """Records will be sent again."""
        self._topics[topic].retries.record(records, self._clock())

    def errors_unseen(self, records: int) -> None:
        """Records failed while nobody looked at their delivery."""
        self._unseen.record(records, self._clock())

    # --- requests and connections ---------------------------------------------------------------

    def produce_request(self, records: int) -> None:
        """A Produce request left with that many records."""
        self._per_request.record(records, self._clock())

    def request_sent(self, node_id: int, nbytes: int) -> None:
        """A request of any kind was written; ``nbytes`` with its size field."""
        self._nodes[node_id].requests.record(nbytes, self._clock())

    def response_received(self, node_id: int, nbytes: int, latency_s: float) -> None:
        """A response of any kind was read, ``latency_s`` after its request was written."""
        now = self._clock()
        node = self._nodes[node_id]
        node.responses.record(nbytes, now)
        node.latency.record(latency_s, now)

    def throttled(self, seconds: float) -> None:
        """A broker's answer to a Produce request tells how long it throttles us, mostly 0."""
        self._throttle.record(seconds, self._clock())

    def connection_opened(self, node_id: int) -> None:
        self._connections += 1
        self._created.record(1, self._clock())

    def connection_closed(self, node_id: int) -> None:
        self._connections -= 1
        self._closed.record(1, self._clock())

    # --- waits ----------------------------------------------------------------------------------

    def buffer_waited(self, seconds: float) -> None:
        """A caller waited for buffer space (whether it came or not)."""
        self._buffer_wait.record(seconds, self._clock())

    def buffer_exhausted(self) -> None:
        """A record was refused for lack of buffer space."""
        self._exhausted.record(1, self._clock())

    def metadata_waited(self, seconds: float) -> None:
        """A caller waited for a topic's metadata."""
        self._metadata_wait.record(seconds, self._clock())

    def flushed(self, seconds: float) -> None:
        """A flush ended."""
        self._flush.record(seconds, self._clock())

    def transaction_waited(self, call: str, seconds: float) -> None:
        """A call of a transaction ended: init, begin, send-offsets, commit or abort."""
        self._transactions[call].record(seconds, self._clock())

    def event_loop_lagged(self, seconds: float) -> None:
        """A timer of ours ran this much later than it was due."""
        self._loop_lag.record(seconds, self._clock())

    # --- gauges and reading -----------------------------------------------------------------------

    def bind_gauge(self, name: str, read: Callable[[], float]) -> None:
        """Supply a gauge: ``buffer-available-bytes``, ``buffer-total-bytes``, ``metadata-age``
        (seconds), ``requests-in-flight`` or ``waiting-threads``. Raises KeyError for others."""
        self._group.bind(name, read)

    def bind_node_gauges(self, read: Callable[[], Mapping[int, Gauges]]) -> None:
        """Supply further gauges by node id, shown among ``producer-node-metrics``."""
        self._read_nodes = read

    def bind_topic_gauges(self, read: Callable[[], Mapping[str, Gauges]]) -> None:
        """Supply further gauges by topic, shown among ``producer-topic-metrics``."""
        self._read_topics = read

    def bind_partition_gauges(self, read: Callable[[], Mapping[str, Mapping[int, Gauges]]]) -> None:
        """Supply further gauges by partition, for ``producer-partition-metrics``."""
        self._read_partitions = read

    def forget_topic(self, topic: str) -> None:
        """Drop a topic's metrics, so that topics that come and go do not pile up."""
        self._topics.pop(topic, None)

    def snapshot(self) -> Snapshot:
        """All values by group and name; averages and maxima are NaN while nothing was recorded.

        ``producer-metrics``, ``producer-node-metrics`` (by ``node-0``) and
        ``producer-topic-metrics`` (by topic) are Java's, with a few of our own on how partitions
        are chosen. Our own altogether: ``producer-partition-metrics`` (by ``topic-0``) with the
        totals of what was sent, and ``kafkaclient-metrics`` with ``record-error-unseen-rate``/
        ``-total`` and ``event-loop-lag-avg``/``-max`` (ms). docs/telemetry.md lists ours.
        """
        now = self._clock()
        nodes = {id_: node.group.snapshot(now) for id_, node in self._nodes.items()}
        for node_id, gauges in self._read_nodes().items():
            nodes.setdefault(node_id, {}).update(gauges)
        topics = {name: topic.group.snapshot(now) for name, topic in self._topics.items()}
        for topic_name, gauges in self._read_topics().items():
            topics.setdefault(topic_name, {}).update(gauges)
        partitions = {
            name: {n: totals.snapshot() for n, totals in topic.partitions.items()}
            for name, topic in self._topics.items()
        }
        for topic_name, by_number in self._read_partitions().items():
            told = partitions.setdefault(topic_name, {})
            for number, gauges in by_number.items():
                told.setdefault(number, {}).update(gauges)
        return {
            "producer-metrics": self._group.snapshot(now),
            "producer-node-metrics": {f"node-{id_}": nodes[id_] for id_ in sorted(nodes)},
            "producer-topic-metrics": {name: topics[name] for name in sorted(topics)},
            "producer-partition-metrics": {
                f"{name}-{n}": partitions[name][n]
                for name in sorted(partitions)
                for n in sorted(partitions[name])
            },
            "kafkaclient-metrics": self._own.snapshot(now),
        }


class _Node:
    """Java: ``producer-node-metrics``. Its values count in those of all nodes, too."""

    __slots__ = ("group", "latency", "requests", "responses")

    def __init__(
        self, windows: Windows, requests: Windowed, responses: Windowed, latency: Windowed
    ) -> None:
        group = self.group = Group(windows)
        sizes = group.traffic("request", "outgoing-byte", requests)
        self.requests = group.spread("request-size", sizes)
        self.responses = group.traffic("response", "incoming-byte", responses)
        self.latency = group.duration("request-latency", latency)


class _Topic:
    """Java: ``producer-topic-metrics``. Its values count in those of all topics, too."""

    __slots__ = (
        "bytes",
        "compression",
        "errors",
        "group",
        "partitions",
        "retries",
        "sent",
        "switches",
    )

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
        self.partitions: dict[int, _PartitionTotals] = {}


class _PartitionTotals:
    __slots__ = ("batches", "bytes", "records")

    def __init__(self) -> None:
        self.batches = self.bytes = self.records = 0

    def snapshot(self) -> dict[str, float]:
        return {
            "batch-send-total": self.batches,
            "byte-total": self.bytes,
            "record-send-total": self.records,
        }
