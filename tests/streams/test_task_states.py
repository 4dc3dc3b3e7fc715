"""The table of a task's states."""

from __future__ import annotations

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    RecordTooLargeError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionTimeoutError,
)
from kafkaclient.streams.tasks import (
    TRANSITIONS,
    TaskEvent,
    TaskState,
    is_recoverable,
)

S, E = TaskState, TaskEvent


def test_every_open_state_accepts_assignments_and_revocation() -> None:
    for state in S:
        for event in (E.ASSIGNED_ACTIVE, E.ASSIGNED_STANDBY, E.REVOKED):
            assert ((state, event) in TRANSITIONS) is (state is not S.CLOSED)


def test_only_restoring_leads_to_running() -> None:
    """Whatever happens: nothing is processed on a state that may not be complete."""
    entries = {key for key, state in TRANSITIONS.items() if state is S.RUNNING}
    assert entries == {(S.RESTORING, E.RESTORED), (S.RUNNING, E.ASSIGNED_ACTIVE)}


def test_failed_and_lost_tasks_stop_running() -> None:
    for (state, event), after in TRANSITIONS.items():
        if event in (E.FAILED, E.LOST, E.STOPPED):
            assert state in (S.RESTORING, S.RUNNING)
            assert after is (S.RESTORING if event is E.FAILED else S.STANDBY)


def caused(error: KafkaError) -> TransactionAbortableError:
    abortable = TransactionAbortableError("it failed")
    abortable.__cause__ = error
    return abortable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (broker_error(47), True),  # INVALID_PRODUCER_EPOCH
        (broker_error(90), True),  # PRODUCER_FENCED
        (caused(broker_error(90)), True),
        (caused(broker_error(22)), True),  # ILLEGAL_GENERATION
        (caused(broker_error(25)), True),  # UNKNOWN_MEMBER_ID
        (caused(broker_error(27)), True),  # REBALANCE_IN_PROGRESS
        (caused(RequestTimedOutError("late")), True),
        (TransactionAbortableError("timed out"), True),
        (TransactionTimeoutError("late"), True),
        (caused(RecordTooLargeError("too large")), False),
        (caused(broker_error(29)), False),  # TOPIC_AUTHORIZATION_FAILED
        (RecordTooLargeError("too large"), False),
        (broker_error(16), True),  # NOT_COORDINATOR
        (broker_error(25), True),  # UNKNOWN_MEMBER_ID
        (broker_error(30), False),  # GROUP_AUTHORIZATION_FAILED
        (MetadataTimeoutError("no broker answers"), True),
        (KafkaTimeoutError("late"), True),
        (ZeroDivisionError(), False),
    ],
    ids=repr,
)
def test_errors_after_which_a_task_can_go_on(error: Exception, expected: bool) -> None:
    assert is_recoverable(error) is expected
