"""``SyncProducer`` on a fake cluster."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import logging
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, as_completed, wait
from concurrent.futures import Future as ConcurrentFuture
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import BulkMetadata, Producer, RecordMetadata, SyncProducer, UnseenFailure
from kafkaclient.errors import (
    BootstrapError,
    BufferFullError,
    BulkDeliveryError,
    ConfigError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    PolicyViolationError,
    ProducerClosedError,
    ProducerStateError,
    RecordTooLargeError,
    SerializationError,
)
from tests.sync.support import one_topic, running, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from kafkaclient import SerializationContext
    from kafkaclient.testing import FakeCluster

POLICY_VIOLATION = 44


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("kafkaclient-")]


@contextmanager
def _busy(producer: SyncProducer) -> Iterator[None]:
    """Keeps the producer's thread busy in a callback, for 5 seconds at most."""
    busy, go_on = threading.Event(), threading.Event()
    thread = producer._thread
    assert thread is not None
    thread._loop.call_soon_threadsafe(lambda: (busy.set(), go_on.wait(5)))
    busy.wait()
    try:
        yield
    finally:
        go_on.set()


# --- sending ------------------------------------------------------------------------------------


def test_each_way_to_send() -> None:
    fake = one_topic(2)
    with running(fake) as producer:
        future = producer.send("t", b"1", key=b"k", partition=1, headers={"h": b"x"})
        metadata = future.result(10)
        assert metadata == (RecordMetadata(*metadata)._replace(topic="t", partition=1, offset=0))
        assert producer.send_and_wait("t", b"2", partition=1, timestamp_ms=7).timestamp == 7
        bulk = producer.send_many("t", [b"3", b"4"], keys=[b"a", None], partition=1).result(10)
        assert isinstance(bulk, BulkMetadata)
        assert bulk.records == 2
        assert len(producer.partitions_for("t")) == 2
        assert producer.metrics().producer["record-send-total"] == 4
    assert values(fake, 1) == [b"1", b"2", b"3", b"4"]
    assert producer.metrics().producer["record-send-total"] == 4
    assert threads() == []


def test_nothing_is_started_before_the_first_call() -> None:
    producer = SyncProducer("127.0.0.1:1")
    assert threads() == []
    assert "has not been started" in repr(producer)
    with pytest.raises(ProducerStateError, match="has not been started"):
        producer.metrics()
    producer.flush()
    assert producer.close() == 0
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"x")


def test_a_record_is_sent_without_a_start() -> None:
    fake = one_topic()
    producer = SyncProducer({"bootstrap.servers": fake.bootstrap, "linger.ms": 1}, dialer=fake)
    future = producer.send("t", b"x")
    assert producer.close() == 0
    assert future.result(0).offset == 0
    assert "is closed" in repr(producer)
    assert producer.close() == 0


def test_the_records_of_each_thread_keep_their_order() -> None:
    fake = one_topic(3)
    with running(fake, batch_size=200, linger_ms=0) as producer:

        def work(name: int) -> None:
            for n in range(300):
                producer.send("t", b"%d %d" % (name, n), key=b"%d" % name)
                if n % 100 == 50:
                    producer.send_many("t", [b"%d %d" % (name, n)] * 2, keys=[b"%d" % name] * 2)

        workers = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
        producer.flush(30)
    written = [value for partition in range(3) for value in values(fake, partition)]
    each = sorted([*range(300), *[50, 150, 250] * 2])
    for name in range(8):
        mine = [
            int(v.split()[1]) for v in written if v is not None and v.split()[0] == b"%d" % name
        ]
        assert mine == each


