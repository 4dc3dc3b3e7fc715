"""A good citizen of the event loop: cancellation, defects, clean ends.

Ids such as ``A1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    KafkaError,
    ProducerClosedError,
    ProducerStateError,
    SerializationError,
)
from kafkaclient.producer.batches import batch as batch_module
from kafkaclient.producer.producer import Producer
from kafkaclient.producer.sender import responses
from kafkaclient.testing.clock import VirtualTimeLoop, run_virtual, virtual_time
from kafkaclient.testing.fake import FakeCluster, delay
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer

ASYNCIO_DEBUG = True


def all_values(fake: FakeCluster) -> list[bytes]:
    return [record.value or b"" for p in range(3) for record in fake.log("t", p)]


# --- A1, A2: cancellation ---------------------------------------------------------------------


@virtual_time
async def test_send_cancelled_at_every_step(producing: StartProducer) -> None:
    """A1: before the append never sent, after it sent; awaiting never takes a record back."""
    fake = one_topic(round_trip_s=0.002)
    appended = set()
    async with producing(fake, linger_ms=1) as producer:

        async def caller(value: bytes) -> None:
            delivery = await producer.send("t", value)
            appended.add(value)
            await delivery

        for steps in range(60):
            if steps % 2:  # as if the topic were new
                inspect(producer).metadata._topics.by_name.clear()
                inspect(producer).metadata._replace_view(
                    replace(inspect(producer).metadata.view, topics={})
                )
            task = asyncio.create_task(caller(b"%d" % steps))
            for _ in range(steps // 2):
                await asyncio.sleep(0.0002)
            task.cancel()
            await asyncio.wait({task})
        await producer.flush()
    assert sorted(all_values(fake)) == sorted(appended)
    assert 0 < len(appended) < 60


@virtual_time
async def test_cancelling_one_caller_never_touches_another(producing: StartProducer) -> None:
    """A2: three callers of one batch, each cancelled in turn at each step."""
    for steps in range(12):
        for victim in range(3):
            fake = one_topic(1, round_trip_s=0.002)
            async with producing(fake) as producer:
                tasks = [
                    asyncio.create_task(producer.send_and_wait("t", b"%d" % n, partition=0))
                    for n in range(3)
                ]
                await asyncio.sleep(0.001 * steps)
                tasks[victim].cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                for n, result in enumerate(results):
                    assert n == victim or not isinstance(result, BaseException)


@virtual_time
async def test_flush_and_stop_can_be_cancelled(producing: StartProducer) -> None:
    """A1: a cancelled flush harms nothing; a cancelled stop goes on in the background."""
    fake = one_topic(round_trip_s=0.002)
    fake.control(ApiKey.PRODUCE, delay(1.0))
    async with producing(fake) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.flush(), 0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.stop(), 0.1)
        with pytest.raises(ProducerClosedError, match="being stopped"):
            await producer.send("t", b"too late")
        assert await producer.stop() == 0
        assert delivery.exception() is None


@virtual_time
async def test_a_cancelled_start_leaves_nothing() -> None:
    """A1, A6: the bootstrap hangs, the caller gives up."""
    fake = FakeCluster()
    for node in range(3):
        fake.stall_broker(node, swallow_dials=True)
    producer = Producer(fake.bootstrap, dialer=fake)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.start(), 1.0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"v")
    assert await producer.stop() == 0


@virtual_time
async def test_a_delivery_works_with_asyncios_tools(producing: StartProducer) -> None:
    """A1: gather, wait_for, several awaits, callbacks on the loop's own thread (A3)."""
    fake = one_topic(round_trip_s=0.002)
    fake.control(ApiKey.PRODUCE, delay(1.0))
    threads = []
    async with producing(fake) as producer:
        delivery = await producer.send("t", b"v")
        delivery.add_done_callback(lambda _: threads.append(threading.current_thread()))
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.1)
        one, two = await asyncio.gather(delivery, delivery)
        assert one == two == await delivery == delivery.result()
        await asyncio.sleep(0)
        assert threads == [threading.main_thread()]


