"""Placement: every way there is, is found, and none that breaks a limit."""

from __future__ import annotations

import time
from collections import Counter
from functools import cache
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.admin.placement import Start, assign, is_feasible, place


def solve(capacities, partitions, factor, racks=None) -> bool:
    """Whether there is a placement, by trying all of them. With racks: one that has every partition
    in as many of the racks with room as it has replicas for."""
    brokers = [broker for broker, room in capacities.items() if room > 0]
    wanted = min(factor, len({racks[broker] for broker in brokers})) if racks else 0

    @cache
    def rest(left: tuple[int, ...], partitions: int) -> bool:
        if partitions == 0:
            return True
        able = [n for n, room in enumerate(left) if room]
        seen = set()
        for chosen in combinations(able, factor):
            if racks and len({racks[brokers[n]] for n in chosen}) < wanted:
                continue
            after = tuple(room - (n in chosen) for n, room in enumerate(left))
            # Brokers of one rack with as much room are as good as one another.
            kind = tuple(
                sorted((racks[b] if racks else "", r) for b, r in zip(brokers, after, strict=True))
            )
            if kind not in seen and rest(after, partitions - 1):
                return True
            seen.add(kind)
        return False

    return rest(tuple(min(capacities[broker], partitions) for broker in brokers), partitions)


def check(placement, brokers, capacities, partitions, factor) -> None:
    assert len(placement) == partitions
    loads = Counter()
    for row in placement:
        assert len(row) == len(set(row)) == factor
        assert set(row) <= brokers.keys()
        loads.update(row)
    assert all(loads[broker] <= max(room, 0) for broker, room in capacities.items())


def case(seed: int):
    """A random task of which about as many can be solved as not."""
    rng = Random(seed)
    count = rng.randint(1, 6)
    partitions, factor = rng.randint(1, 6), rng.randint(1, min(count, 4))
    kinds = rng.choice((0, 0, 1, 2, 3, 4))
    brokers = {b: f"r{rng.randrange(kinds)}" if kinds else None for b in range(count)}
    mean = partitions * factor / count
    room = {b: max(0, round(rng.gauss(1.35 * mean, 0.8 * mean))) for b in brokers}
    return brokers, room, partitions, factor


def compare(seeds) -> Counter:
    """Places each case and solves it exactly; counts what came of them."""
    seen = Counter()
    for seed in seeds:
        brokers, room, partitions, factor = case(seed)
        found = place(brokers, partitions, factor, capacities=room, rng=Random(seed))
        assert (found is not None) is solve(room, partitions, factor), seed
        if found is None:
            seen["impossible"] += 1
            continue
        check(found, brokers, room, partitions, factor)
        if brokers[0] is None:
            seen["without racks"] += 1
            continue
        able = {rack for broker, rack in brokers.items() if room[broker]}
        spread = all(len({brokers[b] for b in row}) == min(factor, len(able)) for row in found)
        assert spread is solve(room, partitions, factor, brokers), seed
        seen["spread" if spread else "not spread"] += 1
    return seen


def test_ten_thousand_random_cases_against_an_exact_solver() -> None:
    seen = compare(range(10_000))
    assert len(seen) == 4
    assert min(seen.values()) > 300, seen


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_whatever_the_size(data) -> None:
    count = data.draw(st.integers(1, 12))
    factor = data.draw(st.integers(1, min(count, 6)))
    partitions = data.draw(st.integers(1, 30))
    rack = st.one_of(st.none(), st.sampled_from("abcde"))
    brokers = {broker: data.draw(rack) for broker in range(count)}
    room = {broker: data.draw(st.integers(-2, partitions * 2)) for broker in brokers}
    seed = data.draw(st.integers(0, 99))
    found = place(brokers, partitions, factor, capacities=room, rng=Random(seed))
    assert (found is not None) is is_feasible(room.values(), partitions, factor)
    if found is not None:
        check(found, brokers, room, partitions, factor)
        assert found == place(brokers, partitions, factor, capacities=room, rng=Random(seed))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_brokers_that_are_down_or_without_a_rack(data) -> None:
    """Every placement that needs the brokers that are down is found, and only then they get
    replicas, never the first."""
    count = data.draw(st.integers(1, 6))
    down = list(range(count, count + data.draw(st.integers(0, 4))))
    factor = data.draw(st.integers(1, count + len(down)))
    partitions = data.draw(st.integers(1, 12))
    brokers = {b: data.draw(st.sampled_from((None, "a", "b"))) for b in range(count)}
    everyone = brokers | dict.fromkeys(down)
    room = {b: data.draw(st.integers(0, partitions * 2)) for b in everyone}
    rng = Random(data.draw(st.integers(0, 99)))
    found = place(brokers, partitions, factor, capacities=room, rng=rng, down=down)
    up = min(factor, count)
    possible = is_feasible([room[b] for b in brokers], partitions, up)
    possible &= is_feasible([room[b] for b in down], partitions, factor - up)
    assert (found is not None) is possible
    if found is not None:
        check(found, everyone, room, partitions, factor)
        assert all(set(row[:up]) <= brokers.keys() for row in found)
        assert all(set(row[up:]) <= set(down) for row in found)


