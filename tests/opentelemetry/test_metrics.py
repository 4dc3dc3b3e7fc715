"""The metrics of the conventions, by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kafkaclient.hooks import FinishedBatch, Hooks
from kafkaclient.opentelemetry import instrument_producer
from kafkaclient.opentelemetry.instrumentor import BatchMetrics
from kafkaclient.testing.clock import virtual_time
from tests.producer.support import start_producer

if TYPE_CHECKING:
    import pytest

    from kafkaclient.opentelemetry import KafkaclientInstrumentor
    from kafkaclient.testing.fake import FakeCluster

DURATION, SENT = "messaging.client.operation.duration", "messaging.client.sent.messages"


class Meters:
    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def read(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """(attributes, point) by metric."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = metric.data.data_points
                    seen = [(dict(p.attributes or {}), p) for p in points]
                    found.setdefault(metric.name, []).extend(seen)
        return found


@virtual_time
async def test_batches_are_measured(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    meters, own = Meters(), list[FinishedBatch]()

    class Own(Hooks):
        def on_batch(self, batch: FinishedBatch) -> None:
            own.append(batch)

    instrumentor.instrument(meter_provider=meters.provider)
    fake.fail_produce("t", 0, 29)
    async with start_producer(fake, linger_ms=1000, hooks=[Own()]) as producer:
        await producer.partitions_for("t")
        for _ in range(7):
            producer.send_nowait("t", b"1", partition=1)
        producer.send_nowait("t", b"1", partition=0).add_done_callback(lambda _: None)
    found = meters.read()
    assert len(own) == 2
    common = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "server.port": 9092,
    }
    written = common | {"server.address": f"fake-{fake.leader('t', 1)}"}
    refused = common | {
        "server.address": f"fake-{fake.leader('t', 0)}",
        "error.type": "TOPIC_AUTHORIZATION_FAILED",
    }
    sent = {tuple(sorted(a.items())): point.value for a, point in found[SENT]}
    assert sent == {tuple(sorted(written.items())): 7, tuple(sorted(refused.items())): 1}
    for attributes, point in found[DURATION]:
        assert attributes in (written, refused)
        assert point.count == 1
        assert 0 < point.sum < 2


@virtual_time
async def test_a_batch_that_was_never_sent_is_not_counted_as_sent(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    meters = Meters()
    instrumentor.instrument(meter_provider=meters.provider)
    async with start_producer(fake, linger_ms=60_000) as producer:
        await producer.partitions_for("t")
        delivery = producer.send_nowait("t", b"1")
        for broker in range(3):
            fake.stop_broker(broker)
        assert await producer.stop(1) == 1
        assert delivery.exception() is not None
    found = meters.read()
    assert SENT not in found
    ((attributes, _),) = found[DURATION]
    assert attributes["error.type"] == "ProducerClosedError"
    assert "server.address" not in attributes


@virtual_time
async def test_no_hook_without_a_meter_provider(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor, monkeypatch: pytest.MonkeyPatch
) -> None:
    meters = Meters()
    instrumentor.instrument()
    async with start_producer(fake) as producer:
        assert producer.config.hooks == ()
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters.provider)
    async with start_producer(fake) as producer:
        assert [type(hook) for hook in producer.config.hooks] == [BatchMetrics]
        await producer.send_and_wait("t", b"1")
        instrumentor.uninstrument()
        await producer.send_and_wait("t", b"2")
    assert [point.value for _, point in meters.read()[SENT]] == [1]


@virtual_time
async def test_one_producer_is_measured_once(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    from kafkaclient import Producer  # noqa: PLC0415

    meters, others = Meters(), Meters()
    instrumentor.instrument(meter_provider=others.provider)
    producer = Producer(fake.bootstrap, dialer=fake)
    instrument_producer(producer, meter_provider=meters.provider)
    async with producer:
        await producer.send_and_wait("t", b"1")
    assert [point.value for _, point in meters.read()[SENT]] == [1]
    assert not others.read()
