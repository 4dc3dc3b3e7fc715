"""What a span for each record costs: ``python -m benchmarks.tracing``.

The ways take turns in one process, so that they meet the same moments of the machine. Each turn
sends records of 100 bytes in pieces of 250, and waits for their outcome. Spans go through the SDK's
BatchSpanProcessor to an exporter that drops them. All times are CPU time of the event loop's
thread. ``call`` is the time in ``send_nowait`` or ``send`` alone; ``whole`` has the outcome too,
and the brokers in memory. ``--real`` starts a real broker instead. Then ``send`` of aiokafka is
measured as well, without and with opentelemetry-instrumentation-aiokafka, beside this package's
drop-in for aiokafka.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiokafka
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from kafkaclient import Producer
from kafkaclient.aiokafka import AIOKafkaProducer
from kafkaclient.opentelemetry import KafkaclientInstrumentor
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["main", "measure"]

PIECE = 250
VALUE = b"x" * 100
TOPIC = "tracing"


class Dropped(SpanExporter):
    def export(self, _spans: Sequence[Any]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def provider(ratio: float) -> TracerProvider:
    made = TracerProvider(sampler=TraceIdRatioBased(ratio), shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(Dropped()))
    return made


class Way:
    """One way to send. ``instrumentor`` is on during its turns."""

    def __init__(self, name: str, producer: Any, instrumentor: Any, ratio: float) -> None:
        self.name, self.producer = name, producer
        self._instrumentor = instrumentor
        self._provider = provider(ratio) if instrumentor is not None else None
        self.calls: list[float] = []
        """Microseconds per record, for each turn."""
        self.wholes: list[float] = []

    async def turn(self, records: int) -> None:
        if self._instrumentor is not None:
            self._instrumentor.instrument(tracer_provider=self._provider)
        try:
            await self._send(PIECE)  # warm
            gc.collect()
            begun, in_calls = time.thread_time(), 0.0
            for _ in range(records // PIECE):
                in_calls += await self._send(PIECE)
            await self.producer.flush()
            await asyncio.sleep(0)  # spans end in the next iteration of the event loop
            self.wholes.append((time.thread_time() - begun) / records * 1e6)
            self.calls.append(in_calls / records * 1e6)
        finally:
            if self._instrumentor is not None:
                self._instrumentor.uninstrument()

    async def _send(self, records: int) -> float:
        if isinstance(self.producer, Producer):
            begun = time.thread_time()
            for _ in range(records):
                self.producer.send_nowait(TOPIC, VALUE)
            seconds = time.thread_time() - begun
            await asyncio.sleep(0)
            return seconds
        begun = time.thread_time()
        for _ in range(records):
            await self.producer.send(TOPIC, VALUE)
        return time.thread_time() - begun

    @property
    def is_plain(self) -> bool:
        """Whether the way has no instrumentation."""
        return self._instrumentor is None

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown()

    def row(self, plain: Way) -> dict[str, Any]:
        """Medians; compared with the turns of ``plain`` in the same rounds."""
        calls = zip(self.calls, plain.calls, strict=True)
        wholes = list(zip(self.wholes, plain.wholes, strict=True))
        return {
            "way": self.name,
            "call_us": round(statistics.median(self.calls), 3),
            "whole_us": round(statistics.median(self.wholes), 3),
            "call_ratio": round(statistics.median(own / other for own, other in calls), 2),
            "whole_ratio": round(statistics.median(own / other for own, other in wholes), 2),
            "whole_more_us": round(statistics.median(own - other for own, other in wholes), 3),
        }


@asynccontextmanager
async def ways(bootstrap: str | None) -> AsyncIterator[list[Way]]:
    fake = FakeCluster(3)
    where: dict[str, Any] = {"dialer": fake} if bootstrap is None else {}
    servers = bootstrap or fake.bootstrap
    ours = KafkaclientInstrumentor()
    async with Producer(servers, linger_ms=5, **where) as producer:
        await producer.send_and_wait(TOPIC, VALUE)
        found = [
            Way("send_nowait", producer, None, 0),
            Way("send_nowait, sampled 1 %", producer, ours, 0.01),
            Way("send_nowait, always on", producer, ours, 1.0),
        ]
        if bootstrap is None:
            yield found
        else:
            theirs = AIOKafkaInstrumentor()
            async with (
                aiokafka.AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as peer,
                AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as dropin,
            ):
                await peer.send_and_wait(TOPIC, VALUE)
                await dropin.send_and_wait(TOPIC, VALUE)
                found += [
                    Way("aiokafka send", peer, None, 0),
                    Way("aiokafka send, its instrumentation always on", peer, theirs, 1.0),
                    Way("drop-in send", dropin, None, 0),
                    Way("drop-in send, always on", dropin, ours, 1.0),
                ]
                yield found
        for way in found:
            way.close()


async def measure(rounds: int, records: int, bootstrap: str | None = None) -> list[dict[str, Any]]:
    """The medians of each way, in microseconds per record."""
    async with ways(bootstrap) as found:
        for _ in range(rounds):
            for way in found:
                await way.turn(records)
        rows, plain = [], found[0]
        for way in found:  # those with instrumentation follow the way that they are compared with
            plain = way if way.is_plain else plain
            rows.append(way.row(plain))
        return rows


async def _on(given: argparse.Namespace) -> list[dict[str, Any]]:
    if not given.real:
        return await measure(given.rounds, given.records)
    async with LocalCluster(brokers=1) as cluster:
        return await measure(given.rounds, given.records, cluster.bootstrap)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31, help="turns of each way")
    parser.add_argument("--records", type=int, default=4_000, help="records of a turn")
    parser.add_argument("--real", action="store_true", help="a real broker; also aiokafka")
    parser.add_argument("--out", type=Path, help="keep the figures here, as JSON")
    given = parser.parse_args()
    rows = asyncio.run(_on(given))
    if given.out is not None:
        given.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for row in rows:
        print(
            f"{row['way']:45} call {row['call_us']:7.3f} us, {row['call_ratio']:5.2f} times;"
            f" whole {row['whole_us']:7.3f} us, {row['whole_ratio']:5.2f} times,"
            f" {row['whole_more_us']:6.3f} us more"
        )


if __name__ == "__main__":
    main()
