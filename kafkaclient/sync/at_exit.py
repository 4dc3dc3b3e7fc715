"""The producer threads of a process: at a fork, and when the interpreter ends.

The interpreter ends in this order: (1) ``threading`` calls its own exit functions, which among
others end the executors, (2) it waits for the threads that are no daemons, (3) it calls the
functions of ``atexit``. A producer needs an executor to look up host names, so records are flushed
in step 1. Threads may still send in step 2, so producers are closed in step 3.
``multiprocessing`` ends its children after step 2.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from kafkaclient.net.off_loop import guard
from kafkaclient.time_limit import monotonic

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kafkaclient.sync.thread import ProducerThread

_log = logging.getLogger(__name__)

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
                    "the program ends with %d records undelivered: their outcome was not known "
                    "after %.3g s",
                    thread.unsettled,
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