def test_a_burst_is_one_wake_up_and_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = one_topic()
    with running(fake) as producer:
        thread = producer._thread
        assert thread is not None
        wakes: list[None] = []
        wake = thread._wake_feeder
        monkeypatch.setattr(thread.handover, "_wake", lambda: (wakes.append(None), wake()))
        for n in range(5000):  # more than there is room for at once
            producer.send("t", b"%d" % n)
        producer.flush(30)
        assert len(wakes) < 1000
    assert values(fake) == [b"%d" % n for n in range(5000)]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_mutable_value_is_sent_as_it_was(awaited: bool) -> None:
    fake, value, header = one_topic(), bytearray(b"before"), [("h", b"1")]
    with running(fake) as producer:
        if awaited:
            producer.send_and_wait("t", value, headers=header)
        else:
            producer.send("t", value, headers=header)
            producer.send_many("t", [value], headers=header)
        value[:] = b"after!"
        header.clear()
        producer.flush()
    assert set(values(fake)) == {b"before"}
    assert {record.headers for record in fake.log("t", 0)} == {(("h", b"1"),)}


def test_serializers_run_in_the_calling_thread() -> None:
    fake, seen = one_topic(), []

    def serialize(text: str) -> bytes:
        seen.append(threading.current_thread())
        return text.encode()

    with running(fake, value_serializer=serialize, key_serializer=serialize) as producer:
        producer.send("t", "1", "k")
        producer.send_many("t", ["2", None], keys=["k", "k"])
        with pytest.raises(SerializationError):
            producer.send("t", b"no str")
        with pytest.raises(SerializationError):
            producer.send_many("t", ["3", 4])
    assert set(seen) == {threading.current_thread()}
    assert values(fake) == [b"1", b"2", None]


class _Registered:
    """Async for the first value; adds a header that names the field."""

    def __init__(self) -> None:
        self.asked = 0

    def serialize(self, text: str, context: SerializationContext) -> Any:
        context.headers.append(("field", context.field.encode()))
        if self.asked:
            return text.encode()
        self.asked += 1
        return self._first(text)

    async def _first(self, text: str) -> bytes:
        await asyncio.sleep(0.01)
        return text.encode()


@pytest.mark.parametrize("bulk", [False, True])
def test_a_call_waits_for_an_async_serializer(bulk: bool) -> None:
    fake = one_topic()
    with running(fake, value_serializer=_Registered()) as producer:
        if bulk:
            producer.send_many("t", ["1", "2"], headers=[("h", b"")]).result()
        else:
            producer.send("t", "1", headers=[("h", b"")])
            producer.send("t", "2", headers=[("h", b"")])
    assert values(fake) == [b"1", b"2"]
    headers = {record.headers for record in fake.log("t", 0)}
    assert headers == {(("h", b""), ("field", b"value"))}


@pytest.mark.parametrize("bulk", [False, True])
def test_an_async_serializer_ends_in_time_and_only_where_a_call_may_wait(bulk: bool) -> None:
    async def never(_text: str) -> bytes:
        await asyncio.sleep(1000)
        return b""

    async def in_a_loop(send: Any) -> None:
        send()

    with running(one_topic(), value_serializer=never, max_block_ms=100) as producer:
        send = partial(producer.send_many, "t", ["1"]) if bulk else partial(producer.send, "t", "1")
        with pytest.raises(SerializationError, match=r"within [\d.]+ s \(the rest of max\.block"):
            send()
        with pytest.raises(ProducerStateError, match="a serializer is async: the call waits"):
            asyncio.run(in_a_loop(send))


@pytest.mark.parametrize("bulk", [False, True])
def test_a_serializer_that_ignores_its_cancellation_does_not_hold_up_the_call(bulk: bool) -> None:
    ended = threading.Event()

    async def stubborn(text: str) -> bytes:
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return text.encode()

    with running(one_topic(), value_serializer=stubborn, max_block_ms=100) as producer:
        send = partial(producer.send_many, "t", ["1"]) if bulk else partial(producer.send, "t", "1")
        began = time.monotonic()
        threading.Timer(3, ended.set).start()
        with pytest.raises(SerializationError, match="has not finished"):
            send()
        assert time.monotonic() - began < 2
        ended.set()


