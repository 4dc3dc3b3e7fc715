"""An event loop beside a thread that blocks."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from kafkaclient.spark.client_cache import LoopThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


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


def test_running_coroutines_are_cancelled_at_the_end() -> None:
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


def test_the_next_item_is_prefetched() -> None:
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


def test_an_error_of_the_items() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise LookupError("no")

    with LoopThread("test") as loop:
        found = loop.iterate(items())
        assert next(found) == 1
        with pytest.raises(LookupError, match="no"):
            next(found)


def test_items_are_taken_in_order_while_the_next_is_produced() -> None:
    made, taken = [], []
    gate = asyncio.Event()

    def items() -> Iterator[int]:
        for n in range(3):
            made.append(n)
            if n == 1:  # the first is not taken yet
                assert taken == []
                loop._loop.call_soon_threadsafe(gate.set)
            yield n

    async def take(n: int) -> None:
        await gate.wait()
        taken.append(n)

    with LoopThread("test") as loop:
        loop.feed(items(), take)
        loop.feed([], take)
    assert made == taken == [0, 1, 2]


def test_nothing_is_taken_after_an_error() -> None:
    taken: list[int] = []

    async def take(n: int) -> None:
        if n == 1:
            raise LookupError("no")
        taken.append(n)

    def broken() -> Iterator[int]:
        yield 7
        raise KeyError("rows")

    with LoopThread("test") as loop:
        with pytest.raises(LookupError, match="no"):
            loop.feed(range(5), take)
        assert taken == [0]
        with pytest.raises(LookupError, match="no"):
            loop.feed([0, 1], take)  # the last one's, too
        with pytest.raises(KeyError, match="rows"):
            loop.feed(broken(), take)


def test_a_broken_uvloop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the constructor, not on the thread."""

    def fail() -> None:
        raise ImportError("uvloop was built for another Python")

    monkeypatch.setattr("kafkaclient.spark.client_cache.loop_factory", fail)
    with pytest.raises(ImportError, match="another Python"):
        LoopThread("test")
