"""Batches are compressed before they are sent: small ones at once, large ones in the background.

Compressing a megabyte takes milliseconds, for which the event loop must not be blocked. So a batch
is compressed in one of two ways:

========  =====================================  ==============================================
a batch   that is                                is compressed
========  =====================================  ==============================================
small     about to be sent                       at once, as long as the pass has time for it
large     due, or full and among the next of     in the background: by the producer's own
          its queue, whether a broker is free    threads (``compression.threads``), several
          or not                                 batches at a time, while the next batch fills
========  =====================================  ==============================================

While a queue's first batch is ``compressing``, no batch of the queue is sent
(``QueueState.SEALING``); the sender's next pass ends that. Work for a batch that has failed
meanwhile runs to completion, and its result is discarded.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kafkaclient.errors import KafkaError, counted
from kafkaclient.log_fields import log_fields
from kafkaclient.wire.compression import CompressionType, quickly_compressed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kafkaclient.producer.accumulator.buffer_pool import BufferPool
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.wakeup import Wakeup

# How many batches of a queue are closed and compressed before a broker takes them. More of them
# would be closed before they are as large as they could get.
_AHEAD = 2
_DEFAULT_MOST_THREADS = 4
# How many times ``small_batch_bytes`` are compressed at once in one pass of the sender.
_QUICK_PER_PASS = 4
_UNLIMITED = 2**31

_log = logging.getLogger(__name__)

Packed: TypeAlias = bytearray | Exception | None
"""The compressed batch with room for its header; None: nothing gained; or why it failed."""


class CompressionExecutor(Protocol):
    """Where batches are compressed in the background, ``at_a_time`` of them at once."""

    at_a_time: int

    def run(self, work: Callable[[], Packed], done: Callable[[Packed], None]) -> None:
        """Call ``work()``, which raises nothing, and then ``done(result)`` in the event loop."""

    def close(self) -> None:
        """Never call ``done`` again."""


class InlineCompression:
    """Compresses at once, in the caller's thread."""

    at_a_time = 1

    def run(self, work: Callable[[], Packed], done: Callable[[Packed], None]) -> None:
        done(work())

    def close(self) -> None:
        pass