# --- L8: defects ------------------------------------------------------------------------------


@virtual_time
async def test_a_serializer_that_raises_hits_its_record_only(producing: StartProducer) -> None:
    """L8: typed, chained, and at once."""

    def serialize(item: Any) -> Any:
        return 1 // item if isinstance(item, int) else item

    fake = one_topic(round_trip_s=0.002)
    async with producing(fake, value_serializer=serialize) as producer:
        with pytest.raises(SerializationError, match="ZeroDivisionError") as caught:
            await producer.send("t", 0)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(SerializationError, match="int"):
            producer.send_nowait("t", 1)  # gives 1, which is not bytes
        await producer.send_and_wait("t", b"good")


@virtual_time
async def test_hooks_that_raise_are_only_reported(producing: StartProducer) -> None:
    """L8: on_delivery through the loop's exception handler, on_error in the log."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    fake = one_topic(round_trip_s=0.002)
    async with producing(fake, on_delivery=broken, on_error=broken) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        fake.fail_produce("t", 0, 87)
        await producer.send("t", b"refused", partition=0)
        await producer.flush()
        await producer.send_and_wait("t", b"2", partition=0)
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError] * 3


@virtual_time
async def test_a_codec_that_fails_costs_its_batch_only(
    producing: StartProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: other partitions go on, and so does the one concerned."""
    fake = one_topic(round_trip_s=0.002)
    async with producing(fake, compression_type="gzip") as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        bad = await producer.send("t", b"bad", partition=0)
        good = await producer.send("t", b"good", partition=1)
        with monkeypatch.context() as patch:
            pack = failing(batch_module.pack, lambda _codec, plain, _level: b"bad" in plain)
            patch.setattr(batch_module, "pack", pack)
            await good
            with pytest.raises(KafkaError, match="gzip failed: ZeroDivisionError"):
                await bad
        await producer.send_and_wait("t", b"next", partition=0)
        assert sorted(all_values(fake)) == [b"first", b"good", b"next"]


def failing(method: Any, when: Any) -> Any:
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            raise ZeroDivisionError
        return method(*args, **kwargs)

    return replacement


