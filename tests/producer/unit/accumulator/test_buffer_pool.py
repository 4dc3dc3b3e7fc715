"""The byte budget: Java's BufferPoolTest, and its rules under any order of events.

Ids such as ``B2`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkaclient.producer.accumulator.buffer_pool import BufferPool


def test_simple() -> None:
    buffer_pool = BufferPool(64 * 1024)
    assert buffer_pool.try_take(1024)
    assert buffer_pool.available == 64 * 1024 - 1024
    buffer_pool.give_back(1024)
    assert buffer_pool.try_take(64 * 1024)
    assert not buffer_pool.try_take(1)
    buffer_pool.give_back(64 * 1024)
    assert repr(buffer_pool) == "<BufferPool used=0 total=65536>"


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


def test_bytes_that_come_free_are_for_those_that_wait() -> None:
    buffer_pool = BufferPool(10)
    assert buffer_pool.try_take(8)
    free: list[int] = []
    buffer_pool.on_free = lambda: free.append(buffer_pool.available)
    buffer_pool.short = True
    share = buffer_pool.shares.of(0)
    assert (buffer_pool.room(share), buffer_pool.available) == (0, 2)
    assert not buffer_pool.try_take(1), "a small one does not overtake"
    with buffer_pool.spend(8):
        assert buffer_pool.room(share) == 8
        assert buffer_pool.try_take(3)
        buffer_pool.force(1)
        assert free == [], "nobody is admitted in between"
    assert free == [6]
    buffer_pool.give_back(4)
    assert free == [6, 10]
    assert repr(buffer_pool) == "<BufferPool used=0 total=10, waited for>"


def test_a_share_has_at_most_eight_times_what_is_free() -> None:
    buffer_pool = BufferPool(900)
    full, other = buffer_pool.shares.of(0), buffer_pool.shares.of(1)
    full.held = 700
    buffer_pool.force(700)
    assert buffer_pool.room(full) == 100
    assert buffer_pool.try_take(100, full)
    full.held += 100
    assert not buffer_pool.try_take(1, full)
    assert buffer_pool.try_take(11, other), "the rest is for the others"
    other.held = 11
    assert buffer_pool.room(other) == (8 * 89 - 11) // 9
    assert buffer_pool.shares.fullest is full


def test_a_share_without_bytes_may_have_any_record() -> None:
    buffer_pool = BufferPool(900)
    full, empty = buffer_pool.shares.of(0), buffer_pool.shares.of(1)
    full.held = 500
    buffer_pool.force(500)
    assert buffer_pool.room(empty) == 400
    assert buffer_pool.try_take(400, empty)


def test_a_single_broker_may_have_all() -> None:
    buffer_pool = BufferPool(900)
    share = buffer_pool.shares.of(0)
    share.held = 899
    buffer_pool.force(899)
    assert buffer_pool.try_take(1, share)


def test_one_broker_crowds_the_others_out() -> None:
    buffer_pool = BufferPool(900)
    full, other = buffer_pool.shares.of(0), buffer_pool.shares.of(1)
    full.held = 800
    buffer_pool.force(800)
    assert buffer_pool.crowding_broker() is None, "this is its share"
    buffer_pool.force(1)
    assert buffer_pool.crowding_broker() == 0
    full.held, other.held = 450, 350
    assert buffer_pool.crowding_broker() is None, "both have much"
    full.held, other.held, buffer_pool.shares.unbound.held = 0, 0, 801
    assert buffer_pool.crowding_broker() is None, "any broker may take these"


class Budgeting(RuleBasedStateMachine):
    """Any order of taking, spending, forcing and returning, with others that wait and without."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer_pool = BufferPool(100)
        self.held: list[int] = []
        self.forced = self.came_free = 0

    @rule(waited=st.booleans())
    def wait(self, waited: bool) -> None:
        self.buffer_pool.on_free = self.count if waited else None
        self.buffer_pool.short = waited

    def count(self) -> None:
        self.came_free += 1

    @rule(nbytes=st.integers(1, 100))
    def try_take(self, nbytes: int) -> None:
        expected = self.buffer_pool.on_free is None and nbytes <= self.buffer_pool.available
        assert self.buffer_pool.try_take(nbytes) is expected
        if expected:
            self.held.append(nbytes)

    @rule(nbytes=st.integers(1, 150))
    def force(self, nbytes: int) -> None:
        self.buffer_pool.force(nbytes)
        self.held.append(nbytes)
        self.forced += nbytes

    @precondition(lambda self: self.held)
    @rule(nbytes=st.integers(1, 100))
    def spend(self, nbytes: int) -> None:
        charge = self.held.pop()
        with self.buffer_pool.spend(charge):
            waited = self.buffer_pool.on_free is not None
            expected = nbytes <= min(self.buffer_pool.available, charge if waited else 250)
            assert self.buffer_pool.try_take(nbytes) is expected
        if expected:
            self.held.append(nbytes)

    @precondition(lambda self: self.held)
    @rule()
    def give_back(self) -> None:
        before, waited = self.came_free, self.buffer_pool.on_free is not None
        self.buffer_pool.give_back(self.held.pop())
        assert self.came_free == before + waited

    @invariant()
    def adds_up(self) -> None:
        assert self.buffer_pool.available == 100 - sum(self.held)
        assert self.buffer_pool.available >= -self.forced


TestBudgeting = Budgeting.TestCase
