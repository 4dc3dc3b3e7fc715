"""Resting until a time, or until there is work."""

from __future__ import annotations

import asyncio

from kafkaclient.producer.alarm import NEVER, Alarm
from kafkaclient.testing.clock import virtual_time


def _alarm() -> Alarm:
    return Alarm(asyncio.get_running_loop().time)


def _now() -> float:
    return asyncio.get_running_loop().time()


@virtual_time
async def test_it_sleeps_until_the_time() -> None:
    alarm = _alarm()
    began = _now()
    await alarm.sleep(began + 3.0)
    assert _now() == began + 3.0
    await alarm.sleep(began)  # gone already
    assert _now() == began + 3.0


@virtual_time
async def test_a_ring_ends_the_sleep_or_moves_its_end() -> None:
    alarm = _alarm()
    began = _now()
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, alarm.ring, began + 2.0)
    loop.call_later(1.5, alarm.ring, began + 9.0)  # later than what is known: nothing new
    await alarm.sleep(NEVER)
    assert _now() == began + 2.0
    alarm.forget()
    loop.call_later(1.0, alarm.ring)
    await alarm.sleep(NEVER)
    assert _now() == began + 3.0


@virtual_time
async def test_what_rang_before_the_sleep_counts_unless_forgotten() -> None:
    alarm = _alarm()
    began = _now()
    alarm.ring()
    await alarm.sleep(NEVER)
    assert _now() == began
    alarm.ring()
    alarm.forget()
    alarm.ring(began + 0.5)
    await alarm.sleep(began + 7.0)
    assert _now() == began + 0.5


@virtual_time
async def test_a_cancelled_sleep_leaves_no_timer() -> None:
    alarm = _alarm()
    sleep = asyncio.create_task(alarm.sleep(_now() + 100.0))
    await asyncio.sleep(1.0)
    sleep.cancel()
    await asyncio.wait({sleep})
    assert alarm._timer is None
    alarm.ring()  # nobody sleeps: kept for the next one
    await alarm.sleep(NEVER)
