"""A finished batch, as a producer hands it to telemetry."""

from __future__ import annotations

from typing import Any

from kafkaclient.hooks import FinishedBatch

_BATCH = FinishedBatch(
    topic="t",
    partition=0,
    broker=1,
    records=10,
    bytes=1000,
    attempts=1,
    base_offset=7,
    created_s=100.25,
    bound_s=100.5,
    sent_s=100.5,
    done_s=101.0,
    queued_batches=0,
    queued_bytes=0,
    in_flight=2,
    window=5,
    bound_by="late",
    error=None,
)


def batch(**facts: Any) -> FinishedBatch:
    """``batch(partition=3)``: a finished batch with the given facts changed."""
    return _BATCH._replace(**facts)
