"""Sending single records with ``SyncProducer`` on a fake cluster."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import pytest

from kafkaclient import BulkMetadata, Producer, RecordMetadata, SyncProducer
from kafkaclient.errors import (
    BufferFullError,
    ConfigError,
    ProducerClosedError,
    ProducerStateError,
)
from tests.sync.support import one_topic, running, threads, values


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


def test_no_transactions() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        SyncProducer("127.0.0.1:1", transactional_id="t")
