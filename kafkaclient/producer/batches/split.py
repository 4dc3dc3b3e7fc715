"""Split batches: halves of a batch that is too large, or a batch without its rejected records.

The deliveries of the batch's records are redirected to the parts that the records went to.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.batch import ProducerBatch
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.record import Record
from kafkaclient.wire.records import BATCH_OVERHEAD, iter_records, record_size

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkaclient.errors import KafkaError
    from kafkaclient.wire.record_reader import Record as ReadRecord

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
