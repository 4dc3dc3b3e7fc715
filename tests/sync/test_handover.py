"""The queue between the calling threads and the producer's thread."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import BufferFullError
from kafkaclient.sync.handover import Handover

if TYPE_CHECKING:
    from collections.abc import Callable

SOON, LATER = 0.0, 1e12  # deadlines


class Wakes:
    """A handover that counts the wake-ups of its taker."""

    def __init__(self, limit: int = 100) -> None:
        self.count = 0
        self.handover: Handover[str] = Handover(limit, self._wake)
        assert self.handover.take() == []  # the taker sleeps from now on

    def _wake(self) -> None:
        self.count += 1


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    """Let other threads run until the condition holds."""
    ends = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0)


def test_many_entries_cost_one_wake_up() -> None:
    wakes = Wakes()
    for name in "abc":
        wakes.handover.put(name, 1, SOON)
    assert wakes.count == 1
    assert wakes.handover.take() == ["a", "b", "c"]
    wakes.handover.put("d", 1, SOON)
    assert wakes.count == 1  # the taker is awake until it has found nothing
    assert wakes.handover.take() == ["d"]
    assert wakes.handover.take() == []
    wakes.handover.put("e", 1, SOON)
    assert wakes.count == 2


def test_a_caller_waits_for_room_and_no_longer_than_its_deadline() -> None:
    handover = Wakes(10).handover
    handover.put("a", 8, SOON)
    with pytest.raises(BufferFullError, match=r"max\.block\.ms"):
        handover.put("b", 3, SOON)
    handover.put("no room needed", 0, SOON)
    waiting = in_thread(lambda: handover.put("c", 3, LATER))
    until(lambda: bool(handover._callers))
    handover.take()
    assert waiting.is_alive()  # what is taken keeps its room
    handover.release(8)
    waiting.join(10)
    assert handover.take() == ["c"]


def test_an_entry_that_is_too_large_waits_until_the_queue_is_empty() -> None:
    handover = Wakes(10).handover
    handover.put("huge", 50, SOON)
    with pytest.raises(BufferFullError):
        handover.put("a", 1, SOON)
    handover.release(50)
    handover.put("a", 1, SOON)
    assert handover.take() == ["huge", "a"]


def test_callers_get_room_in_the_order_of_their_calls() -> None:
    handover = Wakes(10).handover
    handover.put("a", 10, SOON)
    first = in_thread(lambda: handover.put("b", 9, LATER))
    until(lambda: len(handover._callers) == 1)
    second = in_thread(lambda: handover.put("c", 1, LATER))
    until(lambda: len(handover._callers) == 2)
    handover.release(5)
    assert second.is_alive()  # there would be room for it alone
    handover.release(5)
    first.join(10)
    second.join(10)
    assert handover.take() == ["a", "b", "c"]


def test_the_next_caller_moves_up_when_one_gives_up() -> None:
    handover = Wakes(10).handover
    handover.put("a", 5, SOON)
    gave_up = threading.Event()

    def impatient() -> None:
        with pytest.raises(BufferFullError):
            handover.put("b", 9, time.monotonic() + 0.05)
        gave_up.set()

    first = in_thread(impatient)
    until(lambda: len(handover._callers) == 1)
    second = in_thread(lambda: handover.put("c", 5, LATER))
    second.join(10)
    first.join(10)
    assert gave_up.is_set()
    assert handover.take() == ["a", "c"]


def test_a_closed_queue_raises_in_callers_that_wait_too() -> None:
    handover = Wakes(10).handover
    handover.put("a", 10, SOON)
    raised: list[BaseException] = []

    def put() -> None:
        with pytest.raises(LookupError) as caught:
            handover.put("b", 10, LATER)
        raised.append(caught.value)

    waiting = in_thread(put)
    until(lambda: bool(handover._callers))
    handover.close(LookupError("closed"))
    waiting.join(10)
    assert len(raised) == 1
    with pytest.raises(LookupError):
        handover.put("c", 0, SOON)
    assert handover.take() == ["a"]


async def test_the_thread_of_an_event_loop_does_not_wait() -> None:
    handover = Wakes(10).handover
    handover.put("a", 10, SOON)
    with pytest.raises(BufferFullError, match="runs an event loop"):
        handover.put("b", 1, LATER)
    await asyncio.to_thread(handover.release, 10)
    handover.put("b", 1, LATER)


def test_an_exception_while_the_taker_is_woken_leaves_the_next_call_to_wake() -> None:
    """Such as Ctrl-C, whose handler may run anywhere in the call."""
    wakes: list[None] = []

    def wake() -> None:
        wakes.append(None)
        if len(wakes) == 1:
            raise KeyboardInterrupt

    handover: Handover[int] = Handover(100, wake)
    assert handover.take() == []
    with pytest.raises(KeyboardInterrupt):
        handover.put(1, 1, 0.0)
    handover.put(2, 1, 0.0)
    handover.put(3, 1, 0.0)
    assert len(wakes) == 2
    assert handover.take() == [1, 2, 3]
