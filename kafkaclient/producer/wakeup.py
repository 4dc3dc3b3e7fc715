"""Runs the sender's passes, and notices when the event loop was blocked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from kafkaclient.producer.settings import NEVER, SOON

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.metrics.producer import ProducerMetrics


# --- Notices when the event loop was blocked ------------------------------------------------------

_log = logging.getLogger(__name__)

PERIOD_S = 0.02
"""The time between two ticks, in seconds."""
_TOLERANCE_S = 0.01  # a later tick means a blocked loop: sockets may hold unread answers
_BAD_LAG_S = 1.0  # a shorter lag shows in the metric only
_WARNING_INTERVAL_S = 60.0  # how often a bad lag is logged at most
_SETTLE_S = 0.05  # what the program gets after a bad lag, for the timers that passed meanwhile


class LoopMonitor:
    """Ticks while there is something to wait for.

    ``on_tick(now)`` is called with every tick and returns whether to go on. ``metrics`` records by
    how much a tick was late; a bad lag is logged, at most once a minute. ``clock`` gives the event
    loop's time in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        metrics: ProducerMetrics,
        *,
        on_tick: Callable[[float], bool],
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._on_tick = on_tick
        self._silent_until = float("-inf")
        self._unblocked_since = float("-inf")
        self._settled_at = float("-inf")
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Tick from now on, until ``on_tick`` returns False."""
        if self._timer is None:
            self._due = self._clock() + PERIOD_S
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def unblocked_since(self, now: float) -> float:
        """Since when the event loop has run without being blocked, as far as is known.

        That is ``now`` while a tick is late: what arrived since then has not been read yet.
        """
        if self._timer is not None and now - self._due > _TOLERANCE_S:
            return now
        return self._unblocked_since

    def settled_at(self, now: float) -> float:
        """When the program has had its turn after the event loop stood still for a second or more:
        what it wanted to send before may be out of date, and a timer of its own may say so."""
        if self._timer is not None and now - self._due >= _BAD_LAG_S:
            return now + _SETTLE_S
        return self._settled_at

    def seconds_since(self, then: float) -> float | None:
        """The time since ``then``; None: the event loop was blocked meanwhile."""
        now = self._clock()
        return now - then if self.unblocked_since(now) <= then else None

    def _tick(self) -> None:
        now = self._clock()
        lag = max(0.0, now - self._due)
        self._metrics.event_loop_lagged(lag)
        if lag > _TOLERANCE_S:
            self._unblocked_since = now
        if lag >= _BAD_LAG_S:
            self._settled_at = now + _SETTLE_S
            self._tell(lag, now)
        self._timer = None
        if self._on_tick(now):
            self.start()

    def _tell(self, lag: float, now: float) -> None:
        if now >= self._silent_until:
            self._silent_until = now + _WARNING_INTERVAL_S
            _log.warning(
                "the event loop stood still for %.1f s, and nothing was sent meanwhile: something "
                "in this program computes or waits without awaiting; asyncio's debug mode names it",
                lag,
            )


# --- Runs the sender's passes: at a given time, or as soon as something wakes it ------------------

_LOOP_GRAIN_S = 0.001  # the coarsest step of an event loop's timers
_FAR_S = 0.1  # a deadline further away than this is moved on without a new timer
_BUSY_S = 0.0003  # an event loop is busy if it runs a callback this much too late
_REST_RATIO = 3  # on a busy event loop the work pauses for this many times its last duration
_LONGEST_REST_S = 0.005  # ... and for at most this many seconds


class Wakeup:
    """Calls ``work(now)``, which returns when it is due again (NEVER: only when it is woken).

    ``clock`` gives the event loop's time in seconds. The event loop calls the work itself: a task
    would cost its suspension and its resumption each time.

    On a busy event loop the work rests for three times as long as it took. What piles up meanwhile
    is done in one go, which is cheaper (batches grow, requests get fewer).
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._work: Callable[[float], float] = lambda _now: NEVER
        self._at = 0.0
        """When the work is due, as far as is known."""
        self._will_look = True
        """True while :meth:`_do` is sure to run and read ``_at``: then :meth:`wake_at` sets no
        timer."""
        self._ended: asyncio.Future[None] | None = None
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._asked_at = 0.0
        """When the call was handed to the event loop."""
        self._rest_until = 0.0

    async def run(self, work: Callable[[float], float]) -> None:
        """Work until :meth:`stop` or a failure of the work, which is raised here."""
        self._work = work
        if self._stopped:
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = ended
        self._set(ended, self._clock())
        try:
            await ended
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                ended.cancel()
            if self._timer is not None:
                self._timer.cancel()

    def stop(self) -> None:
        """Call the work no more, or never; a call under way ends."""
        self._stopped = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def wake_at(self, when: float = 0.0) -> None:
        """The work is due at the time ``when`` at the latest (0: now)."""
        if when < self._at:
            self._at = when
            if not self._will_look and self._ended is not None:
                self._set(self._ended, self._clock())

    def clear(self) -> None:
        """Forget all wakes so far: the work under way sees to them."""
        self._at = NEVER

    def _set(self, ended: asyncio.Future[None], now: float) -> None:
        at = self._at
        self._will_look = False
        if ended.done():
            return
        if at <= now:
            self._will_look = True
            self._asked_at = now
            ended.get_loop().call_soon(self._do, ended)
            return
        # A far timer that fires too early looks again, and costs nothing until then. A near one
        # would cost one more rounding to whole milliseconds.
        is_far = at > now + _FAR_S
        must_set = at < self._timer_at if is_far else at != self._timer_at
        if must_set:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = ended.get_loop().call_later(at - now, self._timed, ended)

    def _timed(self, ended: asyncio.Future[None]) -> None:
        self._timer, self._timer_at = None, NEVER
        if self._will_look or self._at == NEVER:
            return
        early = self._at - self._clock()
        if early > SOON:
            # Due later by now; or uvloop rounded to whole milliseconds, and nothing is due yet.
            self._timer_at = self._at
            delay = max(early, _LOOP_GRAIN_S)
            self._timer = ended.get_loop().call_later(delay, self._timed, ended)
        else:
            # Run after the tasks that the same iteration of the event loop has woken: the records
            # that they send leave with this pass, and need no request of their own.
            self._will_look = True
            self._asked_at = self._clock()
            loop = ended.get_loop()
            loop.call_soon(loop.call_soon, self._do, ended)

    def _do(self, ended: asyncio.Future[None]) -> None:
        if ended.done():
            return
        self._will_look = True
        now = self._clock()
        if now < self._rest_until and now - self._asked_at > _BUSY_S:
            self._asked_at = now
            ended.get_loop().call_soon(self._do, ended)
            return
        try:
            due = self._work(now)
        except Exception as failure:  # noqa: BLE001 - it is raised by run()
            if not ended.done():
                ended.set_exception(failure)
            return
        except BaseException:
            # Ctrl-C ends the event loop. The program may run it again to stop the producer.
            self._at = 0.0
            self._set(ended, self._clock())
            raise
        self._at = min(due, self._at)
        end = self._clock()
        self._rest_until = end + min(_REST_RATIO * (end - now), _LONGEST_REST_S)
        self._set(ended, end)
