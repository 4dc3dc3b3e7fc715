"""The errors that records fail with: what happened, where, and whether the record may have been
written (:func:`with_verdict`).

``ProducerBatch.maybe_written`` is the evidence of earlier attempts. ``sender/responses.py`` keeps
it, by ``ProducerBatch.mark_uncertain``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import (
    AuthenticationError,
    DeliveryTimeoutError,
    KafkaError,
    RecordTooLargeError,
)
from kafkaclient.producer.batches.partition_queue import QueueState

if TYPE_CHECKING:
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.wire.produce import PartitionResult

_TOPIC_DENIED, _CLUSTER_DENIED = 29, 31
_NAMED = 3  # rejected records that an error names


def with_verdict(error: KafkaError, batch: ProducerBatch) -> KafkaError:
    """The error for the batch's records, which says whether these may have been written: an attempt
    ended without a clear answer, or is still on the wire. Several batches may share ``error``."""
    if error.maybe_written or not _may_be_in_log(batch):
        return error
    error = error.for_one()
    error.maybe_written = True
    return error


def _may_be_in_log(batch: ProducerBatch) -> bool:
    """Whether an earlier attempt may have written the batch, or the attempt on the wire may."""
    return batch.in_flight or batch.maybe_written or batch.maybe_elsewhere


def rejection(batch: ProducerBatch, answer: PartitionResult, node_id: int) -> KafkaError:
    """The error that broker ``node_id`` has answered for the batch."""
    code, topic = answer.error_code, batch.result.topic
    operation = "IdempotentWrite" if code == _CLUSTER_DENIED else "Write"
    advice = denied(code, operation, topic if code == _TOPIC_DENIED else "")
    what = f"{batch.count} records to {batch.queue.tp} on broker {node_id}"
    if batch.atomic and answer.record_errors:  # the others fail with the rejected ones
        rejected = [
            f"record {index}" + (f" ({message})" if message else "")
            for index, message in answer.record_errors[:_NAMED]
        ]
        more = len(answer.record_errors) - len(rejected)
        what += f", rejected for {', '.join(rejected)}" + (f" and {more} more" if more else "")
    error = broker_error(code, what, answer.error_message, advice=advice)
    error.refuses_record = batch.count == 1
    return error


def rejected_records(answer: PartitionResult, batch: ProducerBatch) -> dict[int, KafkaError]:
    """The broker's errors for single records (KIP-467), by their index in the batch."""
    found: dict[int, KafkaError] = {}
    for index, message in answer.record_errors:
        if 0 <= index < batch.count:
            what = f"a record to {batch.queue.tp}"
            error = broker_error(answer.error_code, what, message or answer.error_message)
            error.refuses_record = True
            found[index] = error
    return found


def too_large(batch: ProducerBatch, error: KafkaError) -> RecordTooLargeError:
    """The error for a record that is larger than the topic allows."""
    known = "it was not written. Raise the topic's limit or send less at a time."
    if batch.maybe_written:
        known = "an earlier attempt ended without an answer, so it may have been written."
    return _record_too_large(
        error,
        f"{batch.count} records to {batch.queue.tp} make a batch of {batch.size} bytes, more than "
        f"the topic's max.message.bytes allows ({error}); {known}",
    )


def split_after_uncertain_write(batch: ProducerBatch, error: KafkaError) -> RecordTooLargeError:
    """The error for a part of a batch that may have been written as a whole."""
    return _record_too_large(
        error,
        f"{batch.count} records to {batch.queue.tp} were part of a batch that an attempt without "
        "an answer may have written before the topic's max.message.bytes was lowered. Sent again "
        f"in parts, the broker did not take them ({error}): most likely they were written.",
    )


def _record_too_large(error: KafkaError, message: str) -> RecordTooLargeError:
    too_large = RecordTooLargeError(message)
    too_large.code = error.code
    return too_large


_WAITING = {
    QueueState.IDLE: "waited for its turn",
    QueueState.LINGER: "waited for its turn",
    QueueState.BACKOFF: "waited for its retry",
    QueueState.BLOCKED: "waited for earlier batches of its partition, or for a producer id",
    QueueState.SEALING: "waited to be compressed",
    QueueState.LEADERLESS: "waited for {whom}",
    QueueState.READY: "waited for {whom} to take requests",
}


def delivery_timeout(
    batch: ProducerBatch, age: float, limit: float, cause: KafkaError | None
) -> DeliveryTimeoutError:
    """The error for a batch that was not acknowledged in time: what it waited for, why, and whether
    it may have been written. ``age`` and ``limit`` are in seconds; ``cause`` is the last error."""
    queue = batch.queue
    if not isinstance(cause, AuthenticationError):  # it is why there was no further attempt
        cause = batch.last_error or cause
    state = "was on its way to {whom}" if batch.in_flight else _WAITING[queue.state]
    error = DeliveryTimeoutError(
        f"{batch.count} records to {queue.tp} were not acknowledged within "
        f"delivery.timeout.ms={limit * 1000:.0f}: after {age:.3f} s and {batch.attempts} attempts "
        f"the batch {state.format(whom=queue.waits_for)}; last error: {cause or 'none'}. "
        + (
            "It may have been written nevertheless."
            if _may_be_in_log(batch)
            else "It has not been written; it can be sent again."
        )
    )
    error.__cause__ = cause
    return error
