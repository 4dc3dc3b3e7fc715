"""Turns: processing leaves the event loop to everything else."""

from __future__ import annotations

import asyncio
import itertools

from kafkaclient.streams.runtime.worker import Turns


async def test_the_event_loop_runs_between_turns() -> None:
    """However many workers have records, and however long a record takes."""
    now = 0.0
    turns = Turns(lambda: now)
    beats: list[float] = []
    done = [0] * 50

    async def heartbeat() -> None:
        while True:
            beats.append(now)
            await asyncio.sleep(0)

    async def work(number: int, seconds: float) -> None:
        nonlocal now
        for _ in range(10):
            while turns.is_over:
                await turns.next()
            now += seconds
            done[number] += 1

    beating = asyncio.create_task(heartbeat())
    await asyncio.gather(*(work(number, 0.02 if number % 2 else 0.0004) for number in range(50)))
    beating.cancel()
    assert done == [10] * 50
    gaps = [b - a for a, b in itertools.pairwise(beats)]
    assert max(gaps) <= 0.03 + 1e-9


async def test_a_cancelled_worker_does_not_take_a_turn() -> None:
    turns = Turns(lambda: 0.0)
    waiting = [asyncio.create_task(turns.next()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert [task.cancelled() for task in waiting] == [True, False, False]
