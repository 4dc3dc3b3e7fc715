"""A defect costs what it touches, and nothing else: one request, one batch, one callback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import DeliveryTimeoutError, KafkaError
from kafkaclient.producer.batches import batch as batch_module
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.inspect import inspect
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import Outcomes, StartProducer, Values


@pytest.mark.parametrize("acks", [0, -1])
@virtual_time
async def test_a_write_that_fails_costs_its_connection(
    acks: int, producing: StartProducer, values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the transport raises: the batches are sent again, the others notice nothing."""
    fake = one_topic(2, round_trip_s=0.002)
    async with producing(fake, linger_ms=0, acks=acks) as producer:
        for partition in (0, 1):
            await producer.send_and_wait("t", b"0", partition=partition)

        def fail(_: Any) -> None:
            raise RuntimeError("no bytes today")

        transport = inspect(producer).router.produce_connection(0)._transport
        monkeypatch.setattr(transport, "writelines", fail, raising=False)
        deliveries = [await producer.send("t", b"1", partition=n) for n in (0, 1)]
        await asyncio.wait_for(asyncio.gather(*deliveries), 5)
        await producer.send_and_wait("t", b"2", partition=0)
        await asyncio.sleep(0.01)
    assert values(fake, "t", 0) == [b"0", b"1", b"2"]


@virtual_time
async def test_an_answer_that_cannot_be_handled_is_as_good_as_none(
    producing: StartProducer, monkeypatch: pytest.MonkeyPatch, values: Values
) -> None:
    """No batch stays on the wire for ever, whichever part of the way back is broken."""
    fake = one_topic(1, round_trip_s=0.002)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")

        def fail(*_: Any) -> None:
            monkeypatch.undo()
            raise RuntimeError("defect")

        monkeypatch.setattr(inspect(producer).metrics, "throttled", fail)
        await asyncio.wait_for(producer.send_and_wait("t", b"1"), 5)
        await producer.send_and_wait("t", b"2")
    assert values(fake, "t") == [b"0", b"1", b"2"], "a duplicate is known by its sequence"


@virtual_time
async def test_halves_that_cannot_be_made_fail_the_whole(
    producing: StartProducer, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = one_topic(1, brokers=1, max_message_bytes=700)
    async with producing(fake, linger_ms=5) as producer:
        await producer.send_and_wait("t", b"0")
        real, calls = batch_module.pack, []

        def pack(*args: Any) -> bytearray | None:
            calls.append(args)
            if len(calls) == 3:  # the whole, its first half, its second half
                raise RuntimeError("defect")
            return real(*args)

        monkeypatch.setattr(batch_module, "pack", pack)
        deliveries = [await producer.send("t", bytes(100)) for _ in range(10)]
        results = await asyncio.wait_for(outcomes(deliveries), 5)
        assert [type(result) for result in results] == [KafkaError] * 10
        await asyncio.wait_for(producer.send_and_wait("t", b"1"), 5)


@pytest.mark.parametrize("partitioner", ["kip794", "late"])
@virtual_time
async def test_what_gets_ready_during_a_pass_is_sent_at_once(
    partitioner: str, producing: StartProducer, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that cannot be compressed makes way for the next of its queue."""
    fake = one_topic(2, brokers=1, round_trip_s=0.002)
    options = {"partitioner": partitioner, "adaptive_partitioning_enable": partitioner == "kip794"}
    async with producing(fake, linger_ms=0, batch_size=200, **options) as producer:
        await producer.send_and_wait("t", b"0")
        real, broken = batch_module.pack, [True]

        def pack(*args: Any) -> bytearray | None:
            if broken and broken.pop():
                raise RuntimeError("defect")
            return real(*args)

        monkeypatch.setattr(batch_module, "pack", pack)
        partition = 0 if partitioner == "kip794" else None
        deliveries = [producer.send_nowait("t", bytes(150), partition=partition) for _ in range(2)]
        started = now()
        first, second = await outcomes(deliveries)
        assert isinstance(first, KafkaError)
        assert second.has_offset
        assert now() - started < 0.1


@virtual_time
async def test_a_record_sent_from_within_a_pass_keeps_its_deadline(
    producing: StartProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = one_topic(1, round_trip_s=0.002)
    async with producing(fake, linger_ms=0, delivery_timeout_ms=31_000) as producer:
        await producer.send_and_wait("t", b"0")
        metadata, sent = inspect(producer).metadata, []

        def add_topic(_name: str) -> None:  # called in a pass, for each batch that is sent
            if not sent:
                fake.stop_broker(fake.leader("t", 0), elect=False)
                sent.append(producer.send_nowait("t", b"2"))

        monkeypatch.setattr(metadata, "add_topic", add_topic)
        producer.send_nowait("t", b"1")
        await asyncio.sleep(0.01)
        started = now()
        with pytest.raises(DeliveryTimeoutError):
            await asyncio.wait_for(sent[0], 60)
        assert now() - started == pytest.approx(31.0, abs=0.05)


@virtual_time
async def test_a_full_lane_does_not_keep_the_sender_busy(
    producing: StartProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = one_topic(1, round_trip_s=0.002)
    async with producing(fake, linger_ms=0, batch_size=200) as producer:
        await producer.send_and_wait("t", b"0")
        fake.stall_broker(fake.leader("t", 0))
        deliveries = [producer.send_nowait("t", bytes(150)) for _ in range(20)]
        await asyncio.sleep(0.1)
        passes, real = [], inspect(producer).sender._wakeup._work

        def run_once(at: float) -> float:
            passes.append(at)
            return real(at)

        monkeypatch.setattr(inspect(producer).sender._wakeup, "_work", run_once)
        await asyncio.sleep(5)
        assert len(passes) < 10
        fake.resume_broker(fake.leader("t", 0))
        await asyncio.gather(*deliveries)
