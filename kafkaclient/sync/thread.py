"""A producer in an event loop on its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import Future, InvalidStateError
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.errors import KafkaError, ProducerClosedError, defect
from kafkaclient.event_loop import loop_factory
from kafkaclient.sync.feeder import Feeder
from kafkaclient.sync.futures import Home
from kafkaclient.sync.handover import Handover

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.feeder import Entry

T = TypeVar("T")

_log = logging.getLogger(__name__)

_HANDOVER_BYTES = 1 << 20
"""The room of the handover: what a thread can send while the producer's thread is busy. An entry
counts as its record and what it takes in memory besides."""

_LONGEST_PAUSE_S = 10.0  # the thread goes on then, also if the fork has not told it to

_CLOSED = "the record was not sent: the SyncProducer is closed"


class ProducerThread:
    """Starts a producer, feeds it, and stops it. The thread is a daemon: see ``at_exit.py``.

    ``started`` is done when the producer runs, or has the error of its start: then the thread has
    ended. ``ended`` has the number of records that were left without an outcome.
    """

    def __init__(self, new_producer: Callable[[], Producer], name: str) -> None:
        self.home = Home()
        self.handover: Handover[Entry] = Handover(_HANDOVER_BYTES, self._wake_feeder)
        self.started: Future[None] = Future()
        self.ended: Future[int] = Future()
        self.start_error: BaseException | None = None
        self.producer = new_producer()
        self._feeder: Feeder | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._stop_by: float | None = None
        self._calls: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        """The calls of :meth:`run` that are not done."""
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter ends
            self._loop.close()
            raise

    # --- called in other threads ----------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        """How many records have no outcome; a ``send_many`` that waits for its turn counts once."""
        left = self.handover.entries
        if self._feeder is not None:
            left = [*self._feeder.left, *left]
        waiting = sum(work is not None for _, work, *_ in left)
        return waiting + (0 if self._feeder is None else self._feeder.unsettled)

    def call(self, function: Callable[[Producer], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine with the producer in the thread, beside the records that wait there."""
        return self.run(function(self.producer))

    def flush(self) -> Future[None]:
        """Send all records that were handed over before; the future is done when each has its
        outcome."""
        appended: Future[None] = Future()
        try:
            self.handover.put((appended, None, copy_context(), False, 0.0, 0), 0, 0.0)
        except Exception as error:  # noqa: BLE001 - the queue is closed
            appended.set_exception(error)
        return self.run(self._flush(appended))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread, beside the records that wait there. The result fails with
        ProducerClosedError, or is cancelled, if the thread ends before the coroutine."""
        try:
            call = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            call = Future()
        self._calls[call] = coroutine
        call.add_done_callback(lambda _: self._calls.pop(call, None))
        if self._loop.is_closed():
            self._end_calls()
        return call

    def close(self, timeout: float | None) -> Future[int]:
        """Take no more records, send those that were taken, and end within ``timeout`` seconds
        (None: when each record has its outcome). A second call can only shorten the time."""
        self.handover.close(ProducerClosedError(_CLOSED))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._close_within, timeout)
        return self.ended

    def pause(self, resumes: list[threading.Event], timeout_s: float) -> None:
        """Pause the thread between two callbacks of its event loop, where it holds no lock, neither
        of an import nor of a logger. Adds the event that ends the pause to ``resumes``. Waits up to
        ``timeout_s`` until the thread has paused."""
        paused, resume = threading.Event(), threading.Event()
        resumes.append(resume)  # before the wait, which Ctrl-C may end

        def rest() -> None:
            paused.set()
            resume.wait(_LONGEST_PAUSE_S)

        if threading.current_thread() is not self._thread:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(rest)
                paused.wait(timeout_s)

    def wait_closed(self) -> int:
        """Wait until the thread has ended, after :meth:`close`; returns how many records were left
        without an outcome."""
        undelivered = self.ended.result()
        self._thread.join()
        return undelivered

    def _wake_feeder(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has taken the entry, and is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _end_calls(self) -> None:
        """Fail the calls that are left when the loop is closed."""
        for call, coroutine in list(self._calls.items()):
            coroutine.close()
            with contextlib.suppress(InvalidStateError):  # its caller has cancelled it
                call.set_exception(ProducerClosedError("the SyncProducer is closed"))

    # --- in the thread --------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                undelivered = self._run_main(runner.get_loop())
        except BaseException as error:  # noqa: BLE001 - close() must not wait for ever
            self.handover.close(defect("the SyncProducer's thread", error, ProducerClosedError))
            self._end_calls()
            self.ended.set_exception(error)
        else:
            self._end_calls()
            self.ended.set_result(undelivered)

    def _run_main(self, loop: asyncio.AbstractEventLoop) -> int:
        main = loop.create_task(self._main())
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt):
                if main.done():
                    raise
                # A callback or a serializer raised it. It cannot end the program from this thread.
                _log.exception("code of the application raised in the producer's thread")

    async def _main(self) -> int:
        feeder = self._feeder = Feeder(self.producer, self.handover, self.home)
        self._feeding = asyncio.create_task(self._start_and_feed(feeder), name="kafkaclient-feeder")
        await asyncio.wait({self._feeding})
        problem = self._problem(self._feeding)
        self.handover.close(problem)
        try:
            undelivered = feeder.fail_left(problem)
        finally:
            left = None if self._stop_by is None else max(0.0, self._stop_by - self._loop.time())
            unacknowledged = await self.producer.stop(left)
            refused = await feeder.wait_settled()
        if not self.started.done():
            # The application's next call starts another thread.
            self.start_error = problem
            self.started.set_exception(problem)
        return undelivered + unacknowledged + refused

    def _problem(self, feeding: asyncio.Task[None]) -> Exception:
        """Why no more records are taken."""
        error = None if feeding.cancelled() else feeding.exception()
        if error is None:
            return ProducerClosedError(_CLOSED)
        if isinstance(error, KafkaError) and not self.started.done():
            return error
        return defect("the SyncProducer's thread", error, ProducerClosedError)

    async def _flush(self, appended: Future[None]) -> None:
        await asyncio.wrap_future(appended)
        await self.producer.flush()

    async def _start_and_feed(self, feeder: Feeder) -> None:
        await self.producer.start()
        self.started.set_result(None)
        await feeder.run()

    def _wake(self) -> None:
        if self._feeder is not None:
            self._feeder.wake()

    def _close_within(self, timeout: float | None) -> None:
        self._wake()
        if timeout is not None:
            stop_by = self._loop.time() + timeout
            if self._stop_by is None or stop_by < self._stop_by:
                self._stop_by = stop_by
                self._loop.call_at(stop_by, self._stop_feeding)

    def _stop_feeding(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
