"""The limit of a topic's batches: learnt at once, unlearnt in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.producer.batches.topic_buffer import BatchLimit

NONE = 2**31 - 1


def test_a_limit_rises_again() -> None:
    limit = BatchLimit()
    assert limit.at(0.0) == NONE
    limit.lower(30_000, 100.0)
    assert limit.at(100.0) == limit.at(399.0) == 30_000
    assert limit.at(400.0) == 60_000
    limit.lower(70_000, 410.0)
    assert limit.at(410.0) == 60_000, "it was less"
    assert limit.at(705.0) == 60_000, "it counts from the last time"
    assert limit.at(710.0) == 120_000
    assert limit.at(1e9) == NONE
    limit.lower(5, 1e9)
    limit.forget()
    assert limit.at(0.0) == NONE


@given(st.lists(st.tuples(st.integers(100, 10**7), st.floats(0, 2000)), max_size=30))
def test_never_above_what_was_just_refused(steps: list[tuple[int, float]]) -> None:
    limit, now = BatchLimit(), 0.0
    for size, wait in steps:
        now += wait
        before = limit.at(now)
        limit.lower(size, now)
        assert limit.at(now) == min(before, size)
    assert limit.at(now + 10_000) == NONE
