"""``ProducerMetricsCollector``: what a page shows, in any thread, at any time."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kafkaclient import Producer, SyncProducer
from kafkaclient.errors import DeliveryTimeoutError
from kafkaclient.prometheus import ProducerMetricsCollector
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, FakeCluster
from kafkaclient.wire.api import ApiKey
from tests.producer.support import one_topic, start_producer

_PREFIX = "kafkaclient_producer_"


def page(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """``(name without prefix, label values in the order of their names...)`` -> value."""
    text = generate_latest(registry).decode()
    return {
        (sample.name.removeprefix(_PREFIX), *(v for _k, v in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def observing(fake: FakeCluster, registry: CollectorRegistry, **options: object) -> Producer:
    metrics = ProducerMetricsCollector(registry)
    return Producer(fake.bootstrap, dialer=fake, hooks=metrics, **options)


@virtual_time
async def test_a_page_has_what_the_producer_counts(registry: CollectorRegistry) -> None:
    fake = one_topic(round_trip_s=0.02)
    metrics = ProducerMetricsCollector(registry, partition_limit=10)
    async with start_producer(fake, hooks=metrics, client_id="orders", linger_ms=5) as producer:
        await asyncio.gather(
            *[await producer.send("t", b"v" * 100, partition=n % 3) for n in range(30)]
        )
        found, own = page(registry), producer.metrics()
        assert found["up", "orders"] == 1
        assert found["records_sent_total", "orders"] == 30
        assert found["topic_records_sent_total", "orders", "t"] == 30
        for number in range(3):
            assert found["partition_records_sent_total", "orders", str(number), "t"] == 10
            broker = str(fake.leader("t", number))
            sent = producer.load().brokers[int(broker)]
            assert found["broker_produced_bytes_total", broker, "orders"] == sent.bytes_sent
            assert found["broker_in_flight_requests", broker, "orders"] == 0
            assert found["broker_in_flight_window", broker, "orders"] == sent.window
            assert found["broker_queue_bytes", broker, "orders"] == 0
            assert found["broker_excluded", broker, "orders", "slow"] == 0
            assert found["broker_exclusions_total", broker, "orders", "overdue"] == 0
            # 20 ms are in the bucket up to 25 ms
            name = "broker_produce_latency_seconds"
            assert found[f"{name}_bucket", broker, "orders", "0.01"] == 0
            assert found[f"{name}_bucket", broker, "orders", "0.025"] >= 1
            assert found[f"{name}_sum", broker, "orders"] == pytest.approx(
                0.02 * found[f"{name}_count", broker, "orders"]
            )
        batches = sum(p["batch-send-total"] for p in own.partitions.values())
        assert found["queue_seconds_count", "orders"] == batches
        assert found["delivery_seconds_count", "orders"] == batches
        assert found["batch_size_bytes_sum", "orders"] == own.topics["t"]["byte-total"]
        buffer = own.producer["buffer-total-bytes"]
        assert found["buffer_size_bytes", "orders"] == buffer == producer.config.buffer_memory
        assert not any(map(isnan, found.values()))
        assert ("throttle_max_seconds", "orders") in found
        assert own.producer["event-loop-lag-max"] >= 0


@virtual_time
async def test_times_are_in_seconds(registry: CollectorRegistry) -> None:
    fake = one_topic(1, 1, round_trip_s=0.25)
    async with observing(fake, registry, linger_ms=5) as producer:
        await producer.send_and_wait("t", b"v")
        before = page(registry)
        await producer.send_and_wait("t", b"v")
        found, own = page(registry), producer.metrics()
    broker = own.brokers[0]
    assert found["broker_round_trip_seconds", "0", "kafkaclient"] == pytest.approx(
        broker["round-trip-time-ms"] / 1e3
    )
    assert found["metadata_wait_seconds_total", "kafkaclient"] == pytest.approx(
        own.producer["metadata-wait-time-ns-total"] / 1e9
    )
    name = "delivery_seconds_sum"
    took = found[name, "kafkaclient"] - before[name, "kafkaclient"]
    assert took == pytest.approx(0.25, abs=0.006)


@virtual_time
async def test_failures_count(registry: CollectorRegistry) -> None:
    fake = one_topic(1, 1)
    async with observing(
        fake, registry, delivery_timeout_ms=2000, request_timeout_ms=1000
    ) as producer:
        fake.control(ApiKey.PRODUCE, DROP, keep=True)
        with pytest.raises(DeliveryTimeoutError):
            await producer.send_and_wait("t", b"v")
        found = page(registry)
    assert found["records_failed_total", "kafkaclient"] == 1
    assert found["delivery_seconds_count", "kafkaclient"] == 0
    assert found["broker_requests_failed_total", "0", "kafkaclient"] >= 1


@virtual_time
async def test_the_names_follow_the_conventions(registry: CollectorRegistry) -> None:
    """The strict parser of OpenMetrics reads the page; counters and times have their suffixes."""
    async with observing(one_topic(), registry) as producer:
        await producer.send_and_wait("t", b"v")
        families = list(openmetrics(generate_openmetrics(registry).decode()))
        text = generate_latest(registry).decode()
    assert len(families) > 40
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith(_PREFIX)
        assert family.documentation.endswith(".")
        assert not family.name.endswith(("_ms", "_ns", "_total", "_time"))
    assert text.count("# TYPE kafkaclient_producer_up gauge") == 1


async def test_a_page_can_be_read_in_another_thread() -> None:
    """All values come from one moment of the event loop: sums agree while records are sent."""
    registry, fake = CollectorRegistry(), one_topic()
    async with observing(fake, registry, linger_ms=0) as producer:
        done = threading.Event()
        pages: list[dict[tuple[str, ...], float]] = []

        def scrape() -> None:
            while not done.is_set():
                pages.append(page(registry))

        scraping = asyncio.create_task(asyncio.to_thread(scrape))
        number = 0
        while number < 300 or len(pages) < 4:
            await producer.send_and_wait("t", b"v", partition=number % 3)
            number += 1
        done.set()
        await scraping
    last = 0.0
    for found in pages:
        assert found["up", "kafkaclient"] == 1
        total = found["records_sent_total", "kafkaclient"]
        assert found.get(("topic_records_sent_total", "kafkaclient", "t"), 0) == total
        # Each record is a batch here: sent, then answered.
        assert 0 <= total - found["queue_seconds_count", "kafkaclient"] <= 1
        assert total >= last
        last = total
    assert last > 0


async def test_a_blocked_event_loop_does_not_hold_up_a_scrape(registry: CollectorRegistry) -> None:
    fake = one_topic()
    metrics = ProducerMetricsCollector(registry, timeout_s=0.02)
    async with start_producer(fake, hooks=metrics):
        pages: list[dict[tuple[str, ...], float]] = []
        scrape = threading.Thread(target=lambda: pages.append(page(registry)))
        scrape.start()
        scrape.join(10)  # blocks the event loop
        assert pages == [{("up", "kafkaclient"): 0}]
        async with asyncio.timeout(20):  # on a busy machine the loop takes longer than 20 ms, too
            while not (await asyncio.to_thread(page, registry))["up", "kafkaclient"]:
                pass


@virtual_time
async def test_a_producer_can_be_scraped_at_any_time_of_its_life(
    registry: CollectorRegistry,
) -> None:
    producer = observing(one_topic(), registry)
    assert page(registry) == {}
    async with producer:
        await producer.send_and_wait("t", b"v")
        assert page(registry)["up", "kafkaclient"] == 1
    stopped = page(registry)
    assert stopped["up", "kafkaclient"] == 0
    assert stopped["records_sent_total", "kafkaclient"] == 1
    del producer
    gc.collect()
    assert page(registry) == {}


def test_a_producer_of_an_ended_loop_can_be_scraped(registry: CollectorRegistry) -> None:
    async def run() -> Producer:
        async with observing(one_topic(), registry) as producer:
            await producer.send_and_wait("t", b"v")
        return producer

    producer = asyncio.run(run())
    assert page(registry)["records_sent_total", producer.config.client_id] == 1


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_producer_whose_loop_ended_without_a_stop_is_down(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    fake = one_topic()

    async def run() -> Producer:
        producer = observing(fake, registry)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        return producer

    producer = asyncio.run(run())
    found = page(registry)
    assert found["up", "kafkaclient"] == 0
    assert found["records_sent_total", "kafkaclient"] == 1
    other = asyncio.run(run())  # has the same client.id
    assert "has no series" not in caplog.text
    del producer, other
    gc.collect()


def test_what_is_no_registry_is_refused() -> None:
    wrong: Any = None
    with pytest.raises(TypeError, match="registry must be a CollectorRegistry, not None"):
        ProducerMetricsCollector(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_s": -1},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"timeout_s": None},
        {"topic_limit": -1},
        {"partition_limit": -1},
    ],
)
def test_wrong_limits_are_refused(registry: CollectorRegistry, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ProducerMetricsCollector(registry, **wrong)


@virtual_time
async def test_several_producers_share_a_registry(registry: CollectorRegistry) -> None:
    fake = one_topic()
    async with (
        observing(fake, registry, client_id="a") as one,
        observing(fake, registry, client_id="b") as other,
    ):
        await one.send_and_wait("t", b"v")
        await other.send_and_wait("t", b"v")
        await other.send_and_wait("t", b"v")
        found = page(registry)
        assert found["records_sent_total", "a"] == found["queue_seconds_count", "a"] == 1
        assert found["records_sent_total", "b"] == found["queue_seconds_count", "b"] == 2
        text = generate_latest(registry).decode()
        assert text.count("# TYPE kafkaclient_producer_records_sent_total counter") == 1


@virtual_time
async def test_a_client_id_is_one_producers_at_a_time(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    fake = one_topic()
    async with observing(fake, registry, client_id="a") as producer:
        await producer.send_and_wait("t", b"v")
        async with observing(fake, registry, client_id="a") as other:
            await other.send_and_wait("t", b"v")
            await other.send_and_wait("t", b"v")
            assert "the registry has a producer with client.id 'a'" in caplog.text
            assert page(registry)["records_sent_total", "a"] == 1
            assert generate_latest(registry).decode().count("producer_up{") == 1
    caplog.clear()
    async with observing(fake, registry, client_id="a"):
        assert page(registry)["records_sent_total", "a"] == 0
    assert caplog.text == ""


@virtual_time
async def test_a_collector_is_one_producers_at_a_time(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    fake, metrics = one_topic(), ProducerMetricsCollector(registry)
    async with start_producer(fake, hooks=metrics, client_id="a") as producer:
        await producer.send_and_wait("t", b"v")
        async with start_producer(fake, hooks=metrics, client_id="b") as other:
            assert "create one for each producer" in caplog.text
            for _ in range(5):
                await other.send_and_wait("t", b"v")
            found = page(registry)
            assert {labels[0] for _, *labels in found if len(labels) == 1} == {"a"}
            assert found["queue_seconds_count", "a"] == 1
    caplog.clear()
    async with start_producer(fake, hooks=metrics, client_id="c") as producer:
        found = page(registry)
        assert found["up", "c"] == 1
        assert ("up", "a") not in found
        assert found["queue_seconds_count", "c"] == 0  # not those of the first producer
        await producer.send_and_wait("t", b"v")
        assert page(registry)["queue_seconds_count", "c"] == 1
    assert caplog.text == ""


def test_a_producer_whose_loop_stands_is_down(registry: CollectorRegistry) -> None:
    """The loop has ended a call of ``run_until_complete``, and is not closed."""
    producer = observing(one_topic(), registry, client_id="a")
    with asyncio.Runner() as runner:
        runner.run(producer.start())
        assert page(registry)["up", "a"] == 0

        async def up() -> float:
            return page(registry)["up", "a"]

        assert runner.run(up()) == 1
        runner.run(producer.stop())


@virtual_time
async def test_a_collector_that_is_named_twice_counts_once(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = ProducerMetricsCollector(registry)
    async with start_producer(one_topic(), hooks=(metrics, metrics), client_id="a") as producer:
        await producer.send_and_wait("t", b"v")
        assert page(registry)["queue_seconds_count", "a"] == 1
    assert caplog.text == ""


@virtual_time
async def test_a_collector_that_gets_no_series_leaves_its_old_ones(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    fake, metrics = one_topic(), ProducerMetricsCollector(registry)
    async with start_producer(fake, hooks=metrics, client_id="a"):
        pass
    async with (
        observing(fake, registry, client_id="b"),
        start_producer(fake, hooks=metrics, client_id="b"),
    ):
        assert generate_latest(registry).decode().count("producer_up{") == 1
    assert "has no series" in caplog.text
    caplog.clear()


@virtual_time
async def test_a_producer_that_cannot_be_read_leaves_the_others_on_the_page(
    registry: CollectorRegistry,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = one_topic()
    async with (
        observing(fake, registry, client_id="a") as broken,
        observing(fake, registry, client_id="b") as other,
    ):
        await other.send_and_wait("t", b"v")
        monkeypatch.setattr(broken, "load", lambda **_: 1 / 0)
        found = page(registry)
        assert found["up", "a"] == 0
        assert found["up", "b"] == found["records_sent_total", "b"] == 1
        monkeypatch.undo()
        assert page(registry)["up", "a"] == 1
    assert "producer 'a' cannot be read" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    caplog.clear()


def test_a_sync_producer_has_series(registry: CollectorRegistry) -> None:
    fake = one_topic()
    metrics = ProducerMetricsCollector(registry)
    with SyncProducer(fake.bootstrap, dialer=fake, client_id="web", hooks=metrics) as producer:
        for _ in range(3):
            producer.send("t", b"v").result()
        found = page(registry)
        assert found["up", "web"] == 1
        assert found["records_sent_total", "web"] == found["queue_seconds_count", "web"] == 3
    assert page(registry)["up", "web"] == 0


def test_collectors_of_a_registry_can_be_created_in_many_threads() -> None:
    """Without a lock, a second page is refused as a duplicate, or drops the first."""
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            registry = CollectorRegistry()
            start = threading.Barrier(8)

            def create(registry: CollectorRegistry = registry, start: Any = start) -> object:
                start.wait()
                return ProducerMetricsCollector(registry)._page

            with ThreadPoolExecutor(8) as threads:
                pages = [each.result() for each in [threads.submit(create) for _ in range(8)]]
            assert len(set(pages)) == 1
    finally:
        sys.setswitchinterval(switch)


def test_names_of_other_collectors_are_refused(registry: CollectorRegistry) -> None:
    Gauge(f"{_PREFIX}up", "mine", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        ProducerMetricsCollector(registry)


@virtual_time
async def test_series_are_bounded(registry: CollectorRegistry) -> None:
    """The first topics keep their series; what is left out is counted."""
    fake = FakeCluster(1)
    for number in range(5):
        fake.create_topic(f"t{number}", 4)
    metrics = ProducerMetricsCollector(registry, topic_limit=3, partition_limit=6)
    async with start_producer(fake, hooks=metrics) as producer:
        for topic in ("t4", "t1", "t2", "t0", "t3"):
            for partition in range(4):
                await producer.send_and_wait(topic, b"v", partition=partition)
            found = page(registry)
        topics = {labels[1] for name, *labels in found if name == "topic_records_sent_total"}
        assert topics == {"t4", "t1", "t2"}
        partitions = [labels for name, *labels in found if name == "partition_sent_bytes_total"]
        assert len(partitions) == 6
        assert found["series_left_out", "kafkaclient", "topic"] == 2
        assert found["series_left_out", "kafkaclient", "partition"] == 14
        assert found["records_sent_total", "kafkaclient"] == 20


@virtual_time
async def test_there_are_no_series_by_partition_unless_wanted(registry: CollectorRegistry) -> None:
    async with observing(one_topic(), registry) as producer:
        await producer.send_and_wait("t", b"v")
        assert not [name for name, *_ in page(registry) if name.startswith("partition_")]


@virtual_time
async def test_a_topic_that_is_forgotten_has_no_series(registry: CollectorRegistry) -> None:
    fake = one_topic()
    fake.create_topic("u", 1)
    async with observing(fake, registry, metadata_max_idle_ms=5000) as producer:
        await producer.send_and_wait("t", b"v")
        assert ("topic_records_sent_total", "kafkaclient", "t") in page(registry)
        for _ in range(4):
            await asyncio.sleep(4)
            await producer.send_and_wait("u", b"v")
            await producer.refresh_metadata()
        found = page(registry)
        assert ("topic_records_sent_total", "kafkaclient", "t") not in found
        assert ("topic_records_sent_total", "kafkaclient", "u") in found
        assert found["records_sent_total", "kafkaclient"] == 5


@virtual_time
async def test_an_excluded_broker_is_named_with_its_reason(registry: CollectorRegistry) -> None:
    fake = one_topic(round_trip_s=0.001)
    async with observing(fake, registry, linger_ms=0) as producer:
        for number in range(60):
            await producer.send_and_wait("t", b"v", partition=number % 3)
        fake.stop_broker(1, elect=False)
        producer.send_nowait("t", b"v", partition=1)
        await asyncio.sleep(1)
        found = page(registry)
        assert found["broker_excluded", "1", "kafkaclient", "connection"] == 1
        assert found["broker_exclusions_total", "1", "kafkaclient", "connection"] >= 1
        assert found["broker_excluded", "0", "kafkaclient", "connection"] == 0
        fake.start_broker(1)


@virtual_time
async def test_metrics_and_load_without_partitions_are_the_same_otherwise() -> None:
    async with start_producer(one_topic(), linger_ms=0) as producer:
        await asyncio.gather(*[await producer.send("t", b"v", partition=n % 3) for n in range(9)])
        held = producer.send_nowait("t", b"v" * 500, partition=1)
        whole, part = producer.metrics(), producer.metrics(partitions=False)
        assert len(whole.partitions) == 3
        assert repr(part) == repr(whole._replace(partitions={}))  # NaN is not equal to itself
        load, brokers = producer.load(), producer.load(partitions=False)
        assert len(load.partitions) == 3
        assert repr(brokers) == repr(load._replace(partitions=()))
        assert sum(broker.queued_bytes for broker in brokers.brokers) == sum(
            partition.queued_bytes for partition in load.partitions
        )
        assert any(broker.queued_bytes for broker in brokers.brokers)
        await held


def test_without_the_extra_the_error_names_it() -> None:
    code = "import sys; sys.modules['prometheus_client'] = None; import kafkaclient.prometheus"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'kafkaclient[prometheus]'" in done.stderr.splitlines()[-1]
