"""The verdict on every error code that Kafka has."""

from __future__ import annotations

import pytest

from kafkaclient.broker_errors import BROKER_ERRORS, broker_error
from kafkaclient.producer.sender.responses import (
    AMBIGUOUS_CODES,
    REFRESH_CODES,
    ErrorAction,
    action_for,
    is_ambiguous,
)

RETRY = {
    2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88,
    89, 100, 103, 106, 122, 123,
}  # fmt: skip
FAIL = {
    -1, 1, 4, 8, 11, 12, 17, 18, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36,
    37, 38, 39, 40, 42, 43, 44, 48, 50, 52, 53, 54, 55, 57, 58, 60, 61, 62, 63, 64, 65, 66,
    67, 68, 69, 73, 76, 77, 79, 81, 82, 85, 86, 87, 91, 92, 93, 94, 95, 96, 97, 98, 99, 101,
    102, 104, 105, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121,
    124, 125, 126, 127, 128, 129,
}  # fmt: skip
EXPECTED = {
    0: ErrorAction.DONE,
    10: ErrorAction.SPLIT,
    45: ErrorAction.RESEQUENCE,
    46: ErrorAction.DONE,
    47: ErrorAction.RESEQUENCE,
    59: ErrorAction.RESEQUENCE,
    49: ErrorAction.FATAL,
    90: ErrorAction.FATAL,
    **dict.fromkeys(RETRY, ErrorAction.RETRY),
    **dict.fromkeys(FAIL, ErrorAction.FAIL),
}


def test_the_table_is_complete() -> None:
    assert set(EXPECTED) == {0, *BROKER_ERRORS}
    assert not RETRY & FAIL


@pytest.mark.parametrize("code", sorted(EXPECTED))
def test_verdict(code: int) -> None:
    assert action_for(code) is EXPECTED[code]


def test_a_code_unknown_to_this_client_fails_the_batch() -> None:
    assert action_for(31999) is ErrorAction.FAIL


def test_what_is_retried_is_what_kafka_calls_retriable() -> None:
    retried = {code for code, verdict in EXPECTED.items() if verdict is ErrorAction.RETRY}
    assert retried == {code for code in BROKER_ERRORS if broker_error(code).retriable}


def test_codes_after_which_the_batch_may_be_in_the_log() -> None:
    """The broker failed anywhere (-1), was not heard (13), waited in vain (7, 20), or lost the
    partition while it waited for the replicas (3, 6, 56)."""
    assert frozenset({-1, 3, 6, 7, 13, 20, 56}) == AMBIGUOUS_CODES
    assert {code for code in range(-1, 200) if is_ambiguous(code)} >= AMBIGUOUS_CODES
    assert not is_ambiguous(10)
    assert is_ambiguous(31999), "a code that this client does not know says nothing"


def test_codes_that_mean_old_metadata() -> None:
    """Java's InvalidMetadataException and its subclasses, and the leader epochs' errors."""
    assert frozenset({3, 5, 6, 13, 56, 72, 74, 75, 100, 103}) == REFRESH_CODES
    assert all(action_for(code) is ErrorAction.RETRY for code in REFRESH_CODES)
