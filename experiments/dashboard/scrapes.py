"""Scrapes of a producer in virtual time: a slow broker, then a dead one, in memory."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkaclient import KafkaError, Producer
from kafkaclient.cli.live_view import LiveView
from kafkaclient.prometheus import ProducerMetricsCollector
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from experiments.dashboard.promql import Page

__all__ = ["EVERY_S", "SECONDS", "SLOW_S", "STOPPED_S", "Scraped", "page_of", "scraped"]

EVERY_S = 5.0
SECONDS = 600
SLOW_S = (120.0, 300.0)
"""When broker 1 answers late."""
STOPPED_S = (420.0, 450.0)
"""When broker 2 does not run."""

_LATE_S = 0.4
_TICK_S = 0.05
_RECORDS = 40  # a tick


class Scraped(NamedTuple):
    """The pages of a run, and what ``kafkaclient top`` showed while broker 1 was slow."""

    pages: list[tuple[float, Page]]
    """Each with its time in seconds since the start."""
    top: LiveView


def scraped(seconds: int = SECONDS) -> Scraped:
    """Run a producer for ``seconds`` of virtual time; ten minutes of it take half a minute."""
    return run_virtual(_run(seconds))


def page_of(text: str) -> Page:
    """The values of a page, by name and labels."""
    page: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            page.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return page


async def _run(seconds: int) -> Scraped:
    loop = asyncio.get_running_loop()
    fake = FakeCluster(3)
    fake.round_trip_s = 0.004
    fake.create_topic("orders", 12, 3)
    fake.create_topic("clicks", 6, 3)
    registry = CollectorRegistry()
    metrics = ProducerMetricsCollector(registry)
    producer = Producer(fake.bootstrap, dialer=fake, client_id="shop", hooks=metrics, rng=Random(7))
    pages: list[tuple[float, Page]] = []
    top = LiveView()
    async with producer:
        sending = asyncio.create_task(_send(producer))
        start = loop.time()
        for second in range(1, seconds + 1):
            await asyncio.sleep(start + second - loop.time())
            if second == SLOW_S[0]:
                fake.delay_produce(1, _LATE_S)
            elif second == SLOW_S[1]:
                fake.delay_produce(1, 0.0)
            elif second == STOPPED_S[0]:
                fake.stop_broker(2)
            elif second == STOPPED_S[1]:
                fake.start_broker(2)
            if second <= SLOW_S[0] + 40:
                top.show(registry.collect(), loop.time())
            if second % EVERY_S == 0:
                pages.append((float(second), page_of(generate_latest(registry).decode())))
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return Scraped(pages, top)


async def _send(producer: Producer) -> None:
    rng = Random(11)
    while True:
        for _ in range(_RECORDS):
            topic = "orders" if rng.random() < 0.6 else "clicks"
            size = rng.randrange(200, 900)
            try:
                producer.send_nowait(topic, rng.randbytes(size))
            except KafkaError:
                break
        await asyncio.sleep(_TICK_S * rng.uniform(0.8, 1.2))
