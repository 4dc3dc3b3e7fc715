"""A fake partition leader's rules for batches and sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.log import Appended, PartitionLog, RefusedError
from kafkaclient.wire.record_reader import CRC_START, HEADER, batch_header
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 1 << 20


def refused(log: PartitionLog, data: bytes, limit: int = LIMIT) -> ErrorCode:
    with pytest.raises(RefusedError) as caught:
        log.append(data, limit)
    return caught.value.code


def test_records_keep_what_was_sent(batch: Callable[..., bytes]) -> None:
    log = PartitionLog()
    assert log.append(batch(b"a", b"b", key=b"k"), LIMIT) == Appended(0, duplicate=False)
    assert log.append(batch(b"c", codec=2), LIMIT) == Appended(2, duplicate=False)
    assert [(r.offset, r.key, r.value, r.headers, r.sequence) for r in log.records()] == [
        (0, b"k", b"a", (("h", b"1"),), -1),
        (1, b"k", b"b", (("h", b"1"),), -1),
        (2, None, b"c", (("h", b"1"),), -1),
    ]
    assert log.end_offset == 3
    assert [header.base_offset for header, _ in log.batches] == [0, 2]


def test_the_last_five_batches_are_remembered(batch: Callable[..., bytes]) -> None:
    log = PartitionLog()
    sent = [batch(b"x", b"y", producer_id=7, epoch=0, sequence=2 * i) for i in range(6)]
    for data in sent:
        log.append(data, LIMIT)
    for index in range(1, 6):
        assert log.append(sent[index], LIMIT) == Appended(2 * index, duplicate=True)
    assert refused(log, sent[0]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 12


def test_a_gap_is_out_of_order(batch: Callable[..., bytes]) -> None:
    log = PartitionLog()
    log.append(batch(producer_id=7, epoch=0, sequence=0), LIMIT)
    gap = batch(producer_id=7, epoch=0, sequence=2)
    assert refused(log, gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(batch(producer_id=7, epoch=0, sequence=1), LIMIT)
    log.append(gap, LIMIT)
    assert [record.sequence for record in log.records()] == [0, 1, 2]


def test_epochs(batch: Callable[..., bytes]) -> None:
    log = PartitionLog()
    log.append(batch(producer_id=7, epoch=1, sequence=0), LIMIT)
    old = batch(producer_id=7, epoch=0, sequence=1)
    assert refused(log, old) == ErrorCode.INVALID_PRODUCER_EPOCH
    bumped = batch(producer_id=7, epoch=2, sequence=1)
    assert refused(log, bumped) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(batch(producer_id=7, epoch=2, sequence=0), LIMIT)
    log.append(bumped, LIMIT)


def test_an_unknown_producer_may_begin_anywhere(batch: Callable[..., bytes]) -> None:
    log = PartitionLog()
    log.append(batch(producer_id=7, epoch=0, sequence=41), LIMIT)
    log.append(batch(producer_id=8, epoch=3, sequence=5), LIMIT)
    log.forget_producers()
    log.append(batch(producer_id=7, epoch=0, sequence=99), LIMIT)


def test_sequences_wrap_to_0(batch: Callable[..., bytes]) -> None:
    log = PartitionLog()
    straddling = batch(b"a", b"b", b"c", b"d", producer_id=7, epoch=0, sequence=2**31 - 2)
    log.append(straddling, LIMIT)
    assert log.append(straddling, LIMIT) == Appended(0, duplicate=True)
    wrong = batch(producer_id=7, epoch=0, sequence=3)
    assert refused(log, wrong) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(batch(producer_id=7, epoch=0, sequence=2), LIMIT)
    assert [r.sequence for r in log.records()] == [2**31 - 2, 2**31 - 1, 0, 1, 2]


def test_damaged_and_unacceptable_batches(batch: Callable[..., bytes]) -> None:
    log = PartitionLog()
    good = batch(b"a")
    assert refused(log, good, limit=len(good) - 1) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, b"") == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, good[:-1]) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, good[:-1] + bytes([good[-1] ^ 1])) == ErrorCode.CORRUPT_MESSAGE
    assert refused(log, good + good) == ErrorCode.INVALID_RECORD
    assert refused(log, batch(producer_id=7, epoch=0)) == ErrorCode.INVALID_RECORD
    for counts in [{"record_count": 0}, {"last_offset_delta": 1, "record_count": 2}]:
        assert refused(log, _relabelled(good, **counts)) == ErrorCode.INVALID_RECORD
    assert log.append(good, len(good)) == Appended(0, duplicate=False)


def _relabelled(data: bytes, **fields: int) -> bytes:
    """The batch with other header fields and a checksum to match."""
    for _ in range(2):
        header = batch_header(data)._replace(**fields)
        data = HEADER.pack(*header) + data[HEADER.size :]
        fields = {"crc": crc32c.crc32c(data[CRC_START:])}
    return data


@given(st.lists(st.integers(0, 9), max_size=60))
def test_resending_any_of_the_last_batches_never_changes_the_log(resends: list[int]) -> None:
    log = PartitionLog()
    sent: list[bytes] = []
    for back in resends:
        if back < min(len(sent), 5):
            before = log.end_offset
            assert log.append(sent[-1 - back], LIMIT).duplicate
            assert log.end_offset == before
        else:
            builder = BatchBuilder(1000)
            builder.append(0, None, b"%d" % len(sent))
            builder.seal()
            builder.stamp(1, 0, len(sent))
            sent.append(bytes(builder.buffer()))
            log.append(sent[-1], LIMIT)
    assert [record.value for record in log.records()] == [b"%d" % i for i in range(len(sent))]
