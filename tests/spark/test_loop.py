"""An event loop beside a thread that blocks."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from kafkaclient.spark.loop import LoopThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def test_results_and_errors_come_back() -> None:
    async def answer() -> int:
        return 5

    async def fail() -> None:
        raise LookupError("no")

    with LoopThread("test") as loop:
        assert loop.run(answer()) == 5
        with pytest.raises(LookupError, match="no"):
            loop.run(fail())
        assert any(thread.name == "test" for thread in threading.enumerate())
    loop.close()
    assert all(thread.name != "test" for thread in threading.enumerate())


def test_what_still_runs_is_cancelled_at_the_end() -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def begin() -> None:
        tasks.append(asyncio.create_task(wait()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    with LoopThread("test") as loop:
        loop.run(begin())
    assert ended == [True]


def test_the_next_item_is_made_meanwhile() -> None:
    made: list[int] = []
    ahead = threading.Event()

    async def items() -> AsyncIterator[int]:
        for n in range(3):
            made.append(n)
            if n == 1:
                ahead.set()
            yield n

    with LoopThread("test") as loop:
        found = loop.iterate(items())
        assert next(found) == 0
        assert ahead.wait(10)
        assert made == [0, 1]
        assert list(found) == [1, 2]


def test_an_error_on_the_way() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise LookupError("no")

    with LoopThread("test") as loop:
        found = loop.iterate(items())
        assert next(found) == 1
        with pytest.raises(LookupError, match="no"):
            next(found)
