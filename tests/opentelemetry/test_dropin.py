"""The drop-in for aiokafka: traced as well, and never twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiokafka
import pytest
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor

from kafkaclient.aiokafka import AIOKafkaProducer, install, uninstall
from kafkaclient.opentelemetry import instrument_producer, uninstrument_producer
from kafkaclient.testing.clock import virtual_time
from tests.aiokafka_dropin.support import dropin
from tests.opentelemetry.support import Seen, header, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.opentelemetry import KafkaclientInstrumentor
    from kafkaclient.testing.fake import FakeCluster


@pytest.fixture
def installed() -> Iterator[None]:
    install()
    yield
    uninstall()


async def send(producer: AIOKafkaProducer) -> None:
    await producer.send_and_wait("t", b"1")
    await (await producer.send("t", b"2"))
    batch = producer.create_batch()
    batch.append(timestamp=None, key=None, value=b"3")
    await (await producer.send_batch(batch, "t", partition=0))


@virtual_time
async def test_the_drop_in_is_traced(
    fake: FakeCluster, seen: Seen, instrumentor: KafkaclientInstrumentor
) -> None:
    async with dropin(fake) as producer:  # it is older than the instrumentation
        instrumentor.instrument(tracer_provider=seen.provider)
        await send(producer)
        instrumentor.uninstrument()
        await send(producer)
    assert [span.name for span in seen.spans] == ["send t"] * 3
    assert sum(header(record) is not None for _, record in records(fake)) == 2


@virtual_time
async def test_one_drop_in_alone(fake: FakeCluster, seen: Seen) -> None:
    async with dropin(fake) as producer, dropin(fake) as other:
        instrument_producer(producer, tracer_provider=seen.provider)
        await send(producer)
        await send(other)
        uninstrument_producer(producer)
        await send(producer)
    assert len(seen.spans) == 3


@virtual_time
async def test_no_doubled_spans_beside_the_instrumentation_of_aiokafka(
    installed: None, fake: FakeCluster, traced: Seen
) -> None:
    theirs, instrumentor = Seen(), AIOKafkaInstrumentor()
    instrumentor.instrument(tracer_provider=theirs.provider)
    try:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake)
        assert type(producer) is AIOKafkaProducer
        async with producer:
            await send(producer)
            assert len(theirs.spans) == 2
            assert len(traced.spans) == 1  # send_batch, which theirs does not see
            instrument_producer(producer, tracer_provider=traced.provider)
            await send(producer)
            assert (len(theirs.spans), len(traced.spans)) == (4, 2)
    finally:
        instrumentor.uninstrument()
    by_header = theirs.by_traceparent()
    assert {header(r) for _, r in records(fake) if r.value != b"3"} == set(by_header)
