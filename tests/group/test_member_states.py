"""The table of a group member's states, against an independent list of what the rules say."""

from __future__ import annotations

from itertools import product

import pytest

from kafkaclient.group.ownership import (
    TRANSITIONS,
    Loss,
    MemberEvent,
    MemberState,
    Step,
    error_event,
)

J, S, T = MemberState.JOINING, MemberState.SYNCING, MemberState.STABLE
F, R, L = MemberState.FENCED, MemberState.REFUSED, MemberState.LEFT
E = MemberEvent
KEPT, PARTITIONS, ALL = Loss.NOTHING, Loss.PARTITIONS, Loss.IDENTITY

EXPECTED = {
    (J, E.JOINED): (S, KEPT),
    (J, E.JOINED_LATE): (S, PARTITIONS),
    (J, E.ID_GIVEN): (J, KEPT),
    (J, E.EVICTED): (J, ALL),
    (J, E.FENCED): (F, ALL),
    (J, E.REFUSED): (R, ALL),
    (J, E.LEFT): (L, KEPT),
    (S, E.SYNCED): (T, KEPT),
    (S, E.REBALANCE): (J, KEPT),
    (S, E.GENERATION_OVER): (J, KEPT),
    (S, E.EVICTED): (J, ALL),
    (S, E.FENCED): (F, ALL),
    (S, E.REFUSED): (R, ALL),
    (S, E.LEFT): (L, KEPT),
    (T, E.REBALANCE): (J, KEPT),
    (T, E.GENERATION_OVER): (J, PARTITIONS),
    (T, E.EVICTED): (J, ALL),
    (T, E.FENCED): (F, ALL),
    (T, E.REFUSED): (R, ALL),
    (T, E.LEFT): (L, KEPT),
    (F, E.LEFT): (L, KEPT),
    (R, E.LEFT): (L, KEPT),
    (L, E.LEFT): (L, KEPT),
}


@pytest.mark.parametrize(("state", "event"), list(product(MemberState, MemberEvent)))
def test_every_pair_of_state_and_event(state: MemberState, event: MemberEvent) -> None:
    expected = EXPECTED.get((state, event))
    assert TRANSITIONS.get((state, event)) == (None if expected is None else Step(*expected))


def test_a_member_that_is_over_only_leaves() -> None:
    assert {event for state, event in TRANSITIONS if state in (F, R, L)} == {E.LEFT}


def test_an_identity_is_lost_exactly_where_the_coordinator_does_not_know_it() -> None:
    lost = {event for (_, event), step in TRANSITIONS.items() if step.loss is ALL}
    assert lost == {E.EVICTED, E.FENCED, E.REFUSED}


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (22, E.GENERATION_OVER),
        (23, E.REFUSED),
        (25, E.EVICTED),
        (26, E.REFUSED),
        (27, E.REBALANCE),
        (30, E.REFUSED),
        (79, E.ID_GIVEN),
        (81, E.REFUSED),
        (82, E.FENCED),
        (-1, E.REFUSED),
    ],
)
def test_the_error_event_each_code(code: int, event: MemberEvent) -> None:
    assert error_event(code) is event
