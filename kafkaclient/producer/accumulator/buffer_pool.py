"""The memory of batches, and how they are made.

Java: ``BufferPool``. Unlike Java's, it pools no memory: a batch is charged by the capacity of its
buffer and gives the charge back with its outcome.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.batch import ProducerBatch
from kafkaclient.producer.batches.partition_queue import BufferShares

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.delivery_errors import Make
    from kafkaclient.producer.batches.partition_queue import BufferShare, PartitionQueue
    from kafkaclient.producer.settings import AccumulatorSettings


# --- The bytes of ``buffer.memory`` that are free -------------------------------------------------


_MOST_OF_FREE = 8  # the bytes of a share, as a multiple of the bytes that are free


class BufferPool:
    """Counts bytes. The sum of all charges exceeds ``total`` only by :meth:`force`.

    No broker's records may take the memory that the others need: a share may have eight times the
    bytes that are free (dynamic thresholds, Choudhury and Hahne 1998). So one broker that takes no
    records fills 8/9 of the memory, two fill 8/17 each, and a ninth or a 17th is left for the
    others, which need little: their records leave at once. A share without bytes may always have a
    record, and with a single broker there is nothing to share.
    """

    __slots__ = ("_spendable", "available", "on_free", "shares", "short", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self._spendable = 0
        self.shares = BufferShares()
        self.short = False
        """Whether a send waits for bytes that its share may have, but that are not free: nothing
        else takes free bytes before it."""
        self.on_free: Callable[[], None] | None = None
        """Called when bytes come free that others wait for. None: nothing waits for bytes."""

    def __repr__(self) -> str:
        waited = ", waited for" if self.on_free is not None else ""
        return f"<BufferPool used={self.total - self.available} total={self.total}{waited}>"

    def may_hold(self, share: BufferShare, nbytes: int) -> bool:
        """Whether the share may have ``nbytes`` more."""
        if not share.held or not self.shares.several:
            return True
        return share.held + nbytes <= _MOST_OF_FREE * (self.available - nbytes)

    def room(self, share: BufferShare) -> int:
        """The most bytes that :meth:`try_take` would charge now."""
        if self.short or share.claims:
            return min(self._spendable, self.available)
        if not share.held or not self.shares.several:
            return self.available
        return max(0, (_MOST_OF_FREE * self.available - share.held) // (_MOST_OF_FREE + 1))

    def crowding_broker(self) -> int | None:
        """The broker whose batches hold more than half of the memory, and more than their share:
        records that another broker can take are better off there. None: there is no such."""
        if _MOST_OF_FREE * self.available >= self.total - self.available:
            return None
        fullest = self.shares.fullest
        crowds = fullest.broker >= 0 and 2 * fullest.held > self.total
        return fullest.broker if crowds and not self.may_hold(fullest, 0) else None

    def try_take(self, nbytes: int, share: BufferShare | None = None) -> bool:
        """Charge ``nbytes`` and return True if they are free, and if the share may have them. While
        senders wait for memory, only the code inside :meth:`spend` gets any."""
        if nbytes > self.available and nbytes > 0:
            return False
        if nbytes > self._spendable and (self.short or not self._admits(share, nbytes)):
            return False
        self.available -= nbytes
        if self._spendable:
            self._spendable = max(0, self._spendable - nbytes)
        return True

    def _admits(self, share: BufferShare | None, nbytes: int) -> bool:
        return share is None or (not share.claims and self.may_hold(share, nbytes))

    def force(self, nbytes: int) -> None:
        """Charge ``nbytes`` even if they are not free: for records that are in memory already, and
        for those whose turn it is."""
        self.available -= nbytes

    def spend(self, nbytes: int) -> Spending:
        """Hand a charge of ``nbytes`` over to code that calls :meth:`try_take` or :meth:`force`::

            with buffer_pool.spend(nbytes):
                ...try_take(...)

        The charge is free inside the block, for this code only: do not await, and do not call
        :meth:`give_back` inside. Bytes left over are free for those that wait.
        """
        return Spending(self, nbytes)

    def give_back(self, nbytes: int) -> None:
        """Return a charge."""
        self.available += nbytes
        if self.on_free is not None:
            self.on_free()


class Spending:
    """See :meth:`BufferPool.spend`."""

    __slots__ = ("_buffer_pool", "_nbytes")

    def __init__(self, buffer_pool: BufferPool, nbytes: int) -> None:
        self._buffer_pool = buffer_pool
        self._nbytes = nbytes

    def __enter__(self) -> None:
        self._buffer_pool.available += self._nbytes
        self._buffer_pool._spendable = self._nbytes

    def __exit__(self, *exc: object) -> None:
        self._buffer_pool._spendable = 0
        self._buffer_pool.give_back(0)


# --- New batches, with the settings that all batches of a producer share --------------------------

_INITIAL_CAPACITY = 1024  # bytes: there may be thousands of quiet topics


class BatchFactory:
    """``small_batch_bytes``: the most bytes of a batch that is compressed at once."""

    __slots__ = (
        "_batch_size",
        "_compression",
        "_elastic_limit",
        "_serials",
        "_small_batch_bytes",
        "_transactional",
    )

    def __init__(
        self, settings: AccumulatorSettings, *, small_batch_bytes: int, transactional: bool
    ) -> None:
        self._batch_size = settings.batch_size
        self._compression = (settings.codec, settings.level)
        self._small_batch_bytes = small_batch_bytes
        self._transactional = transactional
        elastic = settings.late and settings.adaptive and settings.batch_size
        self._elastic_limit = settings.elastic_limit if elastic else 0
        self._serials = count(1)

    def capacity_for(self, queue: PartitionQueue, upper_bound: int, room: int, now: float) -> int:
        """The first buffer size of a batch whose first record needs ``upper_bound`` bytes, with
        ``room`` bytes of free buffer memory: small, unless the queue's last batch was larger."""
        limit = max(self._batch_size, upper_bound)
        capacity, usual = min(limit, _INITIAL_CAPACITY), queue.typical_batch_size
        if usual > capacity:
            # A batch is looked at when it gets large, in case it is compressed ahead.
            elastic_limit = min(self._elastic_limit, queue.topic.batch_limit.at(now))
            most = min(max(limit, elastic_limit), self._small_batch_bytes)
            capacity = max(capacity, min(usual, most))
        return max(upper_bound, min(capacity, room))

    def new(
        self,
        queue: PartitionQueue,
        batch_result: BatchResult,
        limit: int,
        capacity: int,
        created: float,
        rebindable: bool = False,
        serial: int | None = None,
    ) -> ProducerBatch:
        """An open batch that is full at ``limit`` bytes, with a buffer of ``capacity`` bytes."""
        return ProducerBatch(
            batch_result,
            queue,
            serial=next(self._serials) if serial is None else serial,
            created=created,
            limit=limit,
            capacity=capacity,
            elastic_limit=min(self._elastic_limit, queue.topic.batch_limit.at(created)),
            compression=self._compression,
            rebindable=rebindable,
            transactional=self._transactional,
        )

    def in_place_of(self, batch: ProducerBatch) -> Make:
        """Makes open batches with the queue, the age and the serial number of ``batch``."""

        def make(capacity: int, batch_result: BatchResult) -> ProducerBatch:
            return self.new(
                batch.queue,
                batch_result,
                limit=capacity,
                capacity=capacity,
                created=batch.created,
                serial=batch.serial,
            )

        return make
