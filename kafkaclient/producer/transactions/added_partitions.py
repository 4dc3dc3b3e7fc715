"""Which partitions are part of the transaction, while that has to be said beforehand.

Transactions v1 (KIP-98): AddPartitionsToTxn must be answered before the first batch goes to a
partition. With v2 (KIP-890) Produce says it itself, and nothing of this is in the way.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.types import TopicPartition

__all__ = ["AddedPartitions"]


_log = logging.getLogger(__name__)


class AddedPartitions:
    """The ``TransactionGate`` (ready_queues.py) of a producer with transactions v1.

    ``add(partitions, over)`` has them added, or raises; it begins no attempt once the event
    ``over`` is set. ``on_added()`` is called when batches may leave that could not,
    ``on_failed(error)`` when adding has failed for good.
    """

    def __init__(
        self,
        lines: ReadyQueues,
        add: Callable[[tuple[TopicPartition, ...], asyncio.Event], Awaitable[None]],
        *,
        clock: Callable[[], float],
        on_added: Callable[[], None],
        on_failed: Callable[[KafkaError], None],
    ) -> None:
        self._lines = lines
        self._add = add
        self._clock = clock
        self._on_added = on_added
        self._on_failed = on_failed
        self._over = asyncio.Event()
        """Set while no partition can become part of a transaction. Each transaction has its own."""
        self._over.set()
        self._added: set[PartitionQueue] = set()
        self._asked: dict[PartitionQueue, None] = {}
        """To be added, or being added: those come first, and leave when they have been."""
        self._of_topic: dict[TopicBuffer, list[PartitionQueue]] = {}
        """All of these, by topic."""
        self._task: asyncio.Task[None] | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What adds partitions at this moment."""
        return self._task

    def begin(self) -> None:
        """A transaction begins, without any partition."""
        self._added.clear()
        self._asked.clear()
        self._of_topic.clear()
        self._over = asyncio.Event()

    def end(self) -> None:
        """No partition can become part of the transaction any more."""
        self._over.set()

    async def finish(self) -> None:
        """:meth:`end`, and wait until the coordinator has answered the request that is under way.

        To be called before the transaction is ended, when all records have their outcome. What
        the coordinator handles after the end of the transaction begins another one there, which
        no producer knows of. A request that is to be made again is not: no batch needs it.
        """
        self.end()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    # --- the gate -----------------------------------------------------------------------------

    def allows(self, queue: PartitionQueue) -> bool:
        """Whether batches may go to the partition."""
        return queue in self._added

    def request(self, queue: PartitionQueue) -> None:
        """A batch waits for the partition to become part of the transaction."""
        if self._over.is_set() or queue in self._added or queue in self._asked:
            return
        self._asked[queue] = None
        self._of_topic.setdefault(queue.topic, []).append(queue)
        if self._task is None or self._task.done():
            # It begins after what is going on now: whoever comes till then is in the same request.
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name="kafkaclient-add-partitions"
            )

    def request_one_of(self, topic: TopicBuffer, lanes: Iterable[int]) -> None:
        """A batch waits for any partition of the topic: have one for each of the lanes.

        Not all of theirs, because every partition costs a marker when the transaction ends.
        """
        there = {queue.target_lane for queue in self._of_topic.get(topic, ())}
        for lane in lanes:
            if lane not in there:
                partition = topic.fair_share.pick([lane], lambda _: True)
                if partition is not None:
                    self.request(topic.queue(partition))

    async def _run(self) -> None:
        over = self._over
        while self._asked and not over.is_set():
            queues = tuple(self._asked)
            try:
                await self._add(tuple(queue.tp for queue in queues), over)
            except KafkaError as error:
                if not over.is_set():  # else no batch needs the partitions, and the end tells
                    self._on_failed(error)
                return
            except Exception as defect:  # noqa: BLE001 - nobody may be left waiting
                _log.exception("adding partitions to a transaction failed")
                self._on_failed(KafkaError(f"adding partitions failed: {defect!r}; a defect"))
                return
            if over.is_set():
                return
            self._added.update(queues)
            now = self._clock()
            for queue in queues:
                del self._asked[queue]
                self._lines.schedule(queue, now)
            self._on_added()
