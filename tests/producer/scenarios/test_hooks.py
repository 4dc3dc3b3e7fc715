"""The option ``hooks``: every batch and every request is seen once, with its true outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafkaclient import FinishedBatch, FinishedRequest, Hooks
from kafkaclient.errors import (
    BrokerConnectionError,
    ConfigError,
    DeliveryTimeoutError,
    ProducerClosedError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, ErrorCode, delay
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer


class Seen(Hooks):
    def __init__(self) -> None:
        self.batches: list[FinishedBatch] = []
        self.requests: list[FinishedRequest] = []

    def on_batch(self, batch: FinishedBatch) -> None:
        self.batches.append(batch)

    def on_request(self, request: FinishedRequest) -> None:
        self.requests.append(request)


@virtual_time
async def test_every_record_is_in_one_batch(producing: StartProducer) -> None:
    fake, seen = one_topic(round_trip_s=0.001), Seen()
    async with producing(fake, hooks=seen, linger_ms=5) as producer:
        deliveries = [producer.send_nowait("t", b"%d" % n) for n in range(500)]
        await producer.flush()
    assert sum(batch.records for batch in seen.batches) == 500
    for batch in seen.batches:
        assert batch.error is None
        assert batch.attempts == 1
        assert batch.broker == fake.leader("t", batch.partition)
        assert batch.sent_s is not None
        assert batch.bound_s is not None
        assert batch.created_s <= batch.bound_s <= batch.sent_s < batch.done_s <= now()
    firsts = {(batch.partition, batch.base_offset) for batch in seen.batches}
    assert firsts <= {(d.result().partition, d.result().offset) for d in deliveries}
    produced = [request for request in seen.requests if request.api == "PRODUCE"]
    assert len(produced) == len(fake.requests_of(ApiKey.PRODUCE))
    assert all(r.latency_s > 0 and r.response_bytes > 0 and r.error is None for r in produced)
    assert {request.api for request in seen.requests} >= {"PRODUCE", "METADATA", "API_VERSIONS"}
    assert any(request.broker < 0 for request in seen.requests)


@virtual_time
async def test_failures_are_seen_with_their_error(producing: StartProducer) -> None:
    fake, seen = one_topic(), Seen()
    async with producing(
        fake, hooks=[seen], delivery_timeout_ms=2000, request_timeout_ms=1000
    ) as producer:
        await producer.send_and_wait("t", b"v", partition=0)
        fake.control(ApiKey.PRODUCE, DROP, keep=True)
        lost = producer.send_nowait("t", b"v", partition=0)
        with pytest.raises(DeliveryTimeoutError):
            await lost
        fake.control(ApiKey.PRODUCE, delay(30.0), keep=True)
        left = [producer.send_nowait("t", b"v", partition=1)]
        await asyncio.sleep(0.1)
        await producer.stop(timeout=0.1)
        assert isinstance(left[0].exception(), ProducerClosedError)
    delivered, expired, given_up = seen.batches
    assert delivered.error is None
    assert isinstance(expired.error, DeliveryTimeoutError)
    assert (expired.partition, expired.broker, expired.base_offset) == (0, 0, -1)
    assert expired.attempts >= 1
    assert isinstance(given_up.error, ProducerClosedError)
    failed = [r for r in seen.requests if r.api == "PRODUCE" and r.error is not None]
    assert failed
    assert all(r.response_bytes == 0 and r.latency_s >= 0 for r in failed)
    assert any(isinstance(r.error, BrokerConnectionError) for r in failed)


@virtual_time
async def test_a_refused_batch_is_seen_once(producing: StartProducer) -> None:
    fake, seen = one_topic(), Seen()
    async with producing(fake, hooks=seen) as producer:
        fake.fail_produce("t", 0, ErrorCode.INVALID_RECORD)
        refused = producer.send_nowait("t", b"v", partition=0)
        await producer.flush()
        error = refused.exception()
    assert [batch.error for batch in seen.batches] == [error]


@virtual_time
async def test_the_parts_of_a_split_batch_are_seen(producing: StartProducer) -> None:
    fake, seen = one_topic(max_message_bytes=2000), Seen()
    async with producing(fake, hooks=seen, linger_ms=5, batch_size=16384) as producer:
        for _ in range(10):
            producer.send_nowait("t", b"x" * 500, partition=0)
        await producer.flush()
    assert len(seen.batches) > 1
    assert sum(batch.records for batch in seen.batches) == 10


@virtual_time
async def test_a_hook_that_raises_changes_nothing(
    producing: StartProducer, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Hooks):
        def on_batch(self, batch: FinishedBatch) -> None:
            raise RuntimeError("broken hook")

        def on_request(self, request: FinishedRequest) -> None:
            raise RuntimeError("broken hook")

    seen = Seen()
    async with producing(one_topic(), hooks=[Broken(), seen]) as producer:
        await producer.send_and_wait("t", b"v")
    assert len(seen.batches) == 1
    assert seen.requests
    assert "broken hook" in caplog.text
    caplog.clear()


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit])
@virtual_time
async def test_a_hook_that_raises_what_is_no_exception_changes_nothing(
    producing: StartProducer, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    class Broken(Hooks):
        def on_batch(self, batch: FinishedBatch) -> None:
            raise error

        def on_request(self, request: FinishedRequest) -> None:
            raise error

    async with producing(one_topic(), hooks=Broken()) as producer:
        await producer.send_and_wait("t", b"v")
    assert "failed on" in caplog.text
    caplog.clear()


@virtual_time
async def test_hooks_see_batches_beside_telemetry(
    producing: StartProducer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seen, directory = Seen(), tmp_path_factory.mktemp("facts")
    async with producing(one_topic(), hooks=seen, telemetry=directory) as producer:
        await producer.send_and_wait("t", b"v")
    assert len(seen.batches) == 1
    assert list(directory.iterdir())


@virtual_time
async def test_hooks_that_override_nothing_cost_nothing(producing: StartProducer) -> None:
    async with producing(one_topic(), hooks=Hooks()) as producer:
        core = producer._core
        assert core is not None
        assert core.accumulator.observer is None


@pytest.mark.parametrize("given", [Seen, lambda batch: None, [Seen(), None], "Seen"])
def test_what_is_no_hooks_object_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match=r"give a kafkaclient\.hooks\.Hooks, or a list of them"):
        Producer("localhost:9092", hooks=given)


def test_async_hooks_are_refused() -> None:
    class Waiting(Hooks):
        async def on_batch(self, batch: FinishedBatch) -> None:  # type: ignore[override]
            await asyncio.sleep(0)

    with pytest.raises(ConfigError, match="hooks="):
        Producer("localhost:9092", hooks=Waiting())