class CompressionThreads:
    """The producer's own threads, started with the first batch: the application may fill the event
    loop's default executor. The work is done even if the threads are gone.

    ``threads`` None: one more than half of the cores, at most 4.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int | None = None) -> None:
        cores = os.cpu_count() or 1
        self.at_a_time = threads or min(_DEFAULT_MOST_THREADS, cores // 2 + 1)
        self._loop = loop
        self._jobs: set[asyncio.Future[Packed]] = set()
        self._executor: Executor | None = None
        self._closed = False

    def run(self, work: Callable[[], Packed], done: Callable[[Packed], None]) -> None:
        if self._executor is None:
            self._executor = concurrent.futures.ThreadPoolExecutor(
                self.at_a_time, thread_name_prefix="kafkaclient-compress"
            )
        try:
            job = self._loop.run_in_executor(self._executor, work)
        except RuntimeError:  # the interpreter shuts down, and its threads have ended
            self._loop.call_soon(done, work())
            return
        self._jobs.add(job)
        job.add_done_callback(partial(self._ended, work, done))

    def _ended(
        self,
        work: Callable[[], Packed],
        done: Callable[[Packed], None],
        job: asyncio.Future[Packed],
    ) -> None:
        self._jobs.discard(job)
        if not self._closed:
            done(work() if job.cancelled() else job.result())

    def close(self) -> None:
        # A thread completes the batch that it compresses; the result is discarded.
        self._closed = True
        for job in self._jobs:
            job.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


class BatchCompressor:
    """Compresses batches with one codec, and keeps their buffer memory charged as it is used.

    ``wakeup`` is told when :meth:`finished` has a batch to return.
    """

    def __init__(
        self,
        codec: CompressionType,
        level: int | None,
        buffer_pool: BufferPool,
        *,
        background: CompressionExecutor,
        wakeup: Wakeup,
    ) -> None:
        self._codec = codec
        self.enabled = codec is not CompressionType.NONE
        self.small_batch_bytes = quickly_compressed(codec, level) if self.enabled else _UNLIMITED
        """The most bytes before compression of a batch that is compressed at once."""
        self._buffer_pool = buffer_pool
        self._background = background
        self._wakeup = wakeup
        self._allowance = _QUICK_PER_PASS * self.small_batch_bytes
        """Bytes that may still be compressed at once in this pass."""
        self._waiting: deque[tuple[ProducerBatch, Callable[[], Packed]]] = deque()
        self._at_work = 0
        self._finished: list[tuple[ProducerBatch, Packed]] = []

    def __repr__(self) -> str:
        return (
            f"<BatchCompressor waiting={len(self._waiting)} at_work={self._at_work} "
            f"finished={len(self._finished)}>"
        )

    def compress_now(self, batch: ProducerBatch) -> KafkaError | None:
        """Seal a batch that is about to be sent, if that is quick. Else compression begins in the
        background. Returns the error that the batch fails with, if compressing it fails."""
        if batch.sealed or batch.compressing:
            return None
        raw_size = batch.raw_size
        if raw_size > self.small_batch_bytes or raw_size > self._allowance:
            self._begin(batch)  # the event loop has other work, too
            return None
        self._allowance -= raw_size
        try:
            batch.seal()
        except Exception as defect:  # noqa: BLE001 - a codec that fails costs one batch
            return self._failure(batch, defect)
        batch.queue.on_sealed(raw_size)
        self._buffer_pool.give_back(batch.set_charge(batch.sealed_size))
        return None

    def start_if_large(self, batch: ProducerBatch) -> bool:
        """Begin to compress a batch that is due, if it is large. Returns whether the batch is being
        compressed in the background."""
        if not batch.sealed and not batch.compressing and batch.raw_size > self.small_batch_bytes:
            self._begin(batch)
        return batch.compressing

    def compress_ahead(self, queue: PartitionQueue) -> None:
        """Compress the queue's next large batches before a broker can take them. A batch that is
        closed already may occupy any free thread."""
        for index, batch in enumerate(
            islice(queue.batches, max(_AHEAD, self._background.at_a_time))
        ):
            if batch.full and (index < _AHEAD or batch.closed):
                self.start_if_large(batch)

    def finished(self) -> list[tuple[ProducerBatch, KafkaError | None]]:
        """The batches whose compression in the background has ended since the last pass, each with
        the error that it fails with, or sealed."""
        self._allowance = _QUICK_PER_PASS * self.small_batch_bytes
        if not self._finished:
            return []
        ended, self._finished = self._finished, []
        return [
            (batch, self._end(batch, packed)) for batch, packed in ended if not batch.result.done
        ]

    def close(self) -> None:
        """Discard the batches that are still being compressed."""
        self._waiting.clear()
        self._background.close()

    def _begin(self, batch: ProducerBatch) -> None:
        work = partial(_attempt, batch.begin_compression())
        # Meanwhile the buffer holds the records and their compressed form.
        needed = max(batch.charged, batch.raw_size + batch.size)
        self._buffer_pool.force(-batch.set_charge(needed))
        self._waiting.append((batch, work))
        self._feed()

    def _feed(self) -> None:
        while self._waiting and self._at_work < self._background.at_a_time:
            batch, work = self._waiting.popleft()
            if not batch.result.done:
                self._at_work += 1
                self._background.run(work, partial(self._done, batch))

    def _done(self, batch: ProducerBatch, packed: Packed) -> None:
        self._at_work -= 1
        self._feed()
        if not batch.result.done:
            self._finished.append((batch, packed))
            self._wakeup.wake_at()

    def _end(self, batch: ProducerBatch, packed: Packed) -> KafkaError | None:
        if isinstance(packed, Exception):
            return self._failure(batch, packed)
        raw_size = batch.raw_size
        batch.end_compression(packed)
        batch.queue.on_sealed(raw_size)
        self._buffer_pool.give_back(batch.set_charge(batch.sealed_size))
        return None

    def _failure(self, batch: ProducerBatch, defect: Exception) -> KafkaError:
        tp = batch.queue.tp
        _log.error(
            "%r could not be compressed",
            batch,
            exc_info=defect,
            extra=log_fields(topic=tp.topic, partition=tp.partition, maybe_written=False),
        )
        error = KafkaError(
            f"{counted(batch.count, 'record')} to {batch.queue.tp} not sent: compressing with "
            f"{self._codec.name.lower()} failed: {defect!r}"
        )
        error.__cause__ = defect
        return error


def _attempt(work: Callable[[], bytearray | None]) -> Packed:
    try:
        return work()
    except Exception as defect:  # noqa: BLE001 - a codec that fails costs one batch
        return defect
