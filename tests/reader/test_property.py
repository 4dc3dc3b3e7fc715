"""What was written is what is read: any batches, codecs, ends of answers, transactions."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import UnreadableBatchError
from kafkaclient.reader import FetchedRecord, Reader
from kafkaclient.reader.batch import FetchedPart
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.fetch import AbortedTransaction
from kafkaclient.wire.records import BatchBuilder

blobs = st.none() | st.binary(max_size=60)
rows = st.tuples(
    st.integers(0, 2**41),
    blobs,
    blobs,
    st.lists(st.tuples(st.text(max_size=5), blobs), max_size=2),
)
steps = st.one_of(
    st.tuples(
        st.just("write"),
        st.integers(0, 2),  # by nobody, or by a producer in a transaction
        st.lists(rows, min_size=1, max_size=6),
        st.sampled_from(CompressionType),
    ),
    st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("delete")),
)


class Log:
    """Partition 0 of a topic, and what must be read from it."""

    def __init__(self) -> None:
        self.fake = FakeCluster(brokers=1)
        self.fake.create_topic("t", 1)
        self.log = inspect(self.fake).partition("t", 0).log
        self.records: list[FetchedRecord] = []
        self.open: dict[int, list[FetchedRecord]] = {}
        self.aborted: list[FetchedRecord] = []
        self.sequences = {1: 0, 2: 0}

    def run(self, step) -> None:
        if step[0] == "write":
            self.write(*step[1:])
        elif step[0] == "end":
            self.log.end_transaction(step[1], 0, commit=step[2])
            records = self.open.pop(step[1], [])
            self.aborted += [] if step[2] else records
        else:
            self.fake.delete_records("t", 0, min(self.log.start_offset + 2, self.log.end_offset))

    def write(self, producer, given_rows, codec) -> None:
        builder = BatchBuilder(2**20)
        base = self.log.end_offset
        for n, row in enumerate(given_rows):
            builder.append(*row)
            time, key, value, headers = row
            record = FetchedRecord("t", 0, base + n, time, 0, key, value, tuple(headers))
            self.records.append(record)
            if producer:
                self.open.setdefault(producer, []).append(record)
        builder.seal(codec)
        if producer:
            builder.stamp(producer, 0, self.sequences[producer], transactional=True)
            self.sequences[producer] += len(given_rows)
        self.fake.append("t", 0, bytes(builder.buffer()))

    def expected(self, start: int, end: int, committed: bool) -> list[FetchedRecord]:
        gone = {r.offset for r in self.aborted} if committed else set()
        return [r for r in self.records if start <= r.offset < end and r.offset not in gone]


@settings(max_examples=40, deadline=None)
@given(
    script=st.lists(steps, max_size=14),
    fetch=st.integers(1, 600),
    window=st.tuples(st.integers(0, 30), st.integers(0, 60)),
    committed=st.booleans(),
    chunk=st.none() | st.integers(1, 50),
)
def test_what_was_written_is_what_is_read(script, fetch, window, committed, chunk):
    async def main() -> None:
        log = Log()
        log.fake.chunk_size = chunk
        for step in script:
            log.run(step)
        options = {
            "isolation_level": "read_committed" if committed else "read_uncommitted",
            "max_partition_fetch_bytes": fetch,
        }
        async with Reader(log.fake.bootstrap, dialer=log.fake, rng=Random(1), **options) as reader:
            tp = TopicPartition("t", 0)
            first = (await reader.offsets([tp], at="earliest"))[tp]
            last = (await reader.offsets([tp], at="latest"))[tp]
            assert last == (log.log.last_stable_offset if committed else log.log.end_offset)
            start = max(first, min(window[0], last))
            end = max(start, min(start + window[1], last))
            if start > end or start > last:
                return
            reading = reader.read({tp: (start, end)}, headers=True)
            seen, at = [], start
            async for batch in reading:
                assert batch.base_offset >= at
                at = batch.next_offset
                seen += batch
            assert reading.positions.get(tp, end) == end
        assert seen == log.expected(start, end, committed)

    run_virtual(main())


@given(
    data=st.binary(max_size=400),
    patches=st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255)), max_size=8),
    aborted=st.none() | st.just((AbortedTransaction(1, 0),)),
)
def test_hostile_bytes_give_records_or_a_typed_error(data, patches, aborted):
    """And always an end: a damaged log must neither crash nor hang its readers."""
    builder = BatchBuilder(1000)
    for n in range(4):
        builder.append(n, b"key", b"value", [("h", b"x")])
    builder.seal()
    good = bytearray(builder.buffer()) * 2 + data
    for at, byte in patches:
        good[at % len(good)] = byte
    part = FetchedPart(
        TopicPartition("t", 0), memoryview(bytes(good)), 0, aborted=aborted, check_crcs=False
    )
    position, turns = 0, 0
    with suppress(UnreadableBatchError):
        while part:
            _, after = part.take(position, 2**63 - 1, 100, True)
            assert after >= position
            position = after
            turns += 1
            assert turns <= len(good)
