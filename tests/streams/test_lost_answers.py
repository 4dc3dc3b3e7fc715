"""A rebalance in which any request or answer is lost, late or repeated ends with each partition
owned by one member."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.group_model import DISTURBING, EVENTS, Group


def play(rng: Random, steps: int, *, static: bool = True) -> Group:
    group = Group()
    for _ in range(rng.randrange(1, 4)):
        group.start(rng.randrange(3) if static else 1)
    weights = [1 if name in DISTURBING else 8 for name in EVENTS]
    for name in rng.choices(EVENTS, weights, k=steps):
        choice = rng.randrange(12)
        if name == "start" and not static:
            choice = 1
        getattr(group, name)(choice)
        group.check()
    group.settle()
    group.check()
    return group


def test_random_histories() -> None:
    for seed in range(300):
        group = play(Random(seed), 60)
        # Only a static member that restarts forgets what it was to give up.
        assert not group.timers_needed or group.restarts, f"seed {seed}"


@settings(max_examples=75, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 11)), max_size=60))
def test_histories(events: list[tuple[str, int]]) -> None:
    group = Group()
    group.start(1)
    group.start(2)
    group.settle()
    for name, choice in events:
        getattr(group, name)(choice)
        group.check()
    group.settle()


def test_a_static_member_that_restarts_before_it_has_given_up_tasks() -> None:
    """It gets its old assignment without a rebalance, and does not know of the tasks that it was
    to give up. The leader asks for another rebalance, at the latest after session.timeout.ms."""
    group = Group()
    group.start(0)
    group.settle()
    group.start(1)
    (static,) = (m for m in group.members if m.instance_id is not None)
    while not static.timer:  # its assignment lacks tasks that it owns
        group.round()
    group.restart(0)
    group.settle()
    assert group.timers_needed == 1
