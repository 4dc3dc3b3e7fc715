"""``SyncProducer.close`` and ``flush``."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import SyncProducer
from kafkaclient.errors import (
    FlushTimeoutError,
    PartitionOutOfRangeError,
    ProducerClosedError,
)
from tests.sync.support import busy, one_topic, running, stalled, threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future


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
    worker.join(30)
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


def test_a_flush_of_nothing_does_not_time_out() -> None:
    with running(one_topic()) as producer:
        producer.flush(0)
        producer.send_and_wait("t", b"x")
        producer.flush(0)


def test_a_close_in_time_fails_what_waits_for_metadata() -> None:
    with running(one_topic(auto_create_topics=False)) as producer:
        producer.send_and_wait("t", b"x")
        futures: list[Future[Any]] = [producer.send_many("unknown", [b"x", b"y"])]
        futures += [producer.send("unknown", b"x"), producer.send("t", b"x", partition=3)]
        assert isinstance(futures[2].exception(20), PartitionOutOfRangeError)
        assert producer.close(0.1) == 2
        for future in futures[:2]:
            error = future.exception(0)
            assert isinstance(error, ProducerClosedError)
            assert not error.maybe_written
    assert threads() == []


def test_a_close_in_time_says_what_a_broken_off_send_many_has_sent() -> None:
    _, producer = stalled(max_request_size=1000)
    future = producer.send_many("t", [bytes(400)] * 100)
    behind = producer.send_many("t", [b"x"])
    deadline = time.monotonic() + 20
    while producer.metrics().producer["buffer-available-bytes"] > 1000:
        assert time.monotonic() < deadline
    assert producer.close(0.3) > 1
    error = future.exception(0)
    assert isinstance(error, ProducerClosedError)
    assert error.maybe_written
    assert "records of the call were handed over, the others were not sent" in str(error)
    assert error.delivery.done()
    refused = behind.exception(0)
    assert isinstance(refused, ProducerClosedError)
    assert not refused.maybe_written


def test_a_close_in_time_fails_what_is_left() -> None:
    _, producer = stalled(max_request_size=1000)
    futures = [producer.send("t", bytes(900)) for _ in range(20)]  # some fill the handover
    assert producer.close(0.1) == 20
    for future in futures:
        assert isinstance(future.exception(0), ProducerClosedError)
    assert threads() == []


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


def test_a_second_close_shortens_the_first() -> None:
    _, producer = stalled(max_request_size=1000)
    future = producer.send("t", b"x")
    first = threading.Thread(target=producer.close)
    first.start()
    first.join(0.2)
    assert first.is_alive()
    began = time.monotonic()
    assert producer.close(0.1) == 1
    assert time.monotonic() - began < 5
    assert isinstance(future.exception(0), ProducerClosedError)
    first.join(5)
    assert not first.is_alive()


def test_a_flush_during_a_close_waits_for_the_outcomes() -> None:
    fake, producer = stalled(max_request_size=1000)
    future = producer.send("t", b"x")
    closing = threading.Thread(target=producer.close)
    closing.start()
    closing.join(0.1)
    with pytest.raises(FlushTimeoutError) as caught:
        producer.flush(0.1)
    assert caught.value.undelivered == 1
    threading.Timer(0.2, fake.resume_broker, (0,)).start()
    producer.flush()
    assert future.done()
    closing.join(5)


def test_a_close_during_a_flush_does_not_end_it_early() -> None:
    with running(one_topic(auto_create_topics=False)) as producer:
        producer.send_and_wait("t", b"x")
        future = producer.send_many("unknown", [b"x"])
        threading.Timer(0.1, producer.close, (0.1,)).start()
        producer.flush()
        assert isinstance(future.exception(0), ProducerClosedError)


def test_a_close_ends_in_time_although_the_thread_is_busy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafkaclient.sync.thread._END_S", 0.1)
    producer = SyncProducer((fake := one_topic()).bootstrap, dialer=fake)
    producer.start()
    with busy(producer):
        producer.send("t", b"x")
        assert producer.close(0.1) == 1
    assert "the producer's thread does not respond" in caplog.text
    assert producer.close() == 0


@pytest.mark.parametrize("call", ["close", "flush", "healthy", "metrics"])
def test_a_timeout_is_a_number(call: str) -> None:
    with running(one_topic()) as producer:
        with pytest.raises(TypeError, match=rf"{call}: timeout must be a number of seconds"):
            getattr(producer, call)(timeout="5")
        with pytest.raises(ValueError, match="not NaN"):
            getattr(producer, call)(timeout=float("nan"))
