"""How long a batch waits for more records before it may be sent (``linger.ms``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.producer.accumulator.buffer_pool import BufferPool
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.settings import AccumulatorSettings


class Linger:
    """Decides how long a batch waits for more records (``linger.ms``).

    No batch waits during a flush, while callers wait for buffer memory, or after :meth:`close`.
    ``flushes``: the pending flushes.
    """

    __slots__ = ("_buffer_pool", "_flushes", "_never_lingers", "_seconds")

    def __init__(
        self, settings: AccumulatorSettings, buffer_pool: BufferPool, flushes: Collection[object]
    ) -> None:
        self._seconds = settings.linger
        # batch.size 0 means "do not batch": no batch lingers (KAFKA-14303).
        self._never_lingers = settings.batch_size == 0
        self._buffer_pool = buffer_pool
        self._flushes = flushes

    def until(self, queue: PartitionQueue, now: float, rebindable: bool) -> float:
        """Until when a batch lingers that is opened now. A batch that was opened in a partition and
        may yet go to another (``rebindable``) may linger for longer."""
        seconds = self._seconds
        if rebindable and not queue.unbound:
            seconds = max(seconds, queue.topic.strategy.extra_linger(queue))
        return now + seconds

    def lingers(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Whether ``head``, the queue's first batch, waits for more records while its linger time
        lasts. A retry, a full batch, and a batch with another one behind it do not."""
        return not (
            self._never_lingers
            or self._flushes
            or self._buffer_pool.waiters
            or head.attempts
            or len(queue.batches) > 1
            or head.full
        )

    def close(self) -> None:
        """From now on no batch lingers: the producer takes no more records."""
        self._never_lingers = True