def test_a_call_with_an_async_serializer_ends_also_if_the_thread_is_busy() -> None:
    async def serialize(text: str) -> bytes:
        return text.encode()

    with running(one_topic(), value_serializer=serialize, max_block_ms=100) as producer:
        with _busy(producer), pytest.raises(SerializationError, match="thread does not respond"):
            producer.send("t", "1")
        producer.send_many("t", ["2", "3"]).result(10)


def test_serializer_and_buffer_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = one_topic()
    entries = []

    async def slow(text: str) -> bytes:
        await asyncio.sleep(0.2)
        return text.encode()

    with running(fake, value_serializer=slow) as producer:
        thread = producer._thread
        assert thread is not None
        put = thread.handover.put

        def record(entry: Any, *rest: Any) -> None:
            entries.append((entry, rest))
            put(entry, *rest)

        monkeypatch.setattr(thread.handover, "put", record)
        began = time.monotonic()
        producer.send("t", "1")
        producer.send_many("t", ["2"])
        first, second = entries
        assert began + 60 <= first[0][4] == first[1][1] < began + 60.1
        assert began + 60.2 <= second[0][4] == second[1][1] < time.monotonic() + 60 - 0.2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_error_of_a_serializer_names_the_record(asynchronous: bool) -> None:
    async def wait_and_fail(_text: str) -> bytes:
        raise LookupError

    def serialize(text: str) -> Any:
        if text == "good":
            return b""
        if asynchronous:
            return wait_and_fail(text)
        raise LookupError

    with running(one_topic(), value_serializer=serialize) as producer:
        with pytest.raises(SerializationError) as caught:
            producer.send_many("t", ["good", "bad"])
        assert caught.value.index == 1


