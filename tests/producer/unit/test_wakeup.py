"""Work that is done when it is due, or when somebody rings for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kafkaclient.producer.settings import NEVER
from kafkaclient.producer.wakeup import Wakeup
from kafkaclient.testing.clock import virtual_time
from tests.producer.support import now as loop_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Work:
    """Notes when it was called; ``dues`` say when it wants to be called next."""

    def __init__(self, *dues: float) -> None:
        self.calls: list[float] = []
        self.dues = list(dues)
        self.wakeup = Wakeup(loop_time)

    def __call__(self, now: float) -> float:
        assert now == loop_time()
        self.calls.append(now)
        self.wakeup.clear()
        return self.dues.pop(0) if self.dues else NEVER

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.wakeup.run(self))
        await asyncio.sleep(0)
        try:
            yield
        finally:
            self.wakeup.stop()
            await running


@virtual_time
async def test_it_works_at_once_and_when_it_is_due() -> None:
    work = Work(3.0, 2.0, NEVER)
    async with work.running():
        await asyncio.sleep(100.0)
    assert work.calls == [0.0, 3.0, 3.0], "what was due in the past is due now"


@virtual_time
async def test_a_ring_brings_the_work_forward() -> None:
    work = Work(50.0, 60.0, NEVER)
    async with work.running():
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, work.wakeup.wake_at, 2.0)
        loop.call_later(1.5, work.wakeup.wake_at, 9.0)  # later than what is known: nothing new
        loop.call_later(5.0, work.wakeup.wake_at)
        await asyncio.sleep(100.0)
    assert work.calls == [0.0, 2.0, 5.0]


@virtual_time
async def test_what_rings_before_it_begins_counts() -> None:
    work = Work()
    work.wakeup.clear()
    work.wakeup.wake_at(4.0)
    async with work.running():
        await asyncio.sleep(100.0)
    assert work.calls == [4.0]


@virtual_time
async def test_what_rings_while_it_works_counts_unless_forgotten() -> None:
    calls: list[float] = []

    def ringing(now: float) -> float:
        wakeup.wake_at()
        wakeup.clear()
        calls.append(now)
        if len(calls) > 1:
            return NEVER
        wakeup.wake_at(7.0)
        return 9.0

    wakeup = Wakeup(loop_time)
    running = asyncio.create_task(wakeup.run(ringing))
    await asyncio.sleep(100.0)
    wakeup.stop()
    await running
    assert calls == [0.0, 7.0]


@virtual_time
async def test_many_rings_are_one_call() -> None:
    work = Work()
    async with work.running():
        await asyncio.sleep(1.0)
        for _ in range(10):
            work.wakeup.wake_at()
        await asyncio.sleep(1.0)
    assert work.calls == [0.0, 1.0]


@virtual_time
async def test_a_far_timer_is_set_once() -> None:
    """A deadline that moves on with each call costs no timer of its own each time."""
    work = Work(*(100.0 + n for n in range(50)))
    async with work.running():
        timers = set()
        for _ in range(40):
            work.wakeup.wake_at()
            await asyncio.sleep(0.1)
            timers.add(work.wakeup._timer)
        assert len(timers) == 1
        await asyncio.sleep(200.0)
    assert work.calls[41:44] == [140.0, 141.0, 142.0]


@virtual_time
async def test_a_failure_of_the_work_ends_it() -> None:
    def failing(_now: float) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Wakeup(loop_time).run(failing)


@virtual_time
async def test_nothing_is_done_after_its_end() -> None:
    work = Work(50.0, 50.0)
    async with work.running():
        await asyncio.sleep(1.0)
        work.wakeup.wake_at()
    await asyncio.sleep(100.0)
    assert work.calls == [0.0], "rung for, but ended before its turn"
    cancelled = Work(500.0)
    running = asyncio.create_task(cancelled.wakeup.run(cancelled))
    await asyncio.sleep(1.0)
    running.cancel()
    await asyncio.wait({running})
    cancelled.wakeup.wake_at()
    await asyncio.sleep(1000.0)
    assert cancelled.calls == [101.0]


@pytest.mark.parametrize(("turn", "takes", "calls"), [(0.0, 0.001, 40), (0.001, 0.001, 13)])
async def test_of_a_busy_loop_it_takes_a_quarter(turn: float, takes: float, calls: int) -> None:
    """``turn``: what others take of the loop each time around, in seconds; three of those for one
    of ours."""
    now, called = 100.0, 0

    def work(_now: float) -> float:
        nonlocal now, called
        now, called = now + takes, called + 1
        wakeup.clear()
        return NEVER

    wakeup = Wakeup(lambda: now)
    running = asyncio.create_task(wakeup.run(work))
    await asyncio.sleep(0)
    for _ in range(40):
        wakeup.wake_at()
        now += turn
        await asyncio.sleep(0)
    wakeup.stop()
    await running
    assert called == pytest.approx(calls, abs=1)


async def test_after_work_that_took_long_it_rests_no_longer_than_is_bearable() -> None:
    now, ends = 100.0, list[float]()

    def work(_now: float) -> float:
        nonlocal now
        now += 1.0
        ends.append(now)
        wakeup.clear()
        return NEVER

    wakeup = Wakeup(lambda: now)
    running = asyncio.create_task(wakeup.run(work))
    await asyncio.sleep(0)
    while len(ends) < 2:
        wakeup.wake_at()
        now += 0.001
        await asyncio.sleep(0)
    wakeup.stop()
    await running
    assert ends[1] - 1.0 - ends[0] == pytest.approx(0.005, abs=0.0015)


def test_it_goes_on_after_an_interrupt() -> None:
    """Ctrl-C ends the event loop; run again, it finishes what there is to do."""
    loop, calls = asyncio.new_event_loop(), 0

    def work(_now: float) -> float:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        wakeup.clear()
        return NEVER

    wakeup = Wakeup(loop.time)
    running = loop.create_task(wakeup.run(work))
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.call_later(0.001, wakeup.stop)
    loop.run_until_complete(running)
    loop.close()
    assert calls == 2
