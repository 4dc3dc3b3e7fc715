"""The table of the transactional producer's states."""

from __future__ import annotations

import pytest

from kafkaclient.producer.transactions.states import TRANSITIONS, TransactionState

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