@pytest.mark.parametrize("stalled", [False, True])
def test_a_call_sees_the_context_variables_of_its_thread(
    stalled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which a tracer finds the span that the record belongs to."""
    span: ContextVar[str] = ContextVar("span", default="none")
    seen: list[tuple[str, str]] = []

    class Traced(Producer):
        def send_nowait(self, *args: Any, **options: Any) -> Any:
            seen.append(("send_nowait", span.get()))
            if stalled:
                raise BufferFullError("full")
            return super().send_nowait(*args, **options)

        async def send(self, *args: Any, **options: Any) -> Any:
            seen.append(("send", span.get()))
            return await super().send(*args, **options)

        async def send_many(self, *args: Any, **options: Any) -> Any:
            seen.append(("send_many", span.get()))
            return await super().send_many(*args, **options)

    monkeypatch.setattr("kafkaclient.sync.producer.Producer", Traced)
    fake = one_topic()
    with running(fake) as producer:
        for name in ("first", "second"):
            token = span.set(name)
            producer.send("t", b"1")
            producer.send_many("t", [b"2"])
            span.reset(token)
        producer.flush()
    one = [("send_nowait", "first"), *[("send", "first")] * stalled, ("send_many", "first")]
    assert seen == [*one, *[(call, "second") for call, _ in one]]
    assert values(fake) == [b"1", b"2"] * 2


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("send", "error"),
    [
        (lambda p: p.send("no topic!", b"x"), InvalidRecordError),
        (lambda p: p.send(["t"], b"x"), InvalidRecordError),
        (lambda p: p.send("t", "text"), InvalidRecordError),
        (lambda p: p.send("t", b"x", partition=-1), InvalidRecordError),
        (lambda p: p.send("t", bytes(2000)), RecordTooLargeError),
        (lambda p: p.send_and_wait("t", bytes(2000)), RecordTooLargeError),
    ],
)
def test_an_invalid_record_raises_in_the_call(
    send: Callable[[SyncProducer], object], error: type[Exception]
) -> None:
    fake = one_topic()
    with running(fake, max_request_size=1000) as producer:
        producer.send("t", b"1")  # the topic is known from now on
        with pytest.raises(error):
            send(producer)
    assert values(fake) == [b"1"]


def test_what_the_cluster_refuses_fails_the_future() -> None:
    fake, unseen = one_topic(), []
    with running(fake, max_block_ms=50, on_error=unseen.append) as producer:
        no_topic = producer.send("unknown", b"x")
        no_partition = producer.send("t", b"x", partition=9)
        invalid = producer.send_many("t", [b"x", 5])
        with pytest.raises(MetadataTimeoutError):
            no_topic.result(10)
        assert isinstance(no_partition.exception(10), PartitionOutOfRangeError)
        with pytest.raises(InvalidRecordError) as caught:
            invalid.result(10)
        assert caught.value.index == 1
        with pytest.raises(PartitionOutOfRangeError):
            producer.send_and_wait("t", b"x", partition=9)
    assert unseen == []


def test_one_failed_bulk_is_one_error() -> None:
    fake = one_topic()
    fake.fail_produce("t", 0, POLICY_VIOLATION)
    with running(fake) as producer, pytest.raises(BulkDeliveryError) as caught:
        producer.send_many("t", [b"1", b"2"]).result(10)
    assert caught.value.failures[0].records == 2


def _sends(producer: SyncProducer) -> list[Future[Any]]:
    return [producer.send("t", b"1"), producer.send_many("t", [b"2"])]


def test_a_failure_that_nobody_reads_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    fake, unseen = one_topic(), []
    fake.fail_produce("t", 0, POLICY_VIOLATION, times=9)
    with running(fake, on_error=unseen.append, max_block_ms=50, linger_ms=0) as producer:
        _sends(producer)
        producer.flush()
        producer.send("unknown", b"3")
        producer.flush()
    gc.collect()
    assert {(f.topic, f.records, type(f.error)) for f in unseen} == {
        ("t", 1, PolicyViolationError),
        ("unknown", 1, MetadataTimeoutError),
    }
    assert all(isinstance(failure, UnseenFailure) for failure in unseen)
    assert sum(failure.records for failure in unseen) == 3
    assert "no caller checked their deliveries" in caplog.text


def _result_raises(future: Any) -> None:
    with pytest.raises(PolicyViolationError):
        future.result(10)


@pytest.mark.parametrize(
    "read",
    [
        lambda f: f.exception(10),
        _result_raises,
        lambda f: f.add_done_callback(lambda _: None),
        lambda f: wait([f], 10),
    ],
    ids=["exception", "result", "callback", "wait"],
)
def test_a_failure_that_is_read_is_not_reported(read: Callable[[Any], object]) -> None:
    fake, unseen = one_topic(), []
    fake.fail_produce("t", 0, POLICY_VIOLATION)
    with running(fake, on_error=unseen.append) as producer:
        read(producer.send("t", b"1"))
        producer.flush()
    gc.collect()
    assert unseen == []


def test_a_failed_start_fails_the_records_and_the_next_call_tries_again() -> None:
    fake = one_topic()
    fake.stop_broker(0)
    producer = SyncProducer(fake.bootstrap, dialer=fake, max_block_ms=100, reconnect_backoff_ms=10)
    first = producer.send("t", b"lost")
    with pytest.raises(BootstrapError):
        first.result(10)
    with pytest.raises(BootstrapError):
        producer.start()
    fake.start_broker(0)
    with producer:
        assert producer.send_and_wait("t", b"written").offset == 0
    assert values(fake) == [b"written"]
    assert threads() == []


def test_healthy_says_why_not() -> None:
    fake = one_topic()
    fake.stop_broker(0)
    producer = SyncProducer(fake.bootstrap, dialer=fake, max_block_ms=100)
    assert "the producer does not run" in str(producer.healthy())
    fake.start_broker(0)
    assert producer.healthy()
    producer.send_and_wait("t", b"x")
    fake.stop_broker(0)
    health = producer.healthy()
    assert not health
    assert "no leader of the topics in use answers" in str(health)
    assert producer.close() == 0
    assert "is closed" in str(producer.healthy())


def test_a_probe_ends_in_time_although_the_thread_is_busy() -> None:
    with running(one_topic()) as producer:
        with _busy(producer):
            began = time.monotonic()
            health = producer.healthy(timeout=0.1)
            assert not health
            assert str(health) == "the producer's thread does not respond"
            with pytest.raises(KafkaTimeoutError, match=r"does not respond within 0\.1 s"):
                producer.metrics(timeout=0.1)
            assert time.monotonic() - began < 2
        assert producer.healthy()


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.metrics(),
        lambda p: p.partitions_for("t"),
        lambda p: p.send("t", "x"),
        lambda p: p.flush(),
        lambda p: str(p.healthy()),
    ],
    ids=["metrics", "partitions_for", "send", "flush", "healthy"],
)
@pytest.mark.parametrize("closed", [False, True])
def test_a_call_ends_although_the_thread_ends(
    call: Callable[[SyncProducer], object], closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coroutine is scheduled when the thread's main task has ended; it never runs."""

    async def serialize(text: str) -> bytes:
        return text.encode()

    fake = one_topic()
    producer = SyncProducer(fake.bootstrap, dialer=fake, value_serializer=serialize)
    producer.start()
    thread = producer._thread
    assert thread is not None
    in_loop = thread._in_loop

    def too_late(callback: Any, *args: Any) -> bool:
        if callback != thread._begin:
            return in_loop(callback, *args)
        if closed:
            producer.close()
            return in_loop(callback, *args)
        threading.Timer(0.05, producer.close).start()
        return True

    monkeypatch.setattr(thread, "_in_loop", too_late)
    ended: list[object] = []

    def work() -> None:
        try:
            ended.append(call(producer))
        except ProducerClosedError as error:
            ended.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(5)
    assert len(ended) == 1
    gc.collect()


def test_a_close_ends_a_call_that_is_at_work() -> None:
    serializing = threading.Event()

    async def serialize(_text: str) -> bytes:
        serializing.set()
        await asyncio.sleep(1000)
        return b""

    fake = one_topic()
    producer = SyncProducer(fake.bootstrap, dialer=fake, value_serializer=serialize)
    producer.start()

    def close() -> None:
        serializing.wait()
        producer.close(0.1)

    threading.Thread(target=close).start()
    with pytest.raises(ProducerClosedError, match="is closed"):
        producer.send("t", "x")
    with pytest.raises(ProducerClosedError, match="is closed"):
        producer.start()


def test_healthy_while_the_producer_is_being_started() -> None:
    fake = one_topic()
    fake.stall_broker(0)
    producer = SyncProducer(fake.bootstrap, dialer=fake)
    assert str(producer.healthy(0.05)).endswith("does not run: it is being started")
    producer.close(0)


def test_a_flush_of_nothing_does_not_time_out() -> None:
    with running(one_topic()) as producer:
        producer.flush(0)
        producer.send_and_wait("t", b"x")
        producer.flush(0)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"values": "abc"}, "values must be a sequence"),
        ({"values": b"abc"}, "values must be a sequence"),
        ({"values": None}, "values must be a sequence"),
        ({"values": ["a"], "keys": "k"}, "keys must be a sequence"),
        ({"values": ["a"], "headers": 5}, "headers"),
    ],
)
def test_a_column_that_is_no_sequence(column: Any, text: str) -> None:
    fake = one_topic()
    options = {"value_serializer": lambda v: b"%r" % v}
    with running(fake, **options) as producer, pytest.raises(InvalidRecordError, match=text):
        producer.send_many("t", **column)
    assert values(fake) == []


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_callback_that_raises_holds_up_no_other_future(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise error

    with running(one_topic(), linger_ms=100) as producer:
        producer.send_and_wait("t", b"0")
        first = producer.send("t", b"1")
        first.add_done_callback(fail)
        second = producer.send("t", b"2")
        second.add_done_callback(lambda _: None)
        assert second.result(5).offset == 2
        assert producer.send_and_wait("t", b"3").offset == 3
    assert "a callback of a record's future failed" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_serializer_that_ends_the_program_ends_only_its_record(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def serialize(text: str) -> bytes:
        if text == "bad":
            raise error
        return text.encode()

    with running(one_topic(), value_serializer=serialize) as producer:
        before = producer.send("t", "1")
        with pytest.raises(KafkaError):
            producer.send("t", "bad")
        assert producer.send_and_wait("t", "2").offset == 1
        assert before.result(5).offset == 0
    assert "code of the application raised" in caplog.text


def test_metrics_without_partitions() -> None:
    with running(one_topic()) as producer:
        producer.send_and_wait("t", b"x")
        assert producer.metrics().partitions
        assert not producer.metrics(partitions=False).partitions
    assert not producer.metrics(partitions=False).partitions


def test_no_transactions() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        SyncProducer("127.0.0.1:1", transactional_id="t")


# --- back-pressure --------------------------------------------------------------------------------


def _stalled(**options: Any) -> tuple[FakeCluster, Any]:
    """A producer whose broker answers nothing more once the producer has started."""
    fake = one_topic()
    producer = SyncProducer(
        fake.bootstrap, dialer=fake, batch_size=1000, buffer_memory=2000, linger_ms=0, **options
    )
    producer.send_and_wait("t", b"0")
    fake.stall_broker(0)
    return fake, producer


def test_a_full_buffer_makes_the_call_wait_and_loses_nothing() -> None:
    fake, producer = _stalled(max_request_size=1000)
    value, futures = bytes(900), []

    def send() -> None:
        futures.extend([producer.send("t", value) for _ in range(2000)])

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(0.3)
    assert sender.is_alive()
    metrics = producer.metrics().producer  # the loop does not wait
    assert metrics["buffer-available-bytes"] < 900
    fake.resume_broker(0)
    sender.join(30)
    producer.flush(30)
    assert [future.result(0).offset for future in futures] == list(range(1, 2001))
    producer.close()


def test_a_call_waits_for_max_block_ms_at_most() -> None:
    """Then the call raises, or the record's future has the error: as long as it is one of them."""
    fake, producer = _stalled(max_request_size=1000, max_block_ms=200)
    value, futures, raised, longest = bytes(900), [], 0, 0.0
    for _ in range(3000):
        began = time.monotonic()
        try:
            futures.append(producer.send("t", value))
        except BufferFullError:
            raised += 1
        longest = max(longest, time.monotonic() - began)
    assert 0.05 < longest < 5
    late = futures[-1].exception(10)
    assert isinstance(late, BufferFullError)
    assert "found no room" in str(late)
    fake.resume_broker(0)
    producer.flush(30)
    written = sum(future.exception(0) is None for future in futures)
    assert 1 <= written < len(futures)
    assert len(values(fake)) == 1 + written
    producer.close()


def test_with_max_block_ms_0_a_burst_fits_all_the_same() -> None:
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
    with running(one_topic(auto_create_topics=False), max_block_ms=300) as producer:
        producer.send_and_wait("t", b"0")
        began = time.monotonic()
        futures: list[Future[Any]] = []
        for _ in range(10):
            futures += [producer.send_many("unknown", [b"x"]), producer.send("unknown", b"x")]
        producer.flush(20)
        for future in futures:
            assert isinstance(future.exception(0), MetadataTimeoutError)
        assert time.monotonic() - began < 3


def test_records_of_a_topic_beyond_buffer_memory_make_the_call_wait() -> None:
    with running(
        one_topic(auto_create_topics=False),
        max_block_ms=500,
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


def test_a_close_in_time_fails_what_waits_for_metadata() -> None:
    with running(one_topic(auto_create_topics=False)) as producer:
        producer.send_and_wait("t", b"x")
        futures: list[Future[Any]] = [producer.send_many("unknown", [b"x", b"y"])]
        futures += [producer.send("unknown", b"x"), producer.send("t", b"x", partition=3)]
        assert producer.close(0.1) == 3 - futures[2].done()
        for future in futures[:2]:
            error = future.exception(0)
            assert isinstance(error, ProducerClosedError)
            assert not error.maybe_written
    assert threads() == []


def test_a_close_in_time_says_what_a_broken_off_send_many_has_sent() -> None:
    _, producer = _stalled(max_request_size=1000)
    future = producer.send_many("t", [bytes(400)] * 100)
    behind = producer.send_many("t", [b"x"])
    assert producer.close(0.3) > 1
    error = future.exception(0)
    assert isinstance(error, ProducerClosedError)
    assert error.maybe_written
    assert "records were handed over, the others were not sent" in str(error)
    assert error.delivery.done()
    refused = behind.exception(0)
    assert isinstance(refused, ProducerClosedError)
    assert not refused.maybe_written


def test_a_record_whose_time_ends_as_it_is_appended_is_written_once() -> None:
    """Its send has finished, and its limit is over, in one iteration of the event loop."""
    fake, producer = _stalled(max_request_size=1000, max_block_ms=300)
    first = [producer.send("t", bytes(900)) for _ in range(2)]
    waiting = producer.send("t", bytes(800))
    first[0].add_done_callback(lambda _: time.sleep(0.5))
    fake.resume_broker(0)
    error = waiting.exception(10)
    producer.flush(10)
    written = [len(value or b"") for value in values(fake)].count(800)
    assert written == (error is None)
    assert producer.close() == 0


# --- waiting --------------------------------------------------------------------------------------


def test_a_flush_that_ends_too_early_names_the_records() -> None:
    fake, producer = _stalled(max_request_size=1000)
    future = producer.send("t", b"x")
    with pytest.raises(FlushTimeoutError) as caught:
        producer.flush(0.2)
    assert caught.value.undelivered == 1
    with pytest.raises(TimeoutError):
        future.result(0.01)
    fake.resume_broker(0)
    producer.flush(10)
    assert future.result(0).offset == 1
    producer.close()


def test_a_close_in_time_fails_what_is_left() -> None:
    _, producer = _stalled(max_request_size=1000)
    futures = [producer.send("t", bytes(900)) for _ in range(20)]  # some fill the handover
    assert producer.close(0.1) == 20
    for future in futures:
        assert isinstance(future.exception(0), ProducerClosedError)
    assert threads() == []


def test_futures_work_with_what_the_standard_library_has() -> None:
    fake = one_topic()
    called: list[str] = []
    with running(fake) as producer:
        futures = [producer.send("t", b"%d" % n) for n in range(10)]
        assert wait(futures, 10).not_done == set()
        assert set(as_completed(futures, 10)) == set(futures)
        future = producer.send("t", b"x")
        assert not future.cancel()
        assert not future.cancelled()
        future.add_done_callback(lambda _: called.append(threading.current_thread().name))
        future.result(10)
        producer.flush()
        assert called[0].startswith("kafkaclient-")
        future.add_done_callback(lambda f: called.append(f"{f.result().offset}"))
        assert called[1] == "10"
        assert "offset=10" in repr(future)
        with pytest.raises(TypeError):
            copy.copy(future)
        with pytest.raises(TypeError):
            copy.copy(producer)


def test_the_first_failure_ends_a_wait_for_it() -> None:
    fake, producer = _stalled(max_request_size=1000, max_block_ms=100)
    pending, failing = producer.send("t", b"x"), producer.send("unknown", b"x")
    found = wait([pending, failing], 10, return_when=FIRST_EXCEPTION)
    assert found.done == {failing}
    fake.resume_broker(0)
    producer.close()


async def test_in_the_thread_of_an_event_loop() -> None:
    fake = one_topic()
    producer = SyncProducer(fake.bootstrap, dialer=fake)
    metadata = await asyncio.wrap_future(producer.send("t", b"x"))
    assert metadata.offset == 0
    calls: list[Callable[[], object]] = [
        producer.start,
        producer.flush,
        producer.close,
        producer.metrics,
        lambda: producer.send_and_wait("t", b"y"),
        lambda: producer.partitions_for("t"),
        producer.healthy,
        lambda: producer.send("t", b"z").result(),
    ]
    for call in calls:
        with pytest.raises(ProducerStateError, match="event loop"):
            call()
    assert await asyncio.to_thread(producer.close) == 0
    assert values(fake) == [b"x", b"z"]


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_newer_versions_of_asyncio_can_await_the_future(
    done: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read the fields of a concurrent future that is done (python/cpython#134173)."""

    def copy_state(source: Any, dest: asyncio.Future[Any]) -> None:
        if dest.cancelled():
            return
        assert source._state == "FINISHED"
        result, exception = source._result, source._exception
        if exception is not None:
            dest.set_exception(exception)
        else:
            dest.set_result(result)

    monkeypatch.setattr(asyncio.futures, "_copy_future_state", copy_state)
    fake, unseen = one_topic(), []
    if fails:
        fake.fail_produce("t", 0, POLICY_VIOLATION)
    producer = SyncProducer(fake.bootstrap, dialer=fake, on_error=unseen.append)
    future = producer.send("t", b"x")
    if done:
        await asyncio.to_thread(producer.flush)
    waited = asyncio.wait_for(asyncio.wrap_future(future), 5)
    if fails:
        with pytest.raises(PolicyViolationError):
            await waited
    else:
        assert (await waited).offset == 0
    assert await asyncio.to_thread(producer.close) == 0
    assert unseen == []


def test_a_callback_that_would_wait_gets_a_clear_error() -> None:
    fake = one_topic()
    told: list[BaseException | None] = []
    with running(fake) as producer:

        def send_again(_: object) -> None:
            again = producer.send("t", b"2")
            try:
                again.result()
            except ProducerStateError as error:
                told.append(error)

        producer.send("t", b"1").add_done_callback(send_again)
        producer.flush()
    assert len(told) == 1
    assert values(fake) == [b"1", b"2"]


# --- dropped ------------------------------------------------------------------------------------


def test_a_dropped_producer_warns_and_sends_its_records() -> None:
    fake = one_topic()
    producer = SyncProducer(fake.bootstrap, dialer=fake, linger_ms=50)
    producer.start()
    thread = producer._thread
    assert thread is not None
    future = producer.send("t", b"x")
    dropped = [producer]
    del producer
    with pytest.warns(ResourceWarning, match="unclosed <SyncProducer"):
        dropped.clear()
    assert thread.ended.result(10) == 0
    assert future.result(0).offset == 0


def test_a_delivery_timeout_fails_the_future() -> None:
    fake, producer = _stalled(
        max_request_size=1000, request_timeout_ms=100, delivery_timeout_ms=200
    )
    assert isinstance(producer.send("t", b"x").exception(10), DeliveryTimeoutError)
    fake.resume_broker(0)
    producer.close()


def test_a_defect_of_the_thread_fails_everything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    fake = one_topic()
    producer = SyncProducer(fake.bootstrap, dialer=fake)
    producer.start()
    thread = producer._thread
    assert thread is not None

    def fail() -> None:
        raise LookupError("a defect")

    monkeypatch.setattr(thread.handover, "take", fail)
    producer.send("t", b"x")
    with pytest.raises(LookupError):
        thread.ended.result(10)
    with pytest.raises(ProducerClosedError, match="defect"):
        producer.send("t", b"y")
