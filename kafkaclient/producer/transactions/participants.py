"""What belongs to the open transaction: its records, its partitions, its consumer group offsets.

Transactions v1 (KIP-98): AddPartitionsToTxn must be answered before the first batch goes to a
partition. Transactions v2 (KIP-890): the first Produce adds the partition, so AddedPartitions is
not used.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError, defect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.admission.held_records import HeldRecords
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.transactions.requests import TransactionRequests
    from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)


class TransactionRecords:
    """All records of the producer: outside of a transaction a transactional producer has none.

    ``drain()`` sends all of them without lingering and waits for their outcome.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        held_records: HeldRecords,
        drain: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self.ready_queues = accumulator.ready_queues
        self.drain = drain
        self._incomplete = accumulator.incomplete
        self._held_records = held_records
        self._clock = clock

    async def wait_landed(self) -> None:
        """Wait until no batch is in flight any more, not even one that has expired."""
        await self.drain()
        while self._incomplete.has_failed_in_flight:
            await self._incomplete.wait_landed()

    def fail(self, error: KafkaError, *, in_flight: bool) -> None:
        """Fail the records; those in flight only if ``in_flight``: their answers are ignored."""
        self._held_records.fail_all(error)
        now = self._clock()
        for batch in list(self._incomplete):
            if in_flight or not batch.in_flight:
                self._incomplete.fail_without_answer(batch, error, now)


class AddedPartitions:
    """The partitions that AddPartitionsToTxn has added (transactions v1); implements
    ``TransactionGate`` (ready_queues.py).

    ``add(partitions, over)`` sends the request, and raises if it fails; it begins no attempt once
    the event ``over`` is set. ``on_added()`` is called when partitions were added,
    ``on_failed(error)`` when they cannot be added.
    """

    def __init__(
        self,
        ready_queues: ReadyQueues,
        add: Callable[[tuple[TopicPartition, ...], asyncio.Event], Awaitable[None]],
        *,
        clock: Callable[[], float],
        on_added: Callable[[], None],
        on_failed: Callable[[KafkaError], None],
    ) -> None:
        self._ready_queues = ready_queues
        self._add = add
        self._clock = clock
        self._on_added = on_added
        self._on_failed = on_failed
        self._over = asyncio.Event()
        """Set when no more partitions can be added. Each transaction has its own event."""
        self._over.set()
        self._added: set[PartitionQueue] = set()
        self._requested: dict[PartitionQueue, None] = {}
        """Partitions to be added. Those of the request under way come first."""
        self._of_topic: dict[TopicBuffer, list[PartitionQueue]] = {}
        """All partitions added or requested, by topic."""
        self.task: asyncio.Task[None] | None = None
        """The latest task that adds partitions."""

    def begin(self) -> None:
        """A transaction begins, without any partition."""
        self._added.clear()
        self._requested.clear()
        self._of_topic.clear()
        self._over = asyncio.Event()

    def end(self) -> None:
        """From now on no partition can be added to the transaction."""
        self._over.set()

    async def finish(self) -> None:
        """:meth:`end`, and wait until the coordinator has answered the request under way.

        Call it before the transaction is ended, when all records have their outcome. A request that
        the coordinator handles after the end of the transaction begins a new one there, which no
        producer knows of. A request that failed is not made again: no batch needs it.
        """
        self.end()
        if self.task is not None and not self.task.done():
            await asyncio.wait({self.task})

    def allows(self, queue: PartitionQueue) -> bool:
        """Whether batches may go to the partition."""
        return queue in self._added

    def request(self, queue: PartitionQueue) -> None:
        """Have the partition added: a batch waits for it."""
        if self._over.is_set() or queue in self._added or queue in self._requested:
            return
        self._requested[queue] = None
        self._of_topic.setdefault(queue.topic, []).append(queue)
        if self.task is None or self.task.done():
            # The task starts in a later loop pass: partitions requested till then share a request.
            self.task = asyncio.get_running_loop().create_task(
                self._run(), name="kafkaclient-add-partitions"
            )

    def request_one_of(self, topic: TopicBuffer, lanes: Iterable[int]) -> None:
        """Have one partition added for each of the lanes: an unbound batch of the topic waits.

        Only one, because each partition costs a marker when the transaction ends.
        """
        present = {queue.target_lane for queue in self._of_topic.get(topic, ())}
        for lane in lanes:
            if lane not in present:
                partition = topic.fair_share.pick([lane], lambda _: True)
                if partition is not None:
                    self.request(topic.queue(partition))

    async def _run(self) -> None:
        over = self._over
        while self._requested and not over.is_set():
            queues = tuple(self._requested)
            try:
                await self._add(tuple(queue.tp for queue in queues), over)
            except KafkaError as error:
                if not over.is_set():  # else no batch needs the partitions
                    self._on_failed(error)
                return
            except Exception as error:  # noqa: BLE001 - no batch may wait forever
                _log.exception("adding partitions to a transaction failed")
                self._on_failed(defect("adding partitions to a transaction", error))
                return
            if over.is_set():
                return
            self._added.update(queues)
            now = self._clock()
            for queue in queues:
                del self._requested[queue]
                self._ready_queues.schedule(queue, now)
            self._on_added()


class TransactionOffsets:
    """Consumer group offsets that are sent within the transaction (KIP-98, KIP-447).

    Each send is a task of its own, which goes on when its caller is cancelled or times out.
    ``on_failed(error)`` is called when a coordinator refused the offsets, or a request failed.
    ``on_epoch_refused(error)`` is called when the group's coordinator refused the producer epoch.
    """

    def __init__(
        self,
        requests: TransactionRequests,
        on_failed: Callable[[KafkaError], None],
        on_epoch_refused: Callable[[KafkaError], None],
    ) -> None:
        self.under_way: set[asyncio.Task[bool]] = set()
        self._requests = requests
        self._on_failed = on_failed
        self._on_epoch_refused = on_epoch_refused

    def send(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> asyncio.Task[bool]:
        """Begin to send; the task returns whether the offsets were accepted."""
        task = asyncio.get_running_loop().create_task(
            self._send(offsets, group), name="kafkaclient-send-offsets"
        )
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task

    async def _send(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> bool:
        try:
            if not self._requests.v2:
                await self._requests.add_offsets(group)
            fenced = await self._requests.send_offsets(offsets, group)
        except KafkaError as error:
            self._on_failed(error)
            return False
        except Exception as error:  # noqa: BLE001 - no commit may go on without the offsets
            _log.exception("sending offsets to a transaction failed")
            self._on_failed(defect(f"sending offsets of group {group.group_id!r}", error))
            return False
        if fenced is not None:
            self._on_epoch_refused(fenced)
        return fenced is None
