"""Serializers of a ``SyncProducer``."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import SyncProducer
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import (
    KafkaError,
    ProducerClosedError,
    ProducerStateError,
    SerializationError,
)
from tests.sync.support import busy, one_topic, running, values

if TYPE_CHECKING:
    from kafkaclient import SerializationContext


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

    with running(one_topic(), value_serializer=never, max_block_ms=500) as producer:
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

    with running(one_topic(), value_serializer=stubborn, max_block_ms=500) as producer:
        send = partial(producer.send_many, "t", ["1"]) if bulk else partial(producer.send, "t", "1")
        began = time.monotonic()
        in_the_end = threading.Timer(30, ended.set)
        in_the_end.start()
        with pytest.raises(SerializationError, match="has not finished"):
            send()
        assert time.monotonic() - began < 15
        in_the_end.cancel()
        ended.set()


def test_a_call_with_an_async_serializer_ends_also_if_the_thread_is_busy() -> None:
    async def serialize(text: str) -> bytes:
        return text.encode()

    with running(one_topic(), value_serializer=serialize, max_block_ms=500) as producer:
        with busy(producer), pytest.raises(SerializationError, match="thread does not respond"):
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
        between = time.monotonic()
        producer.send_many("t", ["2"])
        first, second = entries
        # Each deadline counts from before the serializer's 0.2 s, which a timer may shorten a bit.
        assert began + 60 <= first[0][4] == first[1][1] <= between + 60 - 0.19
        assert between + 60 <= second[0][4] == second[1][1] <= time.monotonic() + 60 - 0.19


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


def test_a_close_leaves_no_serializer_behind(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a task that is destroyed while it is pending, nor a coroutine that never began."""

    async def serialize(text: str) -> bytes:
        await asyncio.sleep(0)
        return text.encode()

    def send(producer: SyncProducer) -> None:
        with suppress(ProducerClosedError):
            while True:
                producer.send("t", "x")

    for _ in range(5):
        producer = SyncProducer(
            (fake := one_topic()).bootstrap, dialer=fake, value_serializer=serialize
        )
        producer.start()
        senders = [threading.Thread(target=send, args=(producer,)) for _ in range(2)]
        for sender in senders:
            sender.start()
        senders[0].join(0.02)
        producer.close()
        for sender in senders:
            sender.join(10)
            assert not sender.is_alive()
        gc.collect()
    assert "destroyed" not in caplog.text


def test_the_configuration_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = ProducerConfig.settle
    monkeypatch.setattr(
        ProducerConfig, "settle", staticmethod(lambda *a: (built.append(a), build(*a)))
    )
    fake = one_topic()
    with running(fake, value_serializer=str.encode) as producer:
        producer.send_and_wait("t", "x")
    assert len(built) == 1
    assert values(fake) == [b"x"]
