"""The errors that records fail with, and the parts of a batch that was refused.

``ProducerBatch.maybe_written`` is the evidence of earlier attempts. ``sender/responses.py`` keeps
it, by ``ProducerBatch.mark_uncertain``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import (
    AuthenticationError,
    DeliveryTimeoutError,
    KafkaError,
    RecordTooLargeError,
    counted,
)
from kafkaclient.producer.batches.batch import ProducerBatch
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.partition_queue import QueueState
from kafkaclient.producer.batches.record import Record
from kafkaclient.wire.records import BATCH_OVERHEAD, iter_records, record_size

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkaclient.wire.produce import PartitionResult
    from kafkaclient.wire.record_reader import Record as ReadRecord


# --- The errors that records fail with: what happened, where --------------------------------------

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


def _records(batch: ProducerBatch) -> str:
    return f"{counted(batch.count, 'record')} to {batch.queue.tp}"


def _may_be_in_log(batch: ProducerBatch) -> bool:
    """Whether an earlier attempt may have written the batch, or the attempt on the wire may."""
    return batch.in_flight or batch.maybe_written or batch.maybe_elsewhere


def rejection(batch: ProducerBatch, answer: PartitionResult, node_id: int) -> KafkaError:
    """The error that broker ``node_id`` has answered for the batch."""
    code, topic = answer.error_code, batch.result.topic
    operation = "IdempotentWrite" if code == _CLUSTER_DENIED else "Write"
    advice = denied(code, operation, topic if code == _TOPIC_DENIED else "")
    what = f"{_records(batch)} on broker {node_id}"
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
        f"{_records(batch)}: a batch of {batch.size} bytes, more than "
        f"the topic's max.message.bytes allows ({error}); {known}",
    )


def split_after_uncertain_write(batch: ProducerBatch, error: KafkaError) -> RecordTooLargeError:
    """The error for a part of a batch that may have been written as a whole."""
    return _record_too_large(
        error,
        f"{_records(batch)}, part of a batch that an attempt without "
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
    QueueState.BLOCKED: (
        "waited for earlier batches of its partition, for a producer id, or to be added to the "
        "transaction"
    ),
    QueueState.SEALING: "waited to be compressed",
    QueueState.LEADERLESS: "waited for {whom}",
    QueueState.READY: "waited for {whom} to take requests",
}


def why_late(batch: ProducerBatch, age: float, limit: float, cause: KafkaError | None) -> str:
    """What a batch waits for that is not acknowledged yet; arguments as
    :func:`delivery_timeout`."""
    return (
        f"{_records(batch)}: {_delay(batch, age, _cause(batch, cause))}. "
        f"The batch fails in {limit - age:.0f} s (delivery.timeout.ms={limit * 1000:.0f})"
    )


def delivery_timeout(
    batch: ProducerBatch, age: float, limit: float, cause: KafkaError | None
) -> DeliveryTimeoutError:
    """The error for a batch that was not acknowledged in time: what it waited for, why, and whether
    it may have been written. ``age`` and ``limit`` are in seconds; ``cause`` is the last error."""
    cause = _cause(batch, cause)
    error = DeliveryTimeoutError(
        f"{_records(batch)}: not acknowledged within "
        f"delivery.timeout.ms={limit * 1000:.0f}: {_delay(batch, age, cause)}. "
        + (
            "It may have been written nevertheless."
            if _may_be_in_log(batch)
            else "It has not been written; it can be sent again."
        )
    )
    error.__cause__ = cause
    return error


def _cause(batch: ProducerBatch, cause: KafkaError | None) -> KafkaError | None:
    if isinstance(cause, AuthenticationError):  # it is why there was no further attempt
        return cause
    return batch.last_error or cause


def _delay(batch: ProducerBatch, age: float, cause: KafkaError | None) -> str:
    state = "was on its way to {whom}" if batch.in_flight else _WAITING[batch.queue.state]
    return (
        f"after {age:.3f} s and {counted(batch.attempts, 'attempt')} the batch "
        f"{state.format(whom=batch.queue.waits_for)}; last error: {cause or 'none'}"
    )


# --- Split batches: halves of a batch that is too large -------------------------------------------
# The deliveries of the batch's records are redirected to the parts that the records went to.

Make = Callable[[int, BatchResult], ProducerBatch]
"""``make(capacity, batch_result)`` returns an open batch in place of the one that is split."""


def split_in_half(batch: ProducerBatch, make: Make) -> list[ProducerBatch]:
    """Two batches with half of the records each (KIP-126).

    Halving ends with any limit of the topic: a single record either fits or fails alone.
    """
    batch.reset_compression_estimate()
    records = list(iter_records(batch.buffer()))
    middle = (len(records) + 1) // 2
    return [_part(batch, half, make) for half in (records[:middle], records[middle:])]


def without_records(batch: ProducerBatch, rejected: Collection[int], make: Make) -> ProducerBatch:
    """A batch with all records but those with these indices."""
    records = enumerate(iter_records(batch.buffer()))
    return _part(batch, [record for n, record in records if n not in rejected], make)


def redirect_deliveries(batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
    """Redirect the deliveries of a batch to its parts, which have the records in order."""
    firsts = [0, *accumulate(part.count for part in parts[:-1])]
    batch.result.split_into(firsts, [part.result for part in parts])


def fail_records(
    batch: ProducerBatch, errors: Mapping[int, KafkaError], error: KafkaError, rest: ProducerBatch
) -> None:
    """Fail the records with these indices, and redirect the deliveries of the others to ``rest``.
    ``error`` is reported for records without a delivery that is still referenced."""
    failed = _batch_result(batch)
    failed.partition = batch.result.partition
    firsts, batch_results, offsets = [], [], []
    taken = {True: 0, False: 0}
    last: bool | None = None
    for n in range(batch.count):
        is_rejected = n in errors
        if is_rejected is not last:
            firsts.append(n)
            batch_results.append(failed if is_rejected else rest.result)
            offsets.append(taken[is_rejected])
            last = is_rejected
        taken[is_rejected] += 1
    failed.count = len(errors)
    batch.result.split_into(firsts, batch_results, offsets)
    failed.fail(error, dict(enumerate(errors[n] for n in sorted(errors))))


def _part(batch: ProducerBatch, records: Sequence[ReadRecord], make: Make) -> ProducerBatch:
    base = records[0].timestamp
    capacity = BATCH_OVERHEAD + sum(
        record_size(n, r.timestamp - base, r.key, r.value, r.headers) for n, r in enumerate(records)
    )
    part = make(capacity, _batch_result(batch))
    for r in records:
        part.append(Record(r.timestamp, r.key, r.value, r.headers, None, 0))
    part.seal()
    part.inherit(batch)
    return part


def _batch_result(batch: ProducerBatch) -> BatchResult:
    batch_result = BatchResult(batch.result.topic, batch.result.on_unseen)
    batch_result.loop = batch.result.loop
    return batch_result
