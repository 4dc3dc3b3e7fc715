"""What follows from the error codes of a coordinator."""

from __future__ import annotations

import pytest

from kafkaclient.broker_errors import BROKER_ERRORS
from kafkaclient.cluster.coordinator import CallOutcome, outcome_of


def test_only_what_is_about_who_may_write_is_fatal() -> None:
    fatal = {code for code in BROKER_ERRORS if outcome_of(code) is CallOutcome.FATAL}
    assert fatal == {31, 47, 49, 50, 53, 90}


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, CallOutcome.DONE),
        (3, CallOutcome.RETRY),
        (7, CallOutcome.RELOCATE),
        (14, CallOutcome.RETRY),
        (15, CallOutcome.RELOCATE),
        (16, CallOutcome.RELOCATE),
        (22, CallOutcome.ABORTABLE),
        (25, CallOutcome.ABORTABLE),
        (29, CallOutcome.ABORTABLE),
        (30, CallOutcome.ABORTABLE),
        (48, CallOutcome.ABORTABLE),
        (49, CallOutcome.FATAL),
        (51, CallOutcome.RETRY),
        (88, CallOutcome.RETRY),
        (120, CallOutcome.ABORTABLE),
        (-1, CallOutcome.RETRY),
        (9999, CallOutcome.ABORTABLE),
    ],
)
def test_outcomes(code: int, outcome: CallOutcome) -> None:
    assert outcome_of(code) is outcome
