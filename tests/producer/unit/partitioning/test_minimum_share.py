"""How little a slow broker's partitions may get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.producer.partitioning.fair_share import MinimumShare


def _any(_leader: int) -> bool:
    return True


def _floor(fraction: float, partitions: int = 3, batch: int = 100) -> MinimumShare:
    floor = MinimumShare(fraction, batch)
    floor.update({p: [p] for p in range(partitions)})
    return floor


def _run(floor: MinimumShare, records: int, *, late: int = 1) -> float:
    """Records of 10 bytes; those that are owed to nobody go to the partition ``late``. The share
    of partition 0."""
    got = 0
    for _ in range(records):
        partition = floor.most_underserved(_any)
        got += partition == 0
        floor.add(late if partition is None else partition, 10)
    return got / records


@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_a_partition_that_gets_nothing_else_gets_its_floor(fraction: float) -> None:
    share = _run(_floor(fraction), 20_000)
    assert share == pytest.approx(fraction / 3, rel=0.1)


def test_no_floor() -> None:
    assert _run(_floor(0.0), 1000) == 0.0


def test_nobody_is_owed_anything_at_first() -> None:
    floor = _floor(0.5)
    for _ in range(25):  # four batches of 100 bytes at six bytes each
        assert floor.most_underserved(_any) is None
        floor.add(1, 100)
    assert floor.most_underserved(_any) == 0
    assert floor.is_below(0, 16)
    assert not floor.is_below(0, 17)


def test_who_gets_enough_is_never_owed() -> None:
    floor = _floor(0.5)
    for n in range(3000):
        assert floor.most_underserved(_any) is None
        floor.add(n % 3, 100)


def test_what_is_still_owed_after_a_turn_is_forgotten() -> None:
    floor = _floor(0.5)
    for _ in range(1000):
        floor.add(1, 100)
        floor.add(2, 100)
    assert floor.is_below(0, 10_000)
    floor.write_off(0)
    floor.write_off(9)
    assert not floor.is_below(0)
    floor.add(1, 100)
    assert floor.is_below(0, 16)


def test_only_brokers_that_are_free_are_looked_at() -> None:
    floor = MinimumShare(0.5, 100)
    floor.update({5: [0, 1], 6: [2, 3]})
    for _ in range(33):
        floor.add(3, 100)
    assert floor.most_underserved(_any) == 0
    assert floor.most_underserved(lambda leader: leader == 6) == 2
    assert floor.most_underserved(lambda _: False) is None
    assert floor.is_below(0)
    assert not floor.is_below(3)
    assert not floor.is_below(9)


def test_partitions_that_come_and_go() -> None:
    floor = _floor(1.0, partitions=2)
    floor.update({0: [0, 2], 1: [1]})
    floor.add(7, 100)  # of no concern
    floor.update({1: [1], 2: [4]})
    for _ in range(100):
        floor.add(4, 100)
    assert floor.most_underserved(_any) == 1
    floor.update({1: [1, 2]})
    assert floor.most_underserved(_any) is None, "one broker: nobody is slower than another"
    floor.update({})
    assert floor.most_underserved(_any) is None
    assert "total" in repr(floor)


@given(
    st.sampled_from([0.2, 0.5, 1.0]),
    st.integers(2, 6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400), st.booleans()), max_size=200),
)
def test_what_is_owed_and_saved_is_bounded(
    fraction: float, partitions: int, steps: list[tuple[int, int, bool]]
) -> None:
    floor = _floor(fraction, partitions)
    for partition, nbytes, heed in steps:
        lowest = floor.most_underserved(_any)
        due, first = min((due, p) for p, due in floor._due.items())
        assert lowest == (first if due < floor._total else None)
        floor.add(partition if lowest is None or not heed else lowest, nbytes)
        span = 400 * partitions / fraction
        assert all(due - floor._total <= 4 * span for due in floor._due.values())
