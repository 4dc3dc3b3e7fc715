from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.telemetry import BatchRow

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = BatchRow(
    client_id="me",
    topic="t",
    partition=0,
    broker=1,
    records=10,
    bytes=1000,
    attempts=1,
    created_s=0.25,
    bound_s=0.5,
    sent_s=0.5,
    acknowledged_s=1.0,
    queued_batches=0,
    queued_bytes=0,
    in_flight=2,
    window=5,
    bound_by="late",
    error=None,
)


@pytest.fixture
def row() -> Callable[..., BatchRow]:
    """``row(partition=3)``: a batch's row with the given values changed."""

    def of(**facts: Any) -> BatchRow:
        return ROW._replace(**facts)

    return of
