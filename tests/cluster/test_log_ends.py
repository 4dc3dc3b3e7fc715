"""When a log counts as shorter than it was known to be."""

from __future__ import annotations

import asyncio
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.cluster.topics import ends_from
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition

P0 = TopicPartition("t", 0)
OFFSETS = st.integers(0, 20)
ANSWERS = st.lists(st.tuples(OFFSETS, OFFSETS).map(sorted), min_size=1, max_size=4)


@given(known=OFFSETS, answers=ANSWERS, read_committed=st.booleans())
def test_an_end_below_the_known_offset_needs_three_answers(known, answers, read_committed):
    """Random answers (last stable offset, high watermark); the last one is repeated."""
    asked: list[bool] = []
    given_answers: list[int] = []
    left = deque(answers)

    async def fetch(partitions, *, read_committed=True):
        assert set(partitions) == {P0}
        asked.append(read_committed)
        stable, high = left[0]
        if len(left) > 1 and (not read_committed or asked[0] is False):
            left.popleft()
        given_answers.append(stable if read_committed else high)
        return {P0: given_answers[-1]}

    @virtual_time
    async def ask():
        began = asyncio.get_running_loop().time()
        found = await ends_from(fetch, {P0: known}, read_committed=read_committed)
        return found[P0], asyncio.get_running_loop().time() - began

    end, took_s = ask()
    if end < known:
        assert took_s >= 2
        assert len(given_answers) == (6 if read_committed else 3)
        assert all(each < known for each in given_answers)
    elif given_answers[-1] >= known and asked[-1] is read_committed:
        assert end == given_answers[-1]
    else:  # an open transaction begins before the known offset
        assert end == known
        assert given_answers[-1] >= known
    if took_s == 0:
        assert len(given_answers) <= 2


@virtual_time
async def test_a_partition_without_answer_is_left_out():
    async def fetch(partitions, *, read_committed=True):
        return {}

    assert await ends_from(fetch, {P0: 5}) == {}
