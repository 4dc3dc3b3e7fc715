"""Work at a time, or as soon as somebody asks for it: what drives the sender's passes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from kafkaclient.producer.timing import NEVER, SOON

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Wakeup"]

# The coarsest step of an event loop's timers (seconds).
_LOOP_GRAIN = 0.001
# Deadlines further away than this are moved on without a new timer (seconds).
_FAR = 0.1
# An event loop that comes so much later than it was asked to is busy (seconds). It is left to
# others for as many times as long as the work took, but not for longer than the last.
_BUSY, _REST, _LONGEST_REST = 0.0003, 3, 0.005


class Wakeup:
    """Calls ``work(now)``, which returns when it is due again (NEVER: when it is rung for).

    ``clock`` gives the event loop's time in seconds. The calls come from the event loop itself
    and not from a task: that is cheaper by what it takes to put a task to rest and to wake it.

    While the event loop is busy the work takes a quarter of its time at most: what is there to be
    done grows meanwhile, and is done at less cost in one go (batches grow, requests get fewer).
    """

    __slots__ = (
        "_asked_at",
        "_at",
        "_attended",
        "_clock",
        "_ended",
        "_rest_until",
        "_timer",
        "_timer_at",
        "_work",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._work: Callable[[float], float] = lambda _now: NEVER
        self._at = 0.0
        """When the work is due, as far as is known."""
        self._attended = True
        """Whether ``_at`` will be looked at anyway: not begun, about to work, or working."""
        self._ended: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._asked_at = 0.0
        """When the event loop was asked to call."""
        self._rest_until = 0.0

    async def run(self, work: Callable[[float], float]) -> None:
        """Work until :meth:`stop` or a failure of the work, which is raised here."""
        self._work = work
        self._ended = asyncio.get_running_loop().create_future()
        self._set(self._ended)
        try:
            await self._ended
        finally:
            with contextlib.suppress(RuntimeError):  # the loop was closed without us
                self._ended.cancel()
            if self._timer is not None:
                self._timer.cancel()

    def stop(self) -> None:
        """Work no more, but for the call under way."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def wake_at(self, when: float = 0.0) -> None:
        """The work is due at the time ``when`` at the latest (0: now)."""
        if when < self._at:
            self._at = when
            if not self._attended and self._ended is not None:
                self._set(self._ended)

    def clear(self) -> None:
        """What was rung for so far is being seen to."""
        self._at = NEVER

    def _set(self, ended: asyncio.Future[None]) -> None:
        delay = self._at - self._clock() if self._at > 0.0 else 0.0
        self._attended = delay <= 0.0 and not ended.done()
        if self._attended:
            self._asked_at = self._clock()
            ended.get_loop().call_soon(self._do, ended)
        elif self._wants_timer(delay) and not ended.done():
            if self._timer is not None:
                self._timer.cancel()
            self._start_timer(delay, ended)

    def _wants_timer(self, delay: float) -> bool:
        if delay > _FAR:
            # One that comes too early looks again, and costs nothing until then.
            return self._at < self._timer_at
        # Near the time that would be one more rounding to whole milliseconds.
        return self._at != self._timer_at

    def _start_timer(self, delay: float, ended: asyncio.Future[None]) -> None:
        self._timer_at = self._at
        self._timer = ended.get_loop().call_later(delay, self._timed, ended)

    def _timed(self, ended: asyncio.Future[None]) -> None:
        self._timer, self._timer_at = None, NEVER
        if self._attended or self._at == NEVER:
            return
        early = self._at - self._clock()
        if early > SOON:
            # Due later by now; or uvloop has rounded to whole milliseconds, and there would be
            # nothing to do yet.
            self._start_timer(max(early, _LOOP_GRAIN), ended)
        else:
            # After the tasks that the same tick of the loop's clock has woken: what they send
            # leaves with this pass, where it would make a request of its own.
            self._attended = True
            self._asked_at = self._clock()
            loop = ended.get_loop()
            loop.call_soon(loop.call_soon, self._do, ended)

    def _do(self, ended: asyncio.Future[None]) -> None:
        if ended.done():
            return
        self._attended = True
        now = self._clock()
        if now < self._rest_until and now - self._asked_at > _BUSY:
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
            # Ctrl-C ends the event loop, which may be run again, to stop the producer in order.
            self._at = 0.0
            self._set(ended)
            raise
        self._at = min(due, self._at)
        end = self._clock()
        self._rest_until = end + min(_REST * (end - now), _LONGEST_REST)
        self._set(ended)