def test_without_limits_it_is_kip_36s() -> None:
    brokers = dict.fromkeys(range(5))
    for start in (Start(0, 0), Start(3, 1)):
        found = place(brokers, 12, 3, capacities={}, rng=Random(1), start=start)
        assert found == assign(brokers, 12, 3, start)
    roomy = dict.fromkeys(brokers, 1000)
    assert place(brokers, 12, 3, capacities=roomy, rng=Random(1), start=Start(0, 0)) == assign(
        brokers, 12, 3, Start(0, 0)
    )


@pytest.mark.parametrize("start", [Start(a, b) for a in range(3) for b in range(3)])
def test_the_kips_own_example_that_passing_over_full_brokers_misses(start) -> None:
    """10, 20 and 30 hosted, a limit of 40: 30 partitions with two replicas each fill everything."""
    room = {1: 30, 2: 20, 3: 10}
    found = place(dict.fromkeys(room), 30, 2, capacities=room, rng=Random(1), start=start)
    check(found, dict.fromkeys(room), room, 30, 2)
    assert Counter(b for row in found for b in row) == room


def test_leaders_take_turns_within_limits() -> None:
    room = dict.fromkeys(range(6), 10) | {0: 5}
    found = place(dict.fromkeys(room), 18, 3, capacities=room, rng=Random(4))
    leaders = Counter(row[0] for row in found)
    assert max(leaders.values()) <= 5


def test_loads_are_as_even_as_the_room_allows() -> None:
    room = dict.fromkeys(range(6), 100) | {0: 2}
    found = place(dict.fromkeys(room), 20, 3, capacities=room, rng=Random(4))
    loads = Counter(b for row in found for b in row)
    assert loads[0] == 2
    assert {loads[b] for b in range(1, 6)} <= {11, 12}


def test_a_full_rack_is_done_without() -> None:
    brokers = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    room = {0: 4, 1: 4, 2: 4, 3: 4, 4: 0}
    found = place(brokers, 4, 3, capacities=room, rng=Random(0))
    check(found, brokers, room, 4, 3)
    assert all({brokers[b] for b in row} == {"a", "b"} for row in found)


@pytest.mark.parametrize("room", [{}, {0: 9, 1: 9, 2: 9, 3: 9}, {0: 3, 1: 3, 2: 3, 3: 3}])
def test_brokers_without_a_rack_are_one_rack_among_racks(room) -> None:
    brokers = {0: "a", 1: "a", 2: None, 3: None}
    found = place(brokers, 6, 2, capacities=room, rng=Random(0))
    check(found, brokers, room, 6, 2)
    assert all(len({brokers[b] for b in row}) == 2 for row in found)


@pytest.mark.parametrize("racks", [0, 7])
@pytest.mark.full
def test_200_brokers_and_200_000_replicas_are_quick(racks) -> None:
    """The target is 10 s; with room for every replica and hardly one more."""
    brokers = {b: f"r{b % racks}" if racks else None for b in range(200)}
    room = {b: 1000 + (b % 21 - 10) * 10 + 3 for b in brokers}
    began = time.process_time()
    found = place(brokers, 66_667, 3, capacities=room, rng=Random(1))
    assert time.process_time() - began < 10
    check(found, brokers, room, 66_667, 3)
    if racks:
        assert all(len({brokers[b] for b in row}) == 3 for row in found)
