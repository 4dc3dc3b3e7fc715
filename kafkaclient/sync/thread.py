"""A producer in an event loop on its own thread, and what becomes of it at a fork and at exit.

The interpreter ends in this order: (1) ``threading`` calls its own exit functions, which among
others end the executors, (2) it waits for the threads that are no daemons, (3) it calls the
functions of ``atexit``. A producer needs an executor to look up host names, so records are flushed
in step 1. Threads may still send in step 2, so producers are closed in step 3.
``multiprocessing`` ends its children after step 2.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.errors import KafkaError, ProducerClosedError, counted, defect
from kafkaclient.log_fields import log_fields
from kafkaclient.net.off_loop import guard
from kafkaclient.sync.feeder import Feeder, Outcomes
from kafkaclient.sync.futures import FutureState, ThreadFuture
from kafkaclient.sync.handover import Handover, records_in
from kafkaclient.time_limit import loop_factory, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.handover import Entry


T = TypeVar("T")

_log = logging.getLogger(__name__)

_HANDOVER_BYTES = 1 << 20
"""The room of the handover: what a thread can send while the producer's thread is busy. An entry
counts as its record and what it takes in memory besides."""

_LONGEST_PAUSE_S = 10.0  # the thread goes on then, also if the fork has not told it to

_END_S = 2.0
"""Seconds that :meth:`ProducerThread.wait_closed` waits beyond its limit for a thread that does not
respond."""

_CLOSED = "the record was not sent: the SyncProducer is closed"


class ProducerThread:
    """Starts a producer, feeds it, and stops it. The thread is a daemon.

    ``started`` is done when the producer runs, or has the error of its start: then the thread has
    ended. ``ended`` has the number of records that were left without an outcome.
    """

    def __init__(self, new_producer: Callable[[], Producer], name: str) -> None:
        self.future_state = FutureState()
        self.handover: Handover[Entry] = Handover(_HANDOVER_BYTES, self._wake_feeder)
        self.started: ThreadFuture[None] = ThreadFuture()
        self.ended: ThreadFuture[int] = ThreadFuture()
        self.start_error: BaseException | None = None
        self.producer = new_producer()
        self._feeder: Feeder | None = None
        self._outcomes: Outcomes | None = None
        self._waiting: asyncio.Task[None] | None = None
        """Feeds, or waits for outcomes; ended when the time of :meth:`close` is up."""
        self._stop_by: float | None = None
        self._has_stopped = False
        self._calls: dict[ThreadFuture[Any], Coroutine[Any, Any, Any]] = {}
        """The calls of :meth:`run` that have not begun."""
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
        taken = 0 if self._outcomes is None else self._outcomes.unsettled
        return taken + records_in(self.handover.entries)

    def call(self, function: Callable[[Producer], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine with the producer in the thread, beside the records that wait there."""
        return self.run(function(self.producer))

    def flush(self) -> Future[Any]:
        """Send all records that were handed over before; the future is done when each has its
        outcome."""
        appended: Future[None] = Future()
        try:
            self.handover.put((appended, None, copy_context(), False, 0.0, 0, 0), 0, 0.0)
        except Exception:  # noqa: BLE001 - the queue is closed: the thread ends with the last outcome
            return self.ended
        return self.run(self._flush(appended))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> ThreadFuture[T]:
        """Run a coroutine in the thread, beside the records that wait there. The result fails with
        ProducerClosedError, or is cancelled, if the thread ends before the coroutine."""
        call: ThreadFuture[T] = ThreadFuture()
        self._calls[call] = coroutine
        self._in_loop(self._begin, call, coroutine)
        if self._loop.is_closed():
            self._end_calls()
        return call

    def close(self, timeout: float | None) -> Future[int]:
        """Take no more records, send those that were taken, and end within ``timeout`` seconds
        (None: when each record has its outcome). A second call can only shorten the time."""
        self.handover.close(ProducerClosedError(_CLOSED))
        self._in_loop(self._close_within, timeout)
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

        if threading.current_thread() is not self._thread and self._in_loop(rest):
            paused.wait(timeout_s)

    def wait_closed(self, timeout: float | None) -> int:
        """Wait until the thread has ended, after ``close(timeout)``; returns how many records were
        left without an outcome. A thread that does not respond in time is left to itself."""
        limit = None if timeout is None else max(0.0, timeout) + _END_S
        try:
            undelivered = self.ended.result(limit)
        except TimeoutError:
            undelivered = self.unsettled
            _log.error(
                "close has waited %.3g s, and the producer's thread does not respond: a callback "
                "of the application may keep it busy. %d records have no outcome",
                limit,
                undelivered,
                extra=log_fields(maybe_written=True),
            )
            return undelivered
        self._thread.join(_END_S)
        return undelivered

    def _in_loop(self, callback: Callable[..., object], *args: Any) -> bool:
        """Call in the thread; False: its loop is closed."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return False
        return True

    def _wake_feeder(self) -> None:
        self._in_loop(self._wake)

    def _end_calls(self) -> None:
        """Fail the calls that have not begun when the loop is closed."""
        while self._calls:
            call, coroutine = self._calls.popitem()
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
        outcomes = self._outcomes = Outcomes(self.future_state, self._report_unobserved)
        feeder = self._feeder = Feeder(self.producer, self.handover, outcomes)
        feeding = asyncio.create_task(self._start_and_feed(feeder), name="kafkaclient-feeder")
        self._waiting = feeding
        await asyncio.wait({feeding})
        failure = None if feeding.cancelled() else feeding.exception()
        problem = self._problem(failure)
        self.handover.close(problem)
        try:
            left = feeder.fail_left(problem)
            # After a failure they failed before a close, with why nothing can be sent.
            undelivered = left if failure is None else 0
            if self.started.done() and self._time_left() != 0:
                await self._wait_for_outcomes()
        finally:
            unacknowledged = await self.producer.stop(self._time_left())
            await feeder.wait_appended()
            await outcomes.wait_settled()
            self._has_stopped = True
        if not self.started.done():
            # The application's next call starts another thread.
            self.start_error = problem
            self.started.set_exception(problem)
        return undelivered + unacknowledged + feeder.refused_at_stop

    async def _wait_for_outcomes(self) -> None:
        """Ends early when the time of :meth:`close` is up, which ``Producer.stop`` cannot: its time
        is known when it begins, and a second ``close`` may shorten it later."""
        flushing = self._waiting = asyncio.create_task(self.producer.flush())
        await asyncio.wait({flushing})
        if not flushing.cancelled():
            flushing.exception()  # the records have it, too

    def _time_left(self) -> float | None:
        """How long the thread may still wait for outcomes, in seconds; None: no limit."""
        return None if self._stop_by is None else max(0.0, self._stop_by - self._loop.time())

    def _report_unobserved(
        self, batch_result: BatchResult, error: KafkaError, records: int
    ) -> None:
        core = self.producer._core
        if core is not None:
            core.report_unobserved(batch_result, error, records)

    def _problem(self, failure: BaseException | None) -> Exception:
        """Why no more records are taken."""
        if failure is None:
            return ProducerClosedError(_CLOSED)
        if isinstance(failure, KafkaError) and not self.started.done():
            return failure
        return defect("the SyncProducer's thread", failure, ProducerClosedError)

    async def _flush(self, appended: Future[None]) -> None:
        await asyncio.wrap_future(appended)
        assert self._outcomes is not None
        await self._outcomes.flush(self.producer)

    def _begin(self, call: ThreadFuture[T], coroutine: Coroutine[Any, Any, T]) -> None:
        """Start a call of :meth:`run`."""
        if self._has_stopped:
            return  # it fails when the loop is closed
        del self._calls[call]
        if call.done():  # its caller has cancelled it
            coroutine.close()
            return
        task = self._loop.create_task(coroutine)
        call.add_done_callback(lambda _: self._in_loop(task.cancel))
        task.add_done_callback(lambda _: _copy_outcome(task, call))

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
                self._loop.call_at(stop_by, self._on_time_up)

    def _on_time_up(self) -> None:
        self._stop_by = self._loop.time()  # a timer may end a little early
        if self._waiting is not None:
            self._waiting.cancel()


def _copy_outcome(task: asyncio.Task[T], call: ThreadFuture[T]) -> None:
    error = None if task.cancelled() else task.exception()
    with contextlib.suppress(InvalidStateError):  # the caller has cancelled the call
        if task.cancelled():
            call.cancel()
        elif error is not None:
            call.set_exception(error)
        else:
            call.set_result(task.result())


_FORK_S = 1.0  # how long a fork waits until a producer's thread has paused


class OpenThreads:
    """The producer threads of this process, each with its limit in seconds for the exit."""

    def __init__(self) -> None:
        self._exit_timeouts: dict[ProducerThread, float] = {}
        self._inherited: list[ProducerThread] = []
        """In a forked child: the parent's threads, kept so that their coroutines are not closed in
        the child."""
        self._resumes: dict[int, list[threading.Event]] = {}
        """The events that end the pauses of the threads, by the thread that forks."""
        guard(self)
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork)
        # In step 1, functions registered later run earlier: before those of the executors.
        import concurrent.futures.thread  # noqa: F401, PLC0415

        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(self.flush)
        atexit.register(self.close)

    def add(self, thread: ProducerThread, exit_timeout_s: float) -> None:
        self._exit_timeouts[thread] = exit_timeout_s
        thread.ended.add_done_callback(lambda _: self._exit_timeouts.pop(thread, None))

    def flush(self) -> None:
        """Step 1: wait for the outcome of all records, and leave the producers running."""
        began = monotonic()
        late = list(self._exit_timeouts)
        try:
            flushes = {thread: thread.flush() for thread in late}
            for thread, flush in flushes.items():
                if _is_done_within(
                    flush, began + self._exit_timeouts.get(thread, 0.0) - monotonic()
                ):
                    late.remove(thread)
        except KeyboardInterrupt:
            pass  # Ctrl-C ends the wait
        for thread in late:
            if thread in self._exit_timeouts:
                self._exit_timeouts[thread] = 0.0
                _log.warning(
                    "the program ends with %s undelivered: the outcome was not known after %.3g s",
                    counted(thread.unsettled, "record"),
                    monotonic() - began,
                )

    def close(self) -> None:
        """Step 3."""
        began = monotonic()
        ends = dict(self._exit_timeouts)
        for thread, limit in ends.items():
            thread.close(limit)
        for thread, limit in ends.items():
            # The producer says itself how many records it leaves undelivered.
            _is_done_within(thread.ended, began + limit + 1.0 - monotonic())

    def _before_fork(self) -> None:
        # A lock that another thread holds during a fork stays locked in the child: for example that
        # of a module that is being imported.
        resumes = self._resumes[threading.get_ident()] = []
        for thread in list(self._exit_timeouts):
            thread.pause(resumes, _FORK_S)

    def _after_fork(self) -> None:
        for resume in self._resumes.pop(threading.get_ident(), ()):
            resume.set()

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.off_loop.Forkable`."""
        for thread in self._exit_timeouts:
            thread.future_state.forked()
        self._resumes.clear()
        self._inherited += self._exit_timeouts
        self._exit_timeouts = {}


def _is_done_within(future: Future[Any], seconds: float) -> bool:
    """Whether the future is done in time."""
    try:
        future.exception(max(0.0, seconds))
    except TimeoutError:
        return False
    except CancelledError:
        pass  # the thread has ended
    return True


open_threads = OpenThreads()
