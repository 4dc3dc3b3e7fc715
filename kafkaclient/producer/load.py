"""The live load of a producer, to look at, plot or decide by."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from math import nan
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkaclient.producer.accumulator import RecordAccumulator
    from kafkaclient.producer.batch import ProducerBatch
    from kafkaclient.producer.lane import Lane
    from kafkaclient.producer.lanes import Lanes
    from kafkaclient.producer.partition import PartitionQueue
    from kafkaclient.producer.settings import SenderSettings
    from kafkaclient.producer.topic import TopicBuffer

__all__ = [
    "BrokerLoad",
    "LoadSnapshot",
    "LoadView",
    "PartitionLoad",
    "largest_backlog",
    "load_snapshot",
    "partition_skew",
]

# How many batches are looked at to tell what the buffer is full of.
_OLDEST = 8


class PartitionLoad(NamedTuple):
    """Queued: not sent, or waiting for a retry. Bound: sent for the first time, whatever became
    of it. Sent: acknowledged. Bytes as on the wire."""

    topic: str
    partition: int
    leader: int
    queued_batches: int
    queued_bytes: int
    in_flight_batches: int
    bytes_sent: int
    records_sent: int
    batches_bound: int
    bytes_bound: int


class BrokerLoad(NamedTuple):
    """``oldest_in_flight_s``: age of the oldest unanswered Produce request, 0.0 when there is
    none. ``bytes_sent`` and ``requests_sent`` count Produce requests since the start.
    ``window``: how many requests it may have in flight, as things are. ``excluded``: why records
    without key did not go there when it was last asked (``overdue``, ``slow``, ``availability``,
    ``throttled``, ``connection``), None when they did; ``exclusions`` counts how often such a
    reason came up.
    ``latency_s``: the median of the latest answers, None before the first."""

    node_id: int
    queued_batches: int
    queued_bytes: int
    in_flight_requests: int
    oldest_in_flight_s: float
    bytes_sent: int
    requests_sent: int
    window: int = 1
    excluded: str | None = None
    exclusions: int = 0
    latency_s: float | None = None


class LoadSnapshot(NamedTuple):
    """Brokers in the order of their ids; partitions that have been used, by topic; each topic's
    :func:`partition_skew`."""

    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]
    skew: Mapping[str, float]
    unbound: Mapping[str, int]
    """By topic, the bytes that wait without a partition (late binding); topics with none are left
    out."""


class LoadView:
    """Read-only and live: each answer is of the moment of the question.

    A question about one partition or broker costs next to nothing, whatever the number of others;
    :meth:`snapshot` goes over all of them. Whoever is unknown has nothing queued or in flight.
    """

    __slots__ = ("_accumulator", "_brokers", "_clock", "_lanes", "_settings")

    def __init__(
        self,
        accumulator: RecordAccumulator,
        lanes: Lanes,
        settings: SenderSettings,
        *,
        brokers: Callable[[], Iterable[int]],
        clock: Callable[[], float],
    ) -> None:
        self._accumulator = accumulator
        self._lanes = lanes
        self._settings = settings
        self._brokers = brokers
        self._clock = clock

    def queued_batches(self, topic: str, partition: int) -> int:
        """Batches that wait to be sent, the open one too."""
        queue = self._queue(topic, partition)
        return len(queue.batches) if queue is not None else 0

    def queued_bytes(self, topic: str, partition: int) -> int:
        """The size of those batches."""
        queue = self._queue(topic, partition)
        return queue.queued_bytes if queue is not None else 0

    def in_flight_batches(self, topic: str, partition: int) -> int:
        """Batches that were sent and are not answered yet."""
        queue = self._queue(topic, partition)
        return queue.on_wire if queue is not None else 0

    def in_flight_requests(self, node_id: int) -> int:
        """Produce requests that a broker has not answered yet."""
        return sum(len(lane.in_flight) for lane in self._lanes if lane.node_id == node_id)

    def oldest_in_flight_s(self, node_id: int) -> float:
        """Age in seconds of the oldest of them, 0.0 when there is none."""
        lanes = [lane for lane in self._lanes if lane.node_id == node_id and lane.in_flight]
        since = min([lane.in_flight[0].sent_at for lane in lanes], default=None)
        return 0.0 if since is None else self._clock() - since

    def recent_latency_s(self, node_id: int) -> float | None:
        """How long a broker took for its latest Produce requests (64 at most), on average in
        seconds; None when it has answered none yet."""
        lane = self._lanes.get(node_id)
        if lane is None or not lane.recent:
            return None
        return sum(lane.recent) / len(lane.recent)

    def window(self, node_id: int) -> int:
        """How many Produce requests a broker is given before an answer is waited for."""
        lane = self._lanes.get(node_id)
        if lane is None or not self._settings.adaptive_window:
            return self._settings.max_in_flight
        return lane.window.value

    def snapshot(self) -> LoadSnapshot:
        """Everything at once."""
        return load_snapshot(self._accumulator, self._lanes, self._brokers(), self._clock())

    def _queue(self, topic: str, partition: int) -> PartitionQueue | None:
        buffer = self._accumulator.topics.get(topic)
        return None if buffer is None else buffer.queues.get(partition)


def load_snapshot(
    accumulator: RecordAccumulator, lanes: Lanes, brokers: Iterable[int], now: float
) -> LoadSnapshot:
    """``brokers``: every broker that is known, so that one that got nothing is told, too."""
    partitions = tuple(
        PartitionLoad(
            queue.tp.topic,
            queue.tp.partition,
            queue.leader,
            len(queue.batches),
            queue.queued_bytes,
            queue.on_wire,
            queue.bytes_sent,
            queue.records_sent,
            queue.batches_bound,
            queue.bytes_bound,
        )
        for topic in accumulator.topics.values()
        for queue in topic.queues.values()
    )
    queued = dict.fromkeys({*(lane.node_id for lane in lanes), *brokers}, (0, 0))
    for load in partitions:
        if load.leader in queued:
            batches, size = queued[load.leader]
            queued[load.leader] = (batches + load.queued_batches, size + load.queued_bytes)
    return LoadSnapshot(
        tuple(
            _broker_load(node_id, batches, size, lanes.get(node_id), now)
            for node_id, (batches, size) in sorted(queued.items())
        ),
        partitions,
        {name: partition_skew(topic) for name, topic in accumulator.topics.items()},
        {
            name: topic.unbound.queued_bytes
            for name, topic in accumulator.topics.items()
            if topic.unbound.batches
        },
    )


def partition_skew(topic: TopicBuffer) -> float:
    """The most bytes bound to a partition, as a multiple of the mean over the partitions that have
    a leader: 1.0 is even, their number is everything on one. NaN when nothing was bound."""
    view = topic.view
    if view is None:
        return nan
    led = view.partitions
    given = [
        queue.bytes_bound
        for partition, queue in topic.queues.items()
        if partition < len(led) and led[partition].leader >= 0
    ]
    total = sum(given)
    return max(given) * len(view.available) / total if total else nan


def _broker_load(
    node_id: int, batches: int, size: int, lane: Lane | None, now: float
) -> BrokerLoad:
    if lane is None:
        return BrokerLoad(node_id, batches, size, 0, 0.0, 0, 0)
    return BrokerLoad(
        node_id,
        batches,
        size,
        len(lane.in_flight),
        now - lane.in_flight[0].sent_at if lane.in_flight else 0.0,
        lane.bytes_sent,
        lane.requests_sent,
        lane.window.value,
        lane.excluded.name.lower() if lane.excluded is not None else None,
        lane.exclusions.total(),
        lane.median_latency,
    )


def largest_backlog(oldest_first: Iterable[ProducerBatch]) -> str:
    """What most bytes wait for, and how many, among the oldest batches.

    A refused record must not cost in proportion to what is queued: those few tell enough.
    """
    backlog: Counter[str] = Counter()
    for batch in islice(oldest_first, _OLDEST):
        backlog[batch.queue.awaits] += batch.size
    if not backlog:
        return "all of it waits for the metadata of its topics"
    awaited, nbytes = backlog.most_common(1)[0]
    return f"of the oldest batches, most wait for {awaited} ({nbytes} bytes)"
