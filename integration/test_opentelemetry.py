"""Spans and metrics of a producer on real brokers, with the real SDK, to an OTLP/HTTP receiver."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from kafkaclient import Producer
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(180)


class Receiver(ThreadingHTTPServer):
    """What was posted, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: dict[str, list[bytes]] = defaultdict(list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Any]:
        requests = map(ExportTraceServiceRequest.FromString, self.posted["/v1/traces"])
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def sent_messages(self) -> int:
        last = ExportMetricsServiceRequest.FromString(self.posted["/v1/metrics"][-1])
        return sum(
            point.as_int
            for resource in last.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == "messaging.client.sent.messages"
            for point in metric.sum.data_points
        )


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted[self.path].append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def facts_of(span: Any) -> dict[str, Any]:
    values = {each.key: each.value for each in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


async def test_spans_and_metrics_reach_a_collector(
    kafka_cluster, topic, create_topic, read_topic, receiver
):
    await create_topic(topic, 3)
    tracing, measuring = (
        TracerProvider(),
        PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{receiver.url}/v1/metrics"), export_interval_millis=60_000
        ),
    )
    tracing.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces"), max_queue_size=10_000)
    )
    meters = MeterProvider([measuring])
    (entry,) = entry_points(group="opentelemetry_instrumentor", name="kafkaclient")
    instrumentor = entry.load()()
    instrumentor.instrument(tracer_provider=tracing, meter_provider=meters)
    try:
        async with Producer(kafka_cluster.bootstrap, client_id="traced") as producer:
            await producer.send_and_wait(topic, b"first")
            for n in range(1000):
                producer.send_nowait(topic, b"%d" % n)
            await (await producer.send_many(topic, [b"many"] * 10, partition=1))
            with pytest.raises(KafkaError):
                await producer.send(topic, b"no such partition", partition=7)
        await asyncio.to_thread(tracing.shutdown)
        await asyncio.to_thread(meters.shutdown)
    finally:
        instrumentor.uninstrument()

    spans = receiver.spans()
    assert len(spans) == 1003
    assert {span.name for span in spans} == {f"send {topic}"}
    by_header = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}": span for span in spans}
    assert len(by_header) == 1003
    brokers = set(kafka_cluster.bootstrap.split(","))
    for record in await read_topic(topic):
        ((name, value),) = record.headers
        facts = facts_of(by_header[value.decode().rpartition("-")[0]])
        assert name == "traceparent"
        assert facts["messaging.client.id"] == "traced"
        assert facts["messaging.destination.partition.id"] == str(record.partition)
        assert f"{facts['server.address']}:{facts['server.port']}" in brokers
        if record.value != b"many":
            assert facts["messaging.kafka.offset"] == record.offset
    failed = [span for span in spans if span.status.code == span.status.STATUS_CODE_ERROR]
    assert [facts_of(span)["error.type"] for span in failed] == ["PartitionOutOfRangeError"]
    assert receiver.sent_messages() == 1011
