"""The event loop's pulse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.producer.wakeup import PERIOD_S, LoopMonitor
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    import pytest


class Beats:
    """A pulse of ``enough`` beats; ``clock`` is the loop's, and can be put forward."""

    def __init__(self, enough: int = 1000) -> None:
        self.blocked = 0.0
        self.beats: list[float] = []
        self.lags: list[float] = []
        self._enough = enough
        self.pulse = LoopMonitor(self.now, self, on_tick=self._on_beat)

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self.blocked

    def event_loop_lagged(self, seconds: float) -> None:
        self.lags.append(seconds)

    def _on_beat(self, now: float) -> bool:
        self.beats.append(now)
        return len(self.beats) < self._enough


@virtual_time
async def test_it_beats_until_told_to_stop() -> None:
    b = Beats(3)
    began = b.now()
    b.pulse.start()
    b.pulse.start()
    await asyncio.sleep(1.0)
    assert [round((beat - began) / PERIOD_S) for beat in b.beats] == [1, 2, 3]
    assert max(b.lags) < 1e-6
    assert b.pulse.unblocked_since(b.now()) < began
    b.pulse.start()
    b.pulse.stop()
    b.pulse.stop()
    await asyncio.sleep(1.0)
    assert len(b.beats) == 3


@virtual_time
async def test_started_again_in_the_middle_of_a_beat_it_beats_on_once() -> None:
    b = Beats()
    beat = b._on_beat

    def on_beat(now: float) -> bool:
        b.pulse.start()
        return beat(now)

    b.pulse = LoopMonitor(b.now, b, on_tick=on_beat)
    b.pulse.start()
    await asyncio.sleep(1.01)
    assert len(b.beats) == 50
    b.pulse.stop()
    await asyncio.sleep(1.0)
    assert len(b.beats) == 50


@virtual_time
async def test_a_blocked_loop_is_noticed_before_and_after_the_late_beat() -> None:
    b = Beats()
    b.pulse.start()
    await asyncio.sleep(0.1)
    assert b.pulse.unblocked_since(b.now()) == float("-inf")
    b.blocked = 0.2
    assert b.pulse.unblocked_since(b.now()) == b.now(), "nothing has been read since"
    await asyncio.sleep(PERIOD_S)
    woke = b.pulse.unblocked_since(b.now())
    assert b.now() - PERIOD_S <= woke <= b.now()
    await asyncio.sleep(0.5)
    assert b.pulse.unblocked_since(b.now()) == woke
    assert max(b.lags) > 0.17
    b.pulse.stop()


@virtual_time
async def test_bad_lags_are_logged_once_a_minute_and_all_are_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = Beats(10_000)
    b.pulse.start()
    for pause, lag in ((1, 0.9), (1, 2.0), (30, 5.0), (32, 1.5), (8, 3.0)):
        await asyncio.sleep(pause)
        b.blocked += lag
        await asyncio.sleep(2 * PERIOD_S)
    b.pulse.stop()
    bad = [round(lag, 1) for lag in b.lags if lag > 0.5]
    assert bad == [0.9, 2.0, 5.0, 1.5, 3.0]
    told = [record.getMessage() for record in caplog.records]
    assert ["2.0 s" in told[0], "1.5 s" in told[1], len(told)] == [True, True, 2]
