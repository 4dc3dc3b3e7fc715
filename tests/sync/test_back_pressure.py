"""``SyncProducer`` with a full buffer, and topics that are not known."""

from __future__ import annotations

import threading
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BufferFullError,
    FlushTimeoutError,
    MetadataTimeoutError,
)
from kafkaclient.testing import FakeCluster
from kafkaclient.wire.murmur2 import partition_for_key
from tests.sync.support import one_topic, running, stalled, values

if TYPE_CHECKING:
    from concurrent.futures import Future


def test_a_full_buffer_makes_the_call_wait_and_loses_nothing() -> None:
    fake, producer = stalled(max_request_size=1000)
    value, futures = bytes(900), []

    def send() -> None:
        futures.extend([producer.send("t", value) for _ in range(2000)])

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(0.3)
    deadline = time.monotonic() + 20
    while producer.metrics().producer["buffer-available-bytes"] >= 900:  # the loop does not wait
        assert time.monotonic() < deadline
    assert sender.is_alive()
    fake.resume_broker(0)
    sender.join(30)
    producer.flush(30)
    assert [future.result(0).offset for future in futures] == list(range(1, 2001))
    producer.close()


def test_a_call_waits_for_max_block_ms_at_most() -> None:
    """Then the call raises, or the record's future has the error: as long as it is one of them."""
    fake, producer = stalled(max_request_size=1000, max_block_ms=200)
    value, futures, raised, longest = bytes(900), [], list[str](), 0.0
    for _ in range(3000):
        began = time.monotonic()
        try:
            futures.append(producer.send("t", value))
        except BufferFullError as error:
            raised.append(str(error))
        longest = max(longest, time.monotonic() - began)
    assert 0.05 < longest < 5
    late = futures[-1].exception(10)
    assert isinstance(late, BufferFullError)
    assert "found no room" in str(late)
    assert "wait for broker 0" in str(late)
    assert not raised or any("wait for broker 0" in told for told in raised)
    fake.resume_broker(0)
    producer.flush(30)
    written = sum(future.exception(0) is None for future in futures)
    assert 1 <= written < len(futures)
    assert len(values(fake)) == 1 + written
    producer.close()


def test_with_max_block_ms_0_a_burst_fits_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine the producer's thread may get its turn later than usual.
    monkeypatch.setattr("kafkaclient.sync.producer._HANDOVER_S", 10.0)
    fake = one_topic()
    with running(fake, max_block_ms=0) as producer:
        while producer.send("t", b"").exception(10) is not None:
            pass  # the topic is not known yet
        before = len(values(fake))
        futures = [producer.send("t", b"x") for _ in range(5000)]
        producer.flush()
        assert [future.exception(0) for future in futures] == [None] * 5000
    assert len(values(fake)) == before + 5000


def test_a_topic_that_is_not_known_does_not_hold_up_others() -> None:
    """Nor does a partition that does not exist. Later records of the topic wait behind."""
    fake = one_topic(auto_create_topics=False)
    with running(fake, max_block_ms=60_000, batch_size=1000) as producer:
        producer.send_and_wait("t", b"0")
        many = producer.send_many("late", [b"1", b"2"])
        one = producer.send("late", b"3")
        large = producer.send_many("late", [bytes(1000)] * 2000)  # more than the handover's room
        producer.send_many("later", [b"x"])
        with pytest.raises(FlushTimeoutError) as caught:
            producer.flush(0.05)
        assert caught.value.undelivered >= 4
        assert producer.send_and_wait("t", b"1").offset == 1
        assert producer.send_many("t", [bytes(1000)] * 2000).result(10).records == 2000
        assert not many.done()
        assert not one.done()
        fake.create_topic("late", 1, 1)
        fake.create_topic("later", 1, 1)
        producer.flush(20)
        assert large.result(0).records == 2000
    written = [record.value for record in fake.log("late", 0)]
    assert written[:3] == [b"1", b"2", b"3"]
    assert len(written) == 2003


def test_records_behind_a_topic_that_never_comes_fail_within_max_block_ms() -> None:
    with running(one_topic(auto_create_topics=False), max_block_ms=1000) as producer:
        producer.send_and_wait("t", b"0")
        began = time.monotonic()
        futures: list[Future[Any]] = []
        for _ in range(10):
            futures += [producer.send_many("unknown", [b"x"]), producer.send("unknown", b"x")]
        producer.flush(20)
        for future in futures:
            assert isinstance(future.exception(0), MetadataTimeoutError)
        assert time.monotonic() - began < 10, "20 s would be one after the other"


