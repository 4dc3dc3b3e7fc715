"""Batches are compressed before they take a broker's slot: small ones at once, large ones aside.

Compressing a megabyte takes milliseconds, which the event loop has not to spare. So a batch is
compressed in one of two ways:

========  =====================================  ==============================================
a batch   that is                                is compressed
========  =====================================  ==============================================
small     about to leave                         at once, as long as the pass has time for it
large     due, or full and among the next of     aside: by threads of the producer's own, a few
          its queue, whether a broker is free    batches at a time, while the next one fills
          or not
========  =====================================  ==============================================

Until a batch that is compressed aside is taken up again, by the sender's next pass, it is
``sealing``: neither it nor what is behind it in its queue leaves (``QueueState.SEALING``). What was
given up meanwhile is left to its end and forgotten.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kafkaclient.wire.compression import Codec, quickly_compressed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kafkaclient.producer.accumulator.buffer_pool import BufferPool
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue

__all__ = [
    "BatchCompressor",
    "CompressionExecutor",
    "CompressionThreads",
    "InlineCompression",
    "Packed",
]

# How many batches of a queue are compressed before a broker takes them: the one that leaves next,
# and one to follow it. Any more would be cut off before they are as large as they could get.
_AHEAD = 2
# How many are compressed at the same time: on half of the cores, as the application
# needs some as well, and one that waits for the interpreter's lock meanwhile, at its end.
_MOST_AT_A_TIME = 4
# How many times the size that is compressed quickly may be compressed at once in one pass.
_QUICK_PER_PASS = 4
_UNLIMITED = 2**31

Packed: TypeAlias = bytearray | Exception | None
"""What came of compressing: the batch with room for its header, nothing gained, or a defect."""


class CompressionExecutor(Protocol):
    """Where work is done aside; ``at_a_time``: how many things."""

    at_a_time: int

    def run(self, work: Callable[[], Packed], done: Callable[[Packed], None]) -> None:
        """Call ``work()``, which raises nothing, and ``done`` with its result in the event loop."""

    def close(self) -> None:
        """Call ``done`` no more."""


class InlineCompression:
    """Not aside at all."""

    at_a_time = 1

    def run(self, work: Callable[[], Packed], done: Callable[[Packed], None]) -> None:
        done(work())

    def close(self) -> None:
        pass


class CompressionThreads:
    """Threads of the producer's own, from the first work on: the application may fill the event
    loop's default executor for as long as it likes. Whatever becomes of them, the work is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.at_a_time = max(1, min(_MOST_AT_A_TIME, (os.cpu_count() or 1) // 2 + 1))
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
        except RuntimeError:  # the program ends, and its threads have ended already
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
        # A thread that is at work ends it, and finds nobody who wants to know.
        self._closed = True
        for job in self._jobs:
            job.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


class BatchCompressor:
    """Compresses batches with one codec, and keeps their charge true.

    ``wake(when)`` is called when :meth:`finished` has something to tell.
    """

    def __init__(
        self,
        codec: Codec,
        level: int | None,
        buffer_pool: BufferPool,
        *,
        background: CompressionExecutor,
        wake: Callable[[float], None],
    ) -> None:
        self.enabled = codec is not Codec.NONE
        self.small_batch_bytes = quickly_compressed(codec, level) if self.enabled else _UNLIMITED
        """The most bytes before compression of a batch that is compressed at once."""
        self._buffer_pool = buffer_pool
        self._background = background
        self._wake = wake
        self._allowance = _QUICK_PER_PASS * self.small_batch_bytes
        """How many bytes may yet be compressed at once in this pass."""
        self._waiting: deque[tuple[ProducerBatch, Callable[[], Packed]]] = deque()
        self._at_work = 0
        self._finished: list[tuple[ProducerBatch, Packed]] = []

    def __repr__(self) -> str:
        return (
            f"<BatchCompressor waiting={len(self._waiting)} at_work={self._at_work} "
            f"finished={len(self._finished)}>"
        )

    def compress_now(self, batch: ProducerBatch) -> Exception | None:
        """Compress a batch that is about to leave, if that is quick; it is ``sealed`` then.

        Returns what has gone wrong.
        """
        if batch.sealed or batch.compressing:
            return None
        raw_size = batch.raw_size
        if raw_size > self.small_batch_bytes or raw_size > self._allowance:
            self._begin(batch)  # the event loop has other things to do, too
            return None
        self._allowance -= raw_size
        try:
            batch.seal()
        except Exception as defect:  # noqa: BLE001 - the caller's to tell of
            return defect
        self._settle(batch)
        return None

    def start_if_large(self, batch: ProducerBatch) -> bool:
        """Whether the batch, which is due, is compressed aside first; if so it is seen to."""
        if not batch.sealed and not batch.compressing and batch.raw_size > self.small_batch_bytes:
            self._begin(batch)
        return batch.compressing

    def compress_ahead(self, queue: PartitionQueue) -> None:
        """Have what leaves the queue next compressed before there is a broker that takes it."""
        for batch in islice(queue.batches, _AHEAD):
            if batch.full:
                self.start_if_large(batch)

    def finished(self) -> list[tuple[ProducerBatch, Exception | None]]:
        """What was compressed aside since the last pass, and what has gone wrong with it."""
        self._allowance = _QUICK_PER_PASS * self.small_batch_bytes
        if not self._finished:
            return []
        ended, self._finished = self._finished, []
        return [
            (batch, self._take_up(batch, packed))
            for batch, packed in ended
            if not batch.result.done
        ]

    def close(self) -> None:
        """Tell nobody of what is still being compressed."""
        self._waiting.clear()
        self._background.close()

    def _begin(self, batch: ProducerBatch) -> None:
        work = partial(_attempt, batch.begin_compression())
        # Until it is taken up there are the records as they are, and what is made of them.
        more = max(0, batch.raw_size + batch.size - batch.charged)
        self._buffer_pool.force(more)
        batch.charged += more
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
            self._wake(0.0)

    def _take_up(self, batch: ProducerBatch, packed: Packed) -> Exception | None:
        if isinstance(packed, Exception):
            return packed
        batch.end_compression(packed)
        self._settle(batch)
        return None

    def _settle(self, batch: ProducerBatch) -> None:
        size = batch.size
        batch.queue.typical_batch_size = batch.raw_size
        self._buffer_pool.give_back(batch.charged - size)
        batch.charged = size


def _attempt(work: Callable[[], bytearray | None]) -> Packed:
    try:
        return work()
    except Exception as defect:  # noqa: BLE001 - it costs this batch, not the thread's owner
        return defect
