"""When a member may write: the answer that it read last, and the time when it asked for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from kafkaclient.errors import BrokerError, KafkaTimeoutError
from kafkaclient.group.commit_gate import CommitGate
from kafkaclient.testing.clock import virtual_time


class Clock:
    """Also goes on while the event loop is blocked."""

    def __init__(self) -> None:
        self.blocked_s = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.blocked_s


def gate(clock: Clock) -> CommitGate:
    made = CommitGate("g", None, timeout_s=10, clock=clock)
    made.begin_generation(1, "m")
    made.open()
    return made


@virtual_time
async def test_a_member_is_in_session_after_the_request() -> None:
    clock = Clock()
    made = gate(clock)
    assert not made.is_in_session
    asked_at = clock()
    await asyncio.sleep(4)
    made.answered(asked_at)
    await asyncio.sleep(5.9)
    assert made.is_in_session
    made.answered(asked_at - 1)  # an older answer, read later
    assert made.is_in_session
    await asyncio.sleep(0.1)
    assert not made.is_in_session


@virtual_time
async def test_a_pause_of_the_process_counts() -> None:
    """What was read after the pause had been asked for before it."""
    clock = Clock()
    made = gate(clock)
    made.answered(clock())
    asked_at = clock()
    assert made.is_in_session
    clock.blocked_s += 11
    assert not made.is_in_session
    made.answered(asked_at)
    assert not made.is_in_session


@virtual_time
async def test_writers_wait_for_an_answer_or_a_loss() -> None:
    clock = Clock()
    made = gate(clock)
    waiting = asyncio.create_task(made.wait_in_session(0))
    await asyncio.sleep(1)
    made.answered(clock() - 11)  # too old
    await asyncio.sleep(0)
    assert not waiting.done()
    made.answered(clock())
    await waiting
    clock.blocked_s += 11
    waiting = asyncio.create_task(made.wait_in_session(0))
    await asyncio.sleep(1)
    made.refuse_waiting()
    with pytest.raises(BrokerError, match="has lost its partitions"):
        await waiting


@virtual_time
async def test_what_is_written_ends_when_the_coordinator_has_not_answered_for_a_session() -> None:
    clock = Clock()
    made = gate(clock)
    made.answered(clock())
    began = clock()
    asyncio.get_running_loop().call_later(6, lambda: made.answered(clock()))
    with pytest.raises(KafkaTimeoutError, match="of group 'g' has not answered for 10 s"):
        async with made.while_in_session(0):
            await asyncio.sleep(60)
    assert clock() - began == pytest.approx(16)
    assert not made.is_in_session


@virtual_time
async def test_what_is_written_ends_with_a_loss() -> None:
    clock = Clock()
    made = gate(clock)
    made.answered(clock())
    asyncio.get_running_loop().call_later(1, made.refuse_waiting)
    with pytest.raises(BrokerError, match="has lost its partitions"):
        async with made.while_in_session(0):
            await asyncio.sleep(60)
    assert clock() < 2
    assert not made.is_in_session
    made.answered(clock())  # in the next generation
    assert made.is_in_session
    with pytest.raises(BrokerError, match="has lost its partitions"):
        await made.wait_in_session(0)


@virtual_time
async def test_other_errors_pass() -> None:
    clock = Clock()
    made = gate(clock)
    made.answered(clock())
    for error in (TimeoutError("its own"), KafkaTimeoutError("its own"), ZeroDivisionError("own")):
        with pytest.raises(type(error), match="own"):
            async with made.while_in_session(0):
                raise error
    with suppress(asyncio.CancelledError):
        async with made.while_in_session(0):
            raise asyncio.CancelledError
    assert made.is_in_session
