"""Late binding: a batch without a partition goes to a broker that can take it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkaclient.producer.accumulator import RecordAccumulator
    from kafkaclient.producer.batch import ProducerBatch
    from kafkaclient.producer.lanes import Survey
    from kafkaclient.producer.partition import PartitionQueue
    from kafkaclient.producer.topic import TopicBuffer

__all__ = ["Binder", "Requests"]

Requests = dict[int, list["ProducerBatch"]]
"""The batches of the next request in each lane."""


class Binder:
    """Binds the batches of the queues in ``Lines.unbound``, the longest ready first, each to the
    partition that is furthest behind its share of bytes."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._lines = accumulator.lines

    def bind(self, requests: Requests, survey: Survey, max_bytes: int, now: float) -> None:
        """Add batches to the requests of the free lanes, up to ``max_bytes`` in each; they
        are sealed, stamped and count as on the wire.

        A request that has no room for a batch takes no later one: what is older goes first, and
        once all are filled the topics that are left need not be looked at.
        """
        if not self._accumulator.identity.valid:
            return  # nothing can be stamped, in whichever partition
        room = {lane: max_bytes for lane in survey.free if lane not in survey.pressed}
        for lane in room.keys() & requests.keys():
            room[lane] -= sum([batch.size for batch in requests[lane]])
        taken = {batch.queue for batches in requests.values() for batch in batches}

        def is_open(topic: TopicBuffer, partition: int) -> bool:
            queue = topic.queues.get(partition)  # one that is only looked at is not made
            if queue is None:
                return self._lines.gate is None
            return queue not in taken and self._lines.takes_fresh(queue)

        def target_for(topic: TopicBuffer, batch: ProducerBatch) -> PartitionQueue | None:
            allowed, size = _allowed(topic, survey), batch.size
            lanes = [lane for lane in room if lane in allowed]
            for full in [n for n in requests if n in lanes and room[n] < size]:
                lanes.remove(full)
                del room[full]
            if self._lines.gate is not None:
                self._lines.gate.invite(topic, lanes)
            partition = topic.spread.pick(lanes, partial(is_open, topic))
            return None if partition is None else topic.queue(partition)

        def take(batch: ProducerBatch, target: PartitionQueue) -> None:
            self._accumulator.launch(target, batch)
            requests.setdefault(target.lane, []).append(batch)
            room[target.lane] -= batch.size
            taken.add(target)

        self._bind_each(target_for, take, "late", now, lambda: bool(room))

    def rotate(self, now: float) -> None:
        """Queue each batch in its partition whether the leader is free or not: a strict rotation
        by bytes (``adaptive.partitioning.enable=false``)."""

        def target_for(topic: TopicBuffer, _batch: ProducerBatch) -> PartitionQueue | None:
            partition = topic.spread.pick(topic.spread.lanes, lambda _: True)
            return None if partition is None else topic.queue(partition)

        def take(batch: ProducerBatch, target: PartitionQueue) -> None:
            target.topic.spread.add(target.partition, batch.size)
            target.batches.append(batch)
            self._lines.schedule(target, now)

        while self._bind_each(target_for, take, "rotation", now):
            pass

    def _bind_each(
        self,
        target_for: Callable[[TopicBuffer, ProducerBatch], PartitionQueue | None],
        take: Callable[[ProducerBatch, PartitionQueue], None],
        by: str,
        now: float,
        has_room: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Bind one batch of each topic, so that none waits for another; whether any was bound."""
        line, bound = self._lines.unbound, False
        for left in range(len(line), 0, -1):
            if not has_room():
                line.rotate(-left)  # behind those that were looked at, as if they had been, too
                break
            source = line[0]
            head = source.batches[0] if source.batches else None
            if head is not None:
                target = target_for(source.topic, head)
                if target is None:
                    line.rotate(-1)
                    continue
                if source.topic.choice.fills(target, head):
                    source.batches.popleft()
                    self._accumulator.places.set_aside(head, target, now)
                elif self._accumulator.sealed(head, now):
                    source.batches.popleft()
                    self._accumulator.places.bind(head, target, by, now)
                    take(head, target)
                    bound = True
            self._lines.leave(source, now)
        return bound


def _allowed(topic: TopicBuffer, survey: Survey) -> Collection[int]:
    """The lanes that a batch of the topic may go by now, if they are free."""
    # While any broker of the topic is sound, busy or not, the others get nothing.
    sound = not survey.sound.isdisjoint(topic.spread.lanes)
    allowed = survey.sound if sound or survey.unsure else survey.overdue
    filling = topic.choice.filling
    if filling is None:
        return allowed
    return [lane for lane in allowed if lane != filling.lane]
