"""Records into batches: size accounting, lingering, and what Java's RecordAccumulatorTest says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import KafkaError
from kafkaclient.producer.batches.record import Record
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.records import BATCH_OVERHEAD, batch_header, iter_records

if TYPE_CHECKING:
    from tests.producer.support import Bench

KEY, VALUE = b"key", b"value"
FITS = 68  # records of 15 bytes in Java's batch of 1025 + 61 bytes


def fill(accumulator: Any, partition: int = 0, now: float = 0.0) -> None:
    for _ in range(FITS):
        accumulator.put(partition, VALUE, key=KEY, now=now)


def test_full(bench: type[Bench]) -> None:
    b = bench(batch_size=1025 + BATCH_OVERHEAD, linger=10.0)
    fill(b)
    (batch,) = b.queue(0).batches
    assert batch.count == FITS
    assert b.ready() == set(), "a batch with room lingers"

    b.put(0, VALUE, key=KEY)
    assert [batch.count for batch in b.queue(0).batches] == [FITS, 1]
    assert b.ready() == {0}
    (sent,) = b.drain()
    records = list(iter_records(sent.buffer()))
    assert [(record.key, record.value) for record in records] == [(KEY, VALUE)] * FITS


def test_a_record_larger_than_the_batch_size_gets_a_batch_of_its_own(bench: type[Bench]) -> None:
    b = bench(batch_size=512)
    b.put(0, bytes(1024))
    b.put(0, bytes(20))
    large, small = b.queue(0).batches
    assert (large.count, small.count) == (1, 1)
    assert large.full
    assert large.size == BATCH_OVERHEAD + 1024 + 9


def test_linger_runs_from_the_creation_of_the_batch(bench: type[Bench]) -> None:
    b = bench(linger=0.010)
    b.put(0, now=1.0)
    assert b.ready(1.0) == set()
    assert min(b.woken) == pytest.approx(1.010)
    b.put(0, now=1.009)
    assert b.ready(1.010) == {0}
    (batch,) = b.drain(now=1.010)
    assert batch.count == 2


def test_next_ready_check_delay(bench: type[Bench]) -> None:
    """Ten milliseconds of linger; five when five have passed; now when a batch is full."""
    b = bench(leaders=(0, 0, 1), batch_size=1025 + BATCH_OVERHEAD, linger=0.010)
    half = FITS // 2
    for _ in range(half):
        b.put(0, VALUE, key=KEY)
    assert b.ready() == set()
    assert b.lines.next_timer() == pytest.approx(0.010)
    for _ in range(half):
        b.put(2, VALUE, key=KEY, now=0.005)
    assert b.ready(0.005) == set()
    assert b.lines.next_timer() - 0.005 == pytest.approx(0.005)
    for _ in range(half + 1):
        b.put(1, VALUE, key=KEY, now=0.005)
    assert b.ready(0.005) == set()
    for _ in range(FITS):
        b.put(1, VALUE, key=KEY, now=0.005)
    assert b.ready(0.005) == {0}


def test_an_estimate_that_is_low_keeps_the_batch_open(bench: type[Bench]) -> None:
    """1.6: raw bytes times ratio times 1.05 against the limit."""
    b = bench(batch_size=1000, codec=CompressionType.LZ4, linger=1.0)
    b.topic.ratio.value = 0.5
    for _ in range(20):
        b.put(0, bytes(100))
    first = b.queue(0).batches[0]
    raw_limit = BATCH_OVERHEAD + int((1000 - BATCH_OVERHEAD) / (0.5 * 1.05))
    assert raw_limit - 110 < first.raw_size <= raw_limit
    assert first.size == BATCH_OVERHEAD + int((first.raw_size - BATCH_OVERHEAD) * 0.525)
    assert first.size <= 1000


def test_the_ratio_is_taken_when_the_batch_is_created(bench: type[Bench]) -> None:
    b = bench(batch_size=1000, codec=CompressionType.LZ4, linger=1.0)
    b.put(0, bytes(100))
    size = b.queue(0).batches[0].size
    b.topic.ratio.value = 0.1
    assert b.queue(0).batches[0].size == size


def test_without_compression_the_size_is_exact_before_sealing(bench: type[Bench]) -> None:
    b = bench(linger=0.0)
    for length in (0, 1, 100, 63, 64):
        b.put(0, bytes(length), key=b"k", timestamp=1_700_000_000_000 + length)
    expected = b.queue(0).batches[0].size
    (batch,) = b.drain()
    assert batch.size == expected == batch_header(batch.buffer()).size


def test_buffers_start_small_and_are_charged_as_they_grow(bench: type[Bench]) -> None:
    b = bench(batch_size=16384, linger=1.0)
    b.put(0, bytes(10))
    assert b.used == 1024
    used = set()
    for _ in range(100):
        b.put(0, bytes(100))
        (batch,) = b.queue(0).batches
        assert b.used == batch.charged == batch.builder.capacity >= batch.size
        used.add(b.used)
    assert used == {1024, 2048, 4096, 8192, 16384}


def test_what_was_not_needed_is_given_back_when_a_compressed_batch_is_sealed(
    bench: type[Bench],
) -> None:
    b = bench(batch_size=16384, codec=CompressionType.LZ4)
    for _ in range(100):
        b.put(0, bytes(100))
    (batch,) = b.drain()
    assert b.used == batch.charged == batch.size < 1000


def test_no_room(bench: type[Bench]) -> None:
    b = bench(batch_size=4096, buffer_memory=1500, linger=1.0)
    assert b.put(0, bytes(100)) is not None
    assert b.put(1, bytes(500)) is None
    assert len(b.queue(1).batches) == 0
    assert b.put(1, bytes(100)) is not None, "the least a record needs is enough"
    taken = 0
    while b.put(0, bytes(100)) is not None:
        taken += 1
    assert taken > 5
    assert b.buffer_pool.available >= 0
    assert b.put(0, bytes(100), force=True) is not None
    assert b.put(2, bytes(2000), force=True) is not None
    assert b.used == sum(batch.charged for batch in b.incomplete) > 1500


def test_full_memory_ends_lingering(bench: type[Bench]) -> None:
    b = bench(linger=10.0)
    b.put(0)
    assert b.ready() == set()
    b.buffer_pool.short = True
    b.incomplete.reschedule(0.0)
    assert b.ready() == {0}


def test_close_ends_lingering(bench: type[Bench]) -> None:
    b = bench(linger=10.0)
    b.put(0)
    b.accumulator.close(0.0)
    assert b.ready() == {0}


@pytest.mark.parametrize("batch_size", [0, 1])
@pytest.mark.parametrize("value", [None, b"", b"0123456789", bytes(100)])
def test_tiny_batch_sizes_terminate(
    bench: type[Bench], batch_size: int, value: bytes | None
) -> None:
    """KAFKA-14303: batch.size=0 and no key was an endless loop."""
    b = bench(leaders=(0, 0), batch_size=batch_size)
    for _ in range(10):
        assert b.put(None, value) is not None
    queues = b.topic.queues
    assert set(queues) == {0, 1}, "it switches with every record"
    sent = []
    while batches := b.drain():
        sent += batches
    assert sum(batch.count for batch in sent) == 10


def test_batch_size_zero_does_not_wait_for_company(bench: type[Bench]) -> None:
    b = bench(batch_size=0, linger=10.0)
    b.put(0)
    assert b.ready() == {0}


def test_keyed_records_never_move_the_sticky_partition(bench: type[Bench]) -> None:
    b = bench(batch_size=100)
    b.put(None)
    before = b.topic.strategy.partitioner.current(b.topic.view)
    for _ in range(50):
        b.put(before.partition, bytes(50), key=b"k")
    assert b.topic.strategy.partitioner.current(b.topic.view) is before
    assert before.produced == 61 + 12


def test_a_topic_without_metadata_is_refused(bench: type[Bench]) -> None:
    b = bench()
    b.topic.view = None
    with pytest.raises(ValueError, match="metadata of topic 'test'"):
        b.put(0)


def test_a_topic_is_released_when_nothing_depends_on_it(bench: type[Bench]) -> None:
    b = bench()
    b.put(0)
    assert not b.accumulator.release("test")
    (batch,) = b.drain()
    assert not b.accumulator.release("test"), "it is on the wire"
    b.incomplete.complete(batch, 0, -1, 0.0)
    assert b.accumulator.release("test")
    assert not b.accumulator.topics
    assert not b.accumulator.append_slots
    assert b.accumulator.release("unknown")
    b.accumulator.forget_topic("unknown")
    assert b.accumulator.update_topic(b.view(), 0.0) is None


def test_sequences_that_were_forgotten_make_a_new_epoch(bench: type[Bench]) -> None:
    """Once for all that were forgotten, and only when a topic is taken up: it may be one of them,
    whose logs expect its sequence to go on."""
    b = bench(idempotent=True)
    identity, accumulator = b.accumulator.identity, b.accumulator
    accumulator.topic("never sent to")
    assert accumulator.release("never sent to")
    accumulator.topic("other")
    before = identity.epoch
    b.put(0)
    (batch,) = b.drain()
    b.incomplete.complete(batch, 0, -1, 0.0)
    assert accumulator.release("test")
    accumulator.topic("other")
    assert identity.epoch == before, "it was there all the time"
    for name in ("new", "test", "newer"):
        accumulator.topic(name)
        assert identity.epoch == before + 1
    for name in ("new", "newer"):
        assert accumulator.release(name)
        accumulator.topic(name)
        assert identity.epoch == before + 1, "nothing was numbered under it"


def test_deliveries_know_their_place(bench: type[Bench]) -> None:
    b = bench()
    deliveries = [b.put(1, timestamp=7 + i) for i in range(3)]
    (batch,) = b.drain()
    b.incomplete.complete(batch, 40, -1, 0.0)
    assert [d.result() for d in deliveries] == [("test", 1, 40 + i, 7 + i, 0, -1) for i in range(3)]


def test_a_record_larger_than_was_said_is_refused_without_a_trace(bench: type[Bench]) -> None:
    b = bench(batch_size=100)
    record = Record(0, None, bytes(5000), (), 0, 100)
    with pytest.raises(
        KafkaError, match=r"larger than its upper bound of 100 bytes; this is a defect"
    ):
        b.accumulator.append(b.topic, 0, record, 0.0)
    assert b.used == 0
    assert not b.queue(0).batches
    assert not len(b.incomplete)
