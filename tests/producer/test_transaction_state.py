"""The tables of the transactional producer: states, and the meaning of a coordinator's answer."""

from __future__ import annotations

import pytest

from kafkaclient.broker_errors import BROKER_ERRORS
from kafkaclient.producer.transactions.states import (
    TRANSITIONS,
    Outcome,
    TransactionState,
    outcome_of,
)

S = TransactionState


def test_every_state_has_its_ways_out() -> None:
    assert TRANSITIONS.keys() == set(S)
    assert all(ways <= set(S) - {state} for state, ways in TRANSITIONS.items())


def test_fatal_is_possible_from_everywhere_and_final() -> None:
    assert TRANSITIONS[S.FATAL] == frozenset()
    assert all(S.FATAL in ways for state, ways in TRANSITIONS.items() if state is not S.FATAL)


@pytest.mark.parametrize("state", [state for state in S if state is not S.FATAL])
def test_there_is_a_way_back_to_work(state: TransactionState) -> None:
    reached, todo = {state}, [state]
    while todo:
        fresh = TRANSITIONS[todo.pop()] - reached
        reached |= fresh
        todo += fresh
    assert {S.READY, S.IN_TRANSACTION} <= reached


def test_nothing_is_committed_after_an_error() -> None:
    """What failed has to be aborted first: there is no other way to READY."""
    assert TRANSITIONS[S.ABORTABLE_ERROR] == {S.ABORTING, S.FATAL}


def test_only_what_is_about_who_may_write_is_fatal() -> None:
    fatal = {code for code in BROKER_ERRORS if outcome_of(code) is Outcome.FATAL}
    assert fatal == {31, 47, 50, 53, 90}


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, Outcome.DONE),
        (3, Outcome.RETRY),
        (7, Outcome.RELOCATE),
        (14, Outcome.RETRY),
        (15, Outcome.RELOCATE),
        (16, Outcome.RELOCATE),
        (22, Outcome.ABORTABLE),
        (25, Outcome.ABORTABLE),
        (29, Outcome.ABORTABLE),
        (30, Outcome.ABORTABLE),
        (48, Outcome.ABORTABLE),
        (49, Outcome.ABORTABLE),
        (51, Outcome.RETRY),
        (88, Outcome.RETRY),
        (120, Outcome.ABORTABLE),
        (-1, Outcome.RETRY),
        (9999, Outcome.ABORTABLE),
    ],
)
def test_outcomes(code: int, outcome: Outcome) -> None:
    assert outcome_of(code) is outcome
