"""A producer with tracing, metrics and readiness switched on, while brokers are killed."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import Counter
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from integration.test_faults import Load, during
from kafkaclient import Producer
from kafkaclient.opentelemetry import instrument_producer
from kafkaclient.prometheus import ProducerMetricsCollector

pytestmark = [pytest.mark.timeout(180), pytest.mark.local_cluster, pytest.mark.full]


async def test_all_that_watches_a_producer_is_right_while_brokers_are_killed(
    kafka_cluster, topic, create_topic, read_topic
):
    """Each record has one span with its true outcome, scrapes never fail and end at the true
    totals, and readiness turns both ways."""
    await create_topic(topic, 6, 3, {"min.insync.replicas": "2"})
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    registry = CollectorRegistry()
    producer = Producer(kafka_cluster.bootstrap, hooks=ProducerMetricsCollector(registry))
    instrument_producer(
        producer, tracer_provider=tracing, meter_provider=MeterProvider(metric_readers=[reader])
    )
    server, thread = start_http_server(0, "127.0.0.1", registry)
    page = f"http://127.0.0.1:{server.server_port}/metrics"
    scraped: list[dict[str, float]] = []
    ready: list[bool] = []

    async def scrape() -> None:
        text = await asyncio.to_thread(_read, page)
        scraped.append(_totals(text))

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.2)
            await asyncio.gather(scrape(), ask())

    async def ask() -> None:
        ready.append(bool(await producer.healthy(timeout=0.5)))

    async def pause_all() -> None:
        for broker in kafka_cluster.brokers:
            await kafka_cluster.pause(broker)

    try:
        async with producer:
            load = Load(producer, topic)
            watching = asyncio.create_task(watch())
            try:
                await during(
                    load,
                    10,
                    lambda: kafka_cluster.kill(1),
                    lambda: kafka_cluster.start_broker(1),
                    pause_all,
                    kafka_cluster.heal,
                )
            finally:
                await kafka_cluster.heal()
            assert not watching.done(), watching.exception()
            watching.cancel()
            assert await producer.healthy()
            await scrape()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    load.check(await read_topic(topic))
    _check_spans(exporter.get_finished_spans(), load)
    _check_pages(scraped, load)
    assert {True, False} == set(ready)
    assert _sent_messages(reader) == load.sent


def _check_pages(scraped: list[dict[str, float]], load: Load) -> None:
    sent = [page["kafkaclient_producer_records_sent_total"] for page in scraped]
    assert any(0 < count < sent[-1] for count in sent), "it was scraped while records were sent"
    for name in scraped[-1]:
        values = [page[name] for page in scraped if name in page]
        assert values == sorted(values), name
    # A record that is sent again counts again.
    assert scraped[-1]["kafkaclient_producer_records_sent_total"] >= load.sent
    assert scraped[-1]["kafkaclient_producer_records_failed_total"] == 0


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - http on 127.0.0.1
        return response.read().decode()


def _totals(text: str) -> dict[str, float]:
    """The counters of the producer as a whole."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith("_total") and set(sample.labels) == {"client_id"}
    }


def _check_spans(spans: tuple[Any, ...], load: Load) -> None:
    assert len(spans) == load.sent
    assert len({span.context.span_id for span in spans}) == load.sent
    told = Counter(
        (
            int(span.attributes["messaging.destination.partition.id"]),
            span.attributes["messaging.kafka.offset"],
        )
        for span in spans
    )
    places = {place for place in load.acknowledged.values() if place[1] != -1}
    assert set(told) >= places
    assert all(span.status.is_unset for span in spans)


def _sent_messages(reader: InMemoryMetricReader) -> int:
    found = reader.get_metrics_data()
    return sum(
        point.value
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "messaging.client.sent.messages"
        for point in metric.data.data_points
    )
