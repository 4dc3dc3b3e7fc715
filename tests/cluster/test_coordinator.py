"""What follows from the error codes of a coordinator."""

from __future__ import annotations

import pytest

from kafkaclient.broker_errors import BROKER_ERRORS
from kafkaclient.cluster.coordinator import Outcome, outcome_of


def test_only_what_is_about_who_may_write_is_fatal() -> None:
    fatal = {code for code in BROKER_ERRORS if outcome_of(code) is Outcome.FATAL}
    assert fatal == {31, 47, 49, 50, 53, 90}


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
        (49, Outcome.FATAL),
        (51, Outcome.RETRY),
        (88, Outcome.RETRY),
        (120, Outcome.ABORTABLE),
        (-1, Outcome.RETRY),
        (9999, Outcome.ABORTABLE),
    ],
)
def test_outcomes(code: int, outcome: Outcome) -> None:
    assert outcome_of(code) is outcome
