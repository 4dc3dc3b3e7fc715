"""The byte budget: Java's BufferPoolTest, and its rules under any order of events.

Ids such as ``B2`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkaclient.producer.accumulator.buffer_pool import BufferPool

if TYPE_CHECKING:
    from collections.abc import Callable


def nothing() -> None: ...


async def take_from(buffer_pool: BufferPool, nbytes: int, on_first: Callable[[], None]) -> None:
    """Wait for bytes as the callers of ``send`` do (admission.py)."""
    granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    claim = buffer_pool.ask(nbytes, lambda: granted.cancelled() or granted.set_result(None))
    if claim is None:
        return
    if buffer_pool.waiting == 1:
        on_first()
    try:
        await granted
    except asyncio.CancelledError:
        if claim in buffer_pool.waiters:
            buffer_pool.withdraw(claim)
        else:
            buffer_pool.give_back(nbytes)
        raise


async def turn() -> None:
    """Let tasks that can go on go on."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_simple() -> None:
    buffer_pool = BufferPool(64 * 1024)
    assert buffer_pool.try_take(1024)
    assert buffer_pool.available == 64 * 1024 - 1024
    buffer_pool.give_back(1024)
    assert buffer_pool.try_take(64 * 1024)
    assert not buffer_pool.try_take(1)
    buffer_pool.give_back(64 * 1024)
    assert repr(buffer_pool) == "<BufferPool used=0 total=65536 waiting=0>"


def test_no_more_than_there_is() -> None:
    buffer_pool = BufferPool(1024)
    assert buffer_pool.try_take(1024)
    buffer_pool.give_back(1024)
    assert not buffer_pool.try_take(1025)
    assert buffer_pool.available == 1024


def test_force_goes_below_zero_and_must_be_made_up_for() -> None:
    buffer_pool = BufferPool(10)
    buffer_pool.force(15)
    assert buffer_pool.available == -5
    assert not buffer_pool.try_take(1)
    buffer_pool.give_back(15)
    assert buffer_pool.try_take(10)


async def test_delayed_allocation() -> None:
    buffer_pool = BufferPool(5 * 1024)
    assert buffer_pool.try_take(1024)
    called = []
    waiting = asyncio.create_task(take_from(buffer_pool, 5 * 1024, lambda: called.append(1)))
    await turn()
    assert not waiting.done()
    assert buffer_pool.waiting == 1
    assert called == [1]
    buffer_pool.give_back(1024)
    await waiting
    assert (buffer_pool.available, buffer_pool.waiting) == (0, 0)


async def test_exhausted_after_a_time() -> None:
    buffer_pool = BufferPool(2)
    await take_from(buffer_pool, 1, nothing)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(take_from(buffer_pool, 2, nothing), 0.001)
    assert (buffer_pool.available, buffer_pool.waiting) == (1, 0)


async def test_first_come_first_served() -> None:
    buffer_pool = BufferPool(10)
    assert buffer_pool.try_take(10)
    admitted: list[int] = []

    async def take(n: int, nbytes: int) -> None:
        await take_from(buffer_pool, nbytes, nothing)
        admitted.append(n)

    tasks = [asyncio.create_task(take(n, size)) for n, size in enumerate((6, 1, 1, 9))]
    await turn()
    buffer_pool.give_back(5)
    await turn()
    assert admitted == [], "a small one does not overtake"
    assert not buffer_pool.try_take(1)
    buffer_pool.give_back(5)
    await turn()
    assert admitted == [0, 1, 2]
    buffer_pool.give_back(8)
    await turn()
    assert admitted == [0, 1, 2, 3]
    await asyncio.gather(*tasks)


async def test_only_the_first_waiter_makes_memory_come_free() -> None:
    buffer_pool = BufferPool(1)
    assert buffer_pool.try_take(1)
    called: list[int] = []
    tasks = [
        asyncio.create_task(take_from(buffer_pool, 1, lambda n=n: called.append(n)))  # type: ignore[misc]
        for n in range(3)
    ]
    await turn()
    assert called == [0]
    for task in tasks:
        buffer_pool.give_back(1)
        await task


