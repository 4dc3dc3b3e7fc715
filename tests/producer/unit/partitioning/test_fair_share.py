"""Which partition is furthest behind."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.cluster.view import PartitionView, TopicView
from kafkaclient.producer.partitioning.fair_share import FairShare


def _topic(*leaders: int) -> TopicView:
    partitions = tuple(PartitionView(n, leader) for n, leader in enumerate(leaders))
    return TopicView("t", None, partitions)


def _spread(*leaders: int) -> FairShare:
    counter = count()
    fair_share = FairShare(lambda: next(counter))
    fair_share.update(_topic(*leaders))
    return fair_share


def _always(_partition: int) -> bool:
    return True


def test_equal_brokers_get_equal_bytes() -> None:
    fair_share = _spread(0, 1, 2, 0, 1, 2)
    for _ in range(600):
        partition = fair_share.pick({0, 1, 2}, _always)
        assert partition is not None
        fair_share.add(partition, 10)
    assert fair_share.bytes_given == [1000] * 6


def test_bytes_that_came_another_way_count_too() -> None:
    fair_share = _spread(0, 1)
    fair_share.add(0, 100)
    for _ in range(10):
        assert fair_share.pick({0, 1}, _always) == 1
        fair_share.add(1, 10)


def test_only_brokers_that_can_take_something_are_asked() -> None:
    fair_share = _spread(0, 1, -1, 1)
    assert {fair_share.pick({1}, _always) for _ in range(5)} <= {1, 3}
    assert fair_share.pick({7}, _always) is None
    assert fair_share.pick((), _always) is None
    assert fair_share.pick({0, 1}, lambda p: p == 3) == 3
    assert fair_share.pick({0, 1}, lambda _: False) is None
    assert set(fair_share.lanes) == {0, 1}


def test_who_becomes_faster_is_not_flooded() -> None:
    fair_share = _spread(0, 1)
    for _ in range(100):
        fair_share.add(0, 10)
    assert fair_share.bytes_given == [1000, 960]


def test_a_large_batch_is_forgotten_in_time() -> None:
    fair_share = _spread(0, 1)
    fair_share.add(0, 1000)
    for _ in range(100):
        fair_share.add(0, 10)
    assert fair_share.bytes_given == [2000, 1960]


def test_who_was_out_of_order_is_owed_nothing() -> None:
    fair_share = _spread(0, 1, 0, 2)
    for _ in range(3):
        fair_share.add(1, 10)
        fair_share.add(3, 10)
    fair_share.reset_to_average(0)
    assert fair_share.bytes_given == [30, 30, 30, 30]
    fair_share.reset_to_average(7)
    alone = _spread(0, 0)
    alone.add(0, 10)
    alone.reset_to_average(0)
    assert alone.bytes_given == [10, 0]


def test_a_topic_that_grows_and_leaders_that_move() -> None:
    fair_share = _spread(0, 1)
    for _ in range(10):
        fair_share.add(0, 10)
        fair_share.add(1, 10)
    fair_share.update(_topic(1, 1, 2))
    assert fair_share.bytes_given == [100, 100, 60]
    assert fair_share.pick({0, 1, 2}, _always) == 2
    assert fair_share.pick({0}, _always) is None
    fair_share.update(_topic(-1))
    assert fair_share.pick({0, 1, 2}, _always) is None


def test_only_partitions_led_in_the_rack_compete_while_there_are_any() -> None:
    fair_share = _spread(0, 1, 2, 3)
    view, everyone = _topic(0, 1, 2, 3), {0, 1, 2, 3}
    fair_share.update(view, frozenset({0, 2}))
    assert set(fair_share.lanes) == {0, 2}
    for _ in range(10):
        partition = fair_share.pick(everyone, _always)
        assert partition in {0, 2}
        fair_share.add(partition, 10)
    assert fair_share.bytes_given[0] == fair_share.bytes_given[2] == 50
    fair_share.update(_topic(0, 1, -1, 3), frozenset({0, 2}))
    assert fair_share.pick(everyone, _always) == 0
    fair_share.update(_topic(-1, 1, -1, 3), frozenset({0, 2}))
    assert fair_share.pick(everyone, _always) in {1, 3}
    fair_share.update(view, frozenset({0, 2}))
    assert set(fair_share.lanes) == {0, 2}
    fair_share.update(view, frozenset({9}))
    assert set(fair_share.lanes) == everyone, "nobody of the rack leads a partition"
    fair_share.update(view)
    assert set(fair_share.lanes) == everyone


@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=8),
    st.lists(
        st.tuples(st.sets(st.integers(0, 3)), st.integers(1, 500), st.integers(0, 255)), max_size=60
    ),
)
def test_the_pick_is_always_the_one_furthest_behind(
    leaders: list[int], steps: list[tuple[set[int], int, int]]
) -> None:
    """Among open partitions of free brokers; and nobody is ever further behind than is allowed."""
    fair_share = _spread(*leaders)
    for free, nbytes, closed in steps:

        def is_open(partition: int, closed: int = closed) -> bool:
            return not closed >> partition & 1

        candidates = [n for n, leader in enumerate(leaders) if leader in free and is_open(n)]
        picked = fair_share.pick(free, is_open)
        given_to = fair_share.bytes_given
        if not candidates:
            assert picked is None
            continue
        assert picked in candidates
        assert given_to[picked] == min(given_to[n] for n in candidates)
        fair_share.add(picked, nbytes)
        assert max(fair_share.bytes_given) - min(fair_share.bytes_given) <= 4 * 500


# --- cost: in draws, one for each entry that is made ----------------------------------------------


def _counted(*leaders: int) -> tuple[FairShare, list[int]]:
    draws: list[int] = []

    def draw() -> int:
        draws.append(0)
        return len(draws)

    fair_share = FairShare(draw)
    fair_share.update(_topic(*leaders))
    draws.clear()
    return fair_share, draws


def test_a_pick_costs_the_same_however_many_partitions_there_are() -> None:
    """Also while one partition gets so much by its key that the floor rises all the time."""
    for partitions in (6, 10_000):
        fair_share, draws = _counted(*[n % 3 for n in range(partitions)])
        looked: list[int] = []

        def is_open(partition: int, looked: list[int] = looked) -> bool:
            looked.append(partition)
            return partition != 5

        for _ in range(300):
            fair_share.add(5, 16384)
            picked = fair_share.pick({0, 1, 2}, is_open)
            assert picked not in (None, 5)
            fair_share.add(picked, 16384)
        assert len(draws) <= 3 * 300
        assert len(looked) <= 5 * 300


def test_a_leader_that_moves_costs_in_proportion_to_what_it_led() -> None:
    leaders = [n % 3 for n in range(3000)]
    fair_share, draws = _counted(*leaders)
    assert not fair_share.update(_topic(*leaders))
    assert draws == []
    leaders[4] = 2
    assert fair_share.update(_topic(*leaders, 0))
    assert len(draws) == 2, "one has moved, one is new"
    assert {n: len(led) for n, led in fair_share.competing.items()} == {0: 1001, 1: 999, 2: 1001}
    assert fair_share.update(_topic(*leaders[:2000]))
    assert len(draws) == 2
    assert sum(map(len, fair_share.competing.values())) == 2000


@given(st.lists(st.tuples(st.lists(st.integers(-1, 3), min_size=1, max_size=8), st.sets(
    st.integers(0, 3)), st.integers(0, 7), st.integers(0, 3)), max_size=12))  # fmt: skip
def test_following_step_by_step_ends_where_starting_anew_does(
    steps: list[tuple[list[int], set[int], int, int]],
) -> None:
    fair_share = _spread(0)
    for leaders, near, partition, forgiven in steps:
        before = fair_share.bytes_given
        fair_share.update(_topic(*leaders), frozenset(near))
        fresh = _spread()
        fresh.update(_topic(*leaders), frozenset(near))
        assert {n: sorted(led) for n, led in fair_share.competing.items()} == {
            n: sorted(led) for n, led in fresh.competing.items()
        }
        assert all(a == b for a, b in zip(before, fair_share.bytes_given, strict=False))
        fair_share.add(partition, 10)
        fair_share.reset_to_average(forgiven)