def test_records_of_a_topic_beyond_buffer_memory_make_the_call_wait() -> None:
    with running(
        one_topic(auto_create_topics=False),
        max_block_ms=1000,
        buffer_memory=10_000,
        max_request_size=1000,
    ) as producer:
        futures: list[Future[Any]] = [producer.send_many("unknown", [b"x"])]
        began, raised = time.monotonic(), 0
        for _ in range(3000):
            try:
                futures.append(producer.send("unknown", bytes(500)))
            except BufferFullError:
                raised += 1
                break
        assert raised or time.monotonic() - began > 0.3
        producer.flush(20)
        assert producer.send_and_wait("t", b"x").offset == 0
        for future in futures:
            assert isinstance(future.exception(0), (MetadataTimeoutError, BufferFullError))


def test_a_new_partition_is_waited_for_in_order() -> None:
    fake = one_topic(auto_create_topics=False)
    fake.create_topic("u", 1, 1)
    with running(fake) as producer:
        producer.send_and_wait("t", b"x")
        fake.add_partitions("t", 2)
        futures = [producer.send("t", b"%d" % n, partition=1) for n in range(1000)]
        producer.flush(20)
        assert [future.result(0).offset for future in futures] == list(range(1000))
    assert values(fake, 1) == [b"%d" % n for n in range(1000)]


@pytest.mark.parametrize("bulk", [False, True])
def test_a_topic_may_be_an_enum(bulk: bool) -> None:
    class Topic(StrEnum):
        LATE = "late"

    fake = one_topic(auto_create_topics=False)
    with running(fake) as producer:
        producer.send_many(Topic.LATE if bulk else "late", [b"1"])
        producer.send("late" if bulk else Topic.LATE, b"2")
        fake.create_topic("late", 1, 1)
    assert [record.value for record in fake.log("late", 0)] == [b"1", b"2"]


def test_a_record_whose_time_ends_as_it_is_appended_is_written_once() -> None:
    """Its send has finished, and its limit is over, in one iteration of the event loop."""
    fake, producer = stalled(max_request_size=1000, max_block_ms=300)
    first = [producer.send("t", bytes(900)) for _ in range(2)]
    waiting = producer.send("t", bytes(800))
    first[0].add_done_callback(lambda _: time.sleep(0.5))
    fake.resume_broker(0)
    error = waiting.exception(10)
    producer.flush(10)
    written = [len(value or b"") for value in values(fake)].count(800)
    assert written == (error is None)
    assert producer.close() == 0


def test_rows_of_a_bulk_call_pass_those_for_a_broker_that_takes_nothing() -> None:
    fake = FakeCluster(2)
    fake.create_topic("t", 2)
    with running(fake, buffer_memory=100_000) as producer:
        for partition in (0, 1):
            producer.send_and_wait("t", b"0", partition=partition)
        fake.stall_broker(0)
        rows = [b"%d" % n for n in range(600)]
        futures = []
        sender = threading.Thread(
            target=lambda: futures.append(producer.send_many("t", [bytes(500)] * 600, keys=rows))
        )
        sender.start()
        deadline = time.monotonic() + 20
        well = sum(partition_for_key(key, 2) == 1 for key in rows)
        while len(fake.log("t", 1)) <= well and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(fake.log("t", 1)) == well + 1
        fake.resume_broker(0)
        sender.join(10)
        assert futures[0].result(10).records == 600


@pytest.mark.parametrize("bulk", [False, True])
def test_a_thread_whose_records_wait_for_a_broker_stops_no_other_thread(bulk: bool) -> None:
    """Its own records keep their order, and those that it sends meanwhile wait."""
    fake = FakeCluster(2)
    fake.create_topic("t", 2)
    with running(fake, buffer_memory=100_000, batch_size=1000, max_request_size=5000) as producer:
        for partition in (0, 1):
            producer.send_and_wait("t", b"0", partition=partition)
        fake.stall_broker(0)
        sent, values_sent = list[Any](), [b"%d" % n + bytes(4000) for n in range(500)]

        def send() -> None:
            for value in values_sent:
                if bulk:
                    sent.append(producer.send_many("t", [value], partition=0))
                else:
                    sent.append(producer.send("t", value, partition=0))

        sender = threading.Thread(target=send)
        sender.start()
        thread, before = producer._thread, -1
        assert thread is not None
        while not thread.handover._stopped or len(sent) > before:  # the sender is not held up yet
            before = len(sent)
            sender.join(0.3)
        for n in range(20):
            assert producer.send_and_wait("t", b"x", partition=1).offset == 1 + 2 * n
            assert producer.send_many("t", [b"x"], partition=1).result(10).records == 1
        assert sender.is_alive()
        assert len(sent) == before
        with pytest.raises(FlushTimeoutError):
            producer.flush(0.05)
        fake.resume_broker(0)
        sender.join(10)
        producer.flush(10)
        assert all(future.exception(0) is None for future in sent)
    assert values(fake, 0) == [b"0", *values_sent]