async def test_a_cancelled_waiter_lets_the_next_one_in() -> None:
    buffer_pool = BufferPool(10)
    assert buffer_pool.try_take(8)
    large = asyncio.create_task(take_from(buffer_pool, 5, nothing))
    small = asyncio.create_task(take_from(buffer_pool, 2, nothing))
    await turn()
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    await small
    assert (buffer_pool.available, buffer_pool.waiting) == (0, 0)


async def test_cancelled_in_the_turn_it_was_admitted() -> None:
    buffer_pool = BufferPool(10)
    assert buffer_pool.try_take(10)
    waiting = asyncio.create_task(take_from(buffer_pool, 4, nothing))
    behind = asyncio.create_task(take_from(buffer_pool, 10, nothing))
    await turn()
    buffer_pool.give_back(10)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await behind
    assert buffer_pool.available == 0


async def test_spending_a_charge() -> None:
    buffer_pool = BufferPool(10)
    await take_from(buffer_pool, 8, nothing)
    waiting = asyncio.create_task(take_from(buffer_pool, 6, nothing))
    await turn()
    with buffer_pool.spend(8):
        buffer_pool.force(4)
        assert buffer_pool.waiting == 1, "nobody is admitted in between"
    await waiting
    assert buffer_pool.available == 0


async def test_thousands_of_waiters_cost_one_look_each() -> None:
    """B2: freed bytes admit as many as fit, in one pass."""
    buffer_pool = BufferPool(1000)
    assert buffer_pool.try_take(1000)
    tasks = [asyncio.create_task(take_from(buffer_pool, 1, nothing)) for _ in range(5000)]
    await turn()
    for _ in range(5):
        buffer_pool.give_back(1000)
        await turn()
    assert all(task.done() for task in tasks)
    assert buffer_pool.available == 0


class Budgeting(RuleBasedStateMachine):
    """Any order of taking, waiting, cancelling, returning and forcing, on a loop run by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.buffer_pool = BufferPool(100)
        self.held: list[int] = []
        self.forced = 0
        self.waiters: deque[tuple[int, asyncio.Task[None]]] = deque()
        self.admitted: list[int] = []
        self.serial = 0

    def run(self) -> None:
        self.loop.run_until_complete(turn())
        for nbytes, task in list(self.waiters):
            if task.done():
                self.waiters.remove((nbytes, task))
                if not task.cancelled():
                    task.result()
                    self.held.append(nbytes)

    @rule(nbytes=st.integers(1, 100))
    def try_take(self, nbytes: int) -> None:
        expected = not self.waiters and nbytes <= self.buffer_pool.available
        assert self.buffer_pool.try_take(nbytes) is expected
        if expected:
            self.held.append(nbytes)

    @rule(nbytes=st.integers(1, 100))
    def take(self, nbytes: int) -> None:
        serial, self.serial = self.serial, self.serial + 1

        async def wait() -> None:
            await take_from(self.buffer_pool, nbytes, nothing)
            self.admitted.append(serial)

        self.waiters.append((nbytes, self.loop.create_task(wait())))
        self.run()

    @rule(nbytes=st.integers(1, 150))
    def force(self, nbytes: int) -> None:
        self.buffer_pool.force(nbytes)
        self.held.append(nbytes)
        self.forced += nbytes

    @precondition(lambda self: self.held)
    @rule(data=st.data(), cancel=st.booleans(), settle=st.booleans())
    def give_back(self, data: Any, cancel: bool, settle: bool) -> None:
        nbytes = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.buffer_pool.give_back(nbytes)
        if cancel and self.waiters:
            self.waiters[data.draw(st.integers(0, len(self.waiters) - 1))][1].cancel()
        if settle or cancel:
            self.run()

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        self.waiters[data.draw(st.integers(0, len(self.waiters) - 1))][1].cancel()
        self.run()

    @invariant()
    def adds_up(self) -> None:
        self.run()
        assert self.buffer_pool.available == 100 - sum(self.held)
        assert self.buffer_pool.available >= -self.forced
        assert self.buffer_pool.waiting == len(self.waiters)
        assert self.admitted == sorted(self.admitted)
        if self.waiters:
            assert self.waiters[0][0] > self.buffer_pool.available, "the first one would fit"

    def teardown(self) -> None:
        while self.held:
            self.buffer_pool.give_back(self.held.pop())
            self.run()
        assert not self.waiters
        assert self.buffer_pool.available == 100
        self.loop.close()


TestBudgeting = Budgeting.TestCase
