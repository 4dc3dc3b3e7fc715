"""What is read back from a page is what the producer has."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkaclient import Producer
from kafkaclient.cli.producer_status import statuses
from kafkaclient.prometheus import ProducerMetricsCollector
from kafkaclient.testing.clock import virtual_time
from tests.producer.support import one_topic


@virtual_time
async def test_a_page_and_its_registry_say_the_same() -> None:
    registry, fake = CollectorRegistry(), one_topic(round_trip_s=0.1)
    one, other = ProducerMetricsCollector(registry), ProducerMetricsCollector(registry)
    orders = Producer(fake.bootstrap, dialer=fake, hooks=one, client_id="orders", linger_ms=0)
    idle = Producer(fake.bootstrap, dialer=fake, hooks=other, client_id="idle")
    async with idle:
        pass
    async with orders:
        for number in range(9):
            await orders.send_and_wait("t", b"v" * 100, partition=number % 3)
        last = orders.send_nowait("t", b"v" * 1000, partition=0)
        await asyncio.sleep(0.05)
        read = statuses(registry.collect())
        text = generate_latest(registry).decode()
        assert statuses(text_string_to_metric_families(text)) == read
        own, load = orders.metrics(), orders.load()
        await last
    found = {status.client_id: status for status in read}
    assert found["idle"].up is False
    assert found["idle"].records_sent == 0
    status = found["orders"]
    assert status.up is True
    assert status.records_sent == own.producer["record-send-total"] == 10
    assert status.buffer_available_bytes == own.producer["buffer-available-bytes"]
    assert [each.broker for each in status.brokers] == [each.node_id for each in load.brokers]
    for each, now in zip(status.brokers, load.brokers, strict=True):
        assert each.in_flight == now.in_flight_requests
        assert each.window == now.window
        assert each.produced_bytes == now.bytes_sent
        assert each.excluded == now.excluded
        assert each.latencies is not None
        assert sum(each.latencies.counts) == 3
    assert status.brokers[0].in_flight == 1
    assert status.queue_times is not None
    assert sum(status.queue_times.counts) == 9