@pytest.mark.parametrize("code", [19, 87])
@virtual_time
async def test_a_defect_in_handling_an_answer_costs_its_batch_only(
    code: int, producing: StartProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: no delivery is left pending, the memory comes back, the partition goes on."""
    fake = one_topic(round_trip_s=0.002)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.fail_produce("t", 0, code)
        broken = failing(responses.rejection, lambda *_: True)
        monkeypatch.setattr(responses, "rejection", broken)
        bad = await producer.send("t", b"bad", partition=0)
        good = await producer.send("t", b"good", partition=1)
        with pytest.raises(KafkaError, match="this is a defect"):
            await bad
        monkeypatch.undo()
        await good
        await producer.send_and_wait("t", b"next", partition=0)


@virtual_time
async def test_a_crashed_sender_fails_everything_with_its_cause(
    producing: StartProducer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """L8: pending records, parked ones, waiting callers and later sends; logged once."""
    fake = FakeCluster(auto_create_topics=False)
    fake.create_topic("t", 1)
    async with producing(fake, buffer_memory=4096, linger_ms=1000) as producer:
        pending = await producer.send("t", bytes(1500))
        parked = producer.send_nowait("missing", bytes(1000))
        waiting = asyncio.create_task(producer.send("t", bytes(3000)))
        monkeypatch.setattr(inspect(producer).sender._wakeup, "_work", lambda _: 1 // 0)
        await asyncio.sleep(0.1)
        for failed in (pending, parked, waiting):
            with pytest.raises(ProducerClosedError, match="ZeroDivisionError") as caught:
                await failed
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(ProducerClosedError, match="ZeroDivisionError"):
            await producer.send("t", b"v")
        started = now()
        assert await producer.stop() == 0
        assert now() == started
    logged = [record.message for record in caplog.records]
    assert logged.count("the sender failed; the producer cannot go on") == 1


# --- A4, A6: beginnings and ends ----------------------------------------------------------------


def test_constructing_opens_nothing() -> None:
    """A4: no loop, no connection, no thread, no warning when it is dropped."""
    fake = FakeCluster()
    threads = set(threading.enumerate())
    producer = Producer(fake.bootstrap, dialer=fake)
    assert "has not been started" in repr(producer)
    assert set(threading.enumerate()) <= threads
    assert not fake.requests
    del producer
    gc.collect()


@virtual_time
async def test_use_in_the_wrong_state_is_a_typed_error(producing: StartProducer) -> None:
    """A4, A6: before start and after stop."""
    fake = one_topic(round_trip_s=0.002)
    producer = Producer(fake.bootstrap, dialer=fake)
    with pytest.raises(ProducerStateError, match="has not been started"):
        producer.send_nowait("t", b"v")
    with pytest.raises(ProducerStateError):
        await producer.flush()
    await producer.start()
    with pytest.raises(ProducerStateError, match="cannot be started"):
        await producer.start()
    await asyncio.gather(producer.stop(), producer.stop())
    with pytest.raises(ProducerClosedError, match="is stopped"):
        await producer.send("t", b"v")
    with pytest.raises(ProducerStateError):
        await producer.start()
    assert await producer.stop() == 0
    assert "is stopped" in repr(producer)


def test_no_timer_and_no_task_survives_stop(producing: StartProducer) -> None:
    """A6: the loop is as empty as before; many records do not grow the timer heap."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        fake = one_topic(round_trip_s=0.002)
        async with producing(fake) as producer:
            for n in range(3000):
                await producer.send("t", b"v", key=b"%d" % n)
            await producer.flush()
            assert len(loop._scheduled) < 50
            with pytest.raises(TimeoutError):  # a caller who gave up leaves nothing either
                await asyncio.wait_for(producer.send("nowhere", b"v", partition=99), 0.001)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [handle for handle in loop._scheduled if not handle.cancelled()] == []

    run_virtual(main())


def test_an_interrupted_program_ends_cleanly(producing: StartProducer) -> None:
    """A6: as by Ctrl-C: the main task is cancelled inside ``async with``."""
    fake = one_topic(round_trip_s=0.002)

    async def main() -> None:
        async with producing(fake, linger_ms=5000) as producer:
            await producer.send("t", b"kept")
            await asyncio.sleep(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main())
    assert all_values(fake) == [b"kept"]


def test_an_unclosed_producer_is_told_of() -> None:
    """A6: ResourceWarning, as for a file that nobody closed."""

    async def main() -> None:
        producer = Producer(FakeCluster().bootstrap, dialer=fake)
        await producer.start()

    fake = FakeCluster()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_virtual(main())
        gc.collect()
    assert any("unclosed producer" in str(w.message) for w in caught)


class CoarseLoop(VirtualTimeLoop):
    """Rounds timers to whole milliseconds, as uvloop does."""

    def call_later(self, delay: float, callback: Any, *args: Any, **kwargs: Any) -> Any:
        return super().call_later(round(delay, 3), callback, *args, **kwargs)


def test_a_loop_with_coarse_timers_is_not_kept_busy(producing: StartProducer) -> None:
    """A linger of less than half a millisecond is no timer at all there."""

    async def main() -> None:
        fake = one_topic(1, round_trip_s=0.002)
        async with producing(fake, linger_ms=0.4) as producer:
            await producer.send_and_wait("t", b"0")
            passes, real = [], inspect(producer).sender._wakeup._work

            def run_once(at: float) -> Any:
                passes.append(at)
                assert len(passes) < 1000
                return real(at)

            inspect(producer).sender._wakeup._work = run_once
            for _ in range(20):
                await producer.send_and_wait("t", b"v")
                await asyncio.sleep(0.01)
            assert len(passes) < 20 * 8

    with asyncio.Runner(loop_factory=CoarseLoop) as runner:
        runner.run(main())
