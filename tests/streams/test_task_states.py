"""The table of a task's states."""

from __future__ import annotations

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    KafkaError,
    RecordTooLargeError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from kafkaclient.streams.runtime.task_states import TRANSITIONS, TaskEvent, TaskState, event_for

S, E = TaskState, TaskEvent


def test_every_open_state_accepts_assignments_and_revocation() -> None:
    for state in S:
        for event in (E.ASSIGNED_ACTIVE, E.ASSIGNED_STANDBY, E.REVOKED):
            assert ((state, event) in TRANSITIONS) is (state is not S.CLOSED)


def test_only_restoring_leads_to_running() -> None:
    """Whatever happens: nothing is processed on a state that may not be complete."""
    entries = {key for key, state in TRANSITIONS.items() if state is S.RUNNING}
    assert entries == {(S.RESTORING, E.RESTORED), (S.RUNNING, E.ASSIGNED_ACTIVE)}


def test_failed_and_migrated_tasks_stop_running() -> None:
    for (state, event), after in TRANSITIONS.items():
        if event in (E.FAILED, E.MIGRATED, E.STOPPED):
            assert state in (S.RESTORING, S.RUNNING)
            assert after is (S.RESTORING if event is E.FAILED else S.STANDBY)


def caused(error: KafkaError) -> TransactionAbortableError:
    abortable = TransactionAbortableError("it failed")
    abortable.__cause__ = error
    return abortable


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (broker_error(47), E.MIGRATED),  # INVALID_PRODUCER_EPOCH
        (broker_error(90), E.MIGRATED),  # PRODUCER_FENCED
        (caused(broker_error(90)), E.MIGRATED),
        (caused(broker_error(22)), E.FAILED),  # ILLEGAL_GENERATION
        (caused(broker_error(25)), E.FAILED),  # UNKNOWN_MEMBER_ID
        (caused(broker_error(27)), E.FAILED),  # REBALANCE_IN_PROGRESS
        (caused(RequestTimedOutError("late")), E.FAILED),
        (TransactionAbortableError("timed out"), E.FAILED),
        (TransactionTimeoutError("late"), E.FAILED),
        (caused(RecordTooLargeError("too large")), None),
        (caused(broker_error(29)), None),  # TOPIC_AUTHORIZATION_FAILED
        (RecordTooLargeError("too large"), None),
        (broker_error(16), E.FAILED),  # NOT_COORDINATOR
        (broker_error(25), E.FAILED),  # UNKNOWN_MEMBER_ID
        (broker_error(30), None),  # GROUP_AUTHORIZATION_FAILED
        (ZeroDivisionError(), None),
    ],
    ids=repr,
)
def test_events_of_errors(error: Exception, event: TaskEvent | None) -> None:
    assert event_for(error) is event
