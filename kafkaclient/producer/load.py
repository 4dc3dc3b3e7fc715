"""The live load of a producer, as a snapshot to look at, plot or decide by."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.producer.accumulator import RecordAccumulator
    from kafkaclient.producer.batch import ProducerBatch
    from kafkaclient.producer.lane import Lane
    from kafkaclient.producer.lanes import Lanes

__all__ = ["BrokerLoad", "LoadSnapshot", "PartitionLoad", "largest_backlog", "load_snapshot"]

# How many batches are looked at to tell what the buffer is full of.
_OLDEST = 100


class PartitionLoad(NamedTuple):
    """Queued: not sent, or waiting for a retry. Sent: acknowledged. Bytes as on the wire."""

    topic: str
    partition: int
    leader: int
    queued_batches: int
    queued_bytes: int
    in_flight_batches: int
    bytes_sent: int
    records_sent: int


class BrokerLoad(NamedTuple):
    """``oldest_in_flight_s``: age of the oldest unanswered Produce request, 0.0 when there is
    none. ``bytes_sent`` and ``requests_sent`` count Produce requests since the start."""

    node_id: int
    queued_batches: int
    queued_bytes: int
    in_flight_requests: int
    oldest_in_flight_s: float
    bytes_sent: int
    requests_sent: int


class LoadSnapshot(NamedTuple):
    """Brokers in the order of their ids; partitions that have been used, by topic."""

    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]


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
    )


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
