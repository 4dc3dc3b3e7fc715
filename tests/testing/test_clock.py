"""Virtual time: jumps, order, real descriptors, executors, and clear ends instead of hangs."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkaclient.testing.clock import (
    VirtualDeadlockError,
    VirtualTimeLoop,
    run_virtual,
    virtual_time,
)


@virtual_time
async def test_an_hour_passes_at_once() -> None:
    loop = asyncio.get_running_loop()
    wall = time.monotonic()
    await asyncio.sleep(3600)
    assert loop.time() == 3600.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(120):
            await loop.create_future()
    assert loop.time() == 3720.0
    assert time.monotonic() - wall < 30


@virtual_time
async def test_timers_fire_in_order_and_never_before_their_time() -> None:
    loop = asyncio.get_running_loop()
    fired: list[tuple[float, float]] = []
    for step in (0.3, 0.1, 0.1 + 0.2, 7.7, 1e-4):
        when = 1 / 3 + step
        loop.call_at(when, lambda when=when: fired.append((when, loop.time())))
    await asyncio.sleep(20)
    assert fired == sorted(fired)
    assert len(fired) == 5
    assert all(now >= when for when, now in fired)


@virtual_time
async def test_a_cancelled_timer_does_not_hold_time_back() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(5, pytest.fail, "a cancelled timer fired").cancel()
    await asyncio.sleep(10)
    assert loop.time() == 10.0


def test_a_wait_without_an_end_is_an_error_that_names_the_task() -> None:
    async def waits_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(VirtualDeadlockError, match=r"no timer.*(?s:.*)waits_for_nobody"):
        run_virtual(waits_for_nobody())


def test_a_ticking_program_that_makes_no_progress_hits_the_limit() -> None:
    async def stuck() -> None:
        loop = asyncio.get_running_loop()

        def tick() -> None:
            loop.call_later(300, tick)

        tick()
        await loop.create_future()

    with pytest.raises(VirtualDeadlockError, match="past the limit"):
        run_virtual(stuck(), limit=3600)


@virtual_time
async def test_executor_work_takes_no_virtual_time() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(1, lambda: None)
    assert await asyncio.to_thread(sum, [1, 2]) == 3
    assert loop.time() == 0.0


def test_the_clock_waits_for_a_thread_whose_task_was_cancelled() -> None:
    begun, may_end = threading.Event(), threading.Event()
    ended_at: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def work() -> None:
            begun.set()
            may_end.wait()
            ended_at.append(loop.time())

        task = asyncio.create_task(asyncio.to_thread(work))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        threading.Timer(0.05, may_end.set).start()
        await asyncio.sleep(3600)

    run_virtual(main())
    assert ended_at == [0.0]


def test_the_end_waits_for_threads_that_work(recwarn: pytest.WarningsRecorder) -> None:
    may_end = threading.Event()
    work = []

    async def main() -> None:
        pool = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(pool)
        work.append(pool.submit(may_end.wait))  # not known to the loop
        threading.Timer(0.05, may_end.set).start()

    run_virtual(main())
    assert work[0].done()
    assert not recwarn.list


@virtual_time
async def test_real_sockets_are_served_before_the_clock_jumps() -> None:
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        loop.call_later(60, pytest.fail, "the clock jumped past readable data")
        await loop.sock_sendall(left, b"ping")
        assert await loop.sock_recv(right, 4) == b"ping"
    assert loop.time() == 0.0


def test_the_clock_starts_where_it_is_told() -> None:
    async def now() -> float:
        await asyncio.sleep(0.5)
        return asyncio.get_running_loop().time()

    assert run_virtual(now(), start=1000.0) == 1000.5


def test_the_loop_works_with_a_plain_runner() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(asyncio.sleep(86_400))
