"""The consumer's metrics, and its page for Prometheus."""

from __future__ import annotations

import asyncio
from math import isnan
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.consumer import Consumer
from kafkaclient.errors import ConsumerStateError, DeserializationError
from kafkaclient.metrics.consumer import ConsumerMetrics
from kafkaclient.prometheus import ConsumerMetricsCollector
from kafkaclient.prometheus.names import CONSUMER, CONSUMER_PARTITION, CONSUMER_TOPIC
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from tests.consumer.test_group import COOPERATIVE, KIP_848, Loop, group

if TYPE_CHECKING:
    from kafkaclient.testing.fake import FakeCluster
    from tests.consumer.conftest import Tools

P = [TopicPartition("t", number) for number in range(4)]


@pytest.mark.parametrize("how", [KIP_848, COOPERATIVE], ids=["kip848", "classic"])
@virtual_time
async def test_metrics_have_javas_names(
    fake: FakeCluster, tools: Tools, how: dict[str, Any]
) -> None:
    tools.fill(fake, 0, 30)
    async with group(tools, fake, **how) as a:
        assert a.metrics().consumer["last-rebalance-seconds-ago"] == -1
        assert isnan(a.metrics().consumer["records-lag-max"])
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 30)
        await a.commit()
        await asyncio.sleep(1)  # there is a heartbeat
        found = a.metrics()
        values = found.consumer
        assert values["records-consumed-total"] == 30
        assert values["bytes-consumed-total"] == 2 * (10 + 2 * 20) + 30
        assert values["assigned-partitions"] == 4
        assert values["records-lag"] == values["records-lag-max"] == 0
        assert values["rebalance-total"] == 1
        assert 0 < values["rebalance-latency-avg"] < 10_000
        assert 0 <= values["last-rebalance-seconds-ago"] < 10
        assert 0 <= values["last-heartbeat-seconds-ago"] < 10
        assert values["commit-total"] >= 1
        assert values["fetch-total"] >= 1
        assert values["fetch-latency-max"] > 0
        assert found.topics == {
            "t": {"bytes-consumed-total": 130, "records-consumed-total": 30},
        }
        assert list(found.partitions) == P
        assert found.partitions[P[0]] == {"records-lag": 0}
        async with group(tools, fake, **how):
            await tools.until(lambda: len(a.assignment) == 2)
            await tools.until(lambda: a.metrics().consumer["rebalance-total"] >= 2)
        api = ApiKey.HEARTBEAT if how is COOPERATIVE else ApiKey.CONSUMER_GROUP_HEARTBEAT
        fake.control(api, ErrorCode.UNKNOWN_MEMBER_ID)
        await tools.until(lambda: a.metrics().consumer["failed-rebalance-total"] == 1)
        await tools.until(lambda: len(a.assignment) == 4)
        a.pause(P[0])
        tools.fill(fake, 0, 5)
        loop.task.cancel()
    assert a.metrics().consumer["records-consumed-total"] == 30, "they can be read after the end"


@virtual_time
async def test_records_that_are_handed_out_again_count_only_after_a_seek(
    fake: FakeCluster, tools: Tools
) -> None:
    """What is fetched again is not: after an error another way to take records goes on, a pause
    ends in the midst of a batch."""
    tools.fill(fake, 0, 10)

    def number(data: bytes) -> int:
        if data == b"4" and not repaired:
            raise ValueError("not yet")
        return int(data)

    def counted() -> tuple[float, float]:
        topic = a.metrics().topics["t"]
        return topic["records-consumed-total"], topic["bytes-consumed-total"]

    repaired: list[bool] = []
    async with group(tools, fake, value_deserializer=number) as a:
        with pytest.raises(DeserializationError):
            async for _ in a:
                pass
        assert counted() == (10, 10 * 3)
        repaired.append(True)
        assert (await a.getone()).value == 4
        async for record in a:
            if record.value == 6:
                a.pause(P[0])
                break
        a.resume(P[0])
        tools.fill(fake, 0, 2)
        loop = Loop(a)
        await tools.until(lambda: a.position(P[0]) == 12)
        assert counted() == (12, 10 * 3 + 2 * 5)
        a.seek(P[0], 8)
        await tools.until(lambda: len(loop.seen) == (12 - 6) + (12 - 8))
        assert counted()[0] == 16


def test_the_idle_ratio_is_the_share_of_time_that_waits_for_records() -> None:
    now = 10.0
    metrics = ConsumerMetrics(lambda: now)

    def ratio() -> float:
        return metrics.snapshot({}).consumer["poll-idle-ratio-avg"]

    assert isnan(ratio())
    metrics.polled()
    now = 12.0
    metrics.consumed("t", 1, 1)
    metrics.consumed("t", 1, 1)  # a second partition of the same poll
    assert ratio() == 1
    now = 15.0  # the application works for 3 s, and waits for 1 s, in two steps
    metrics.polled()
    now = 15.5
    metrics.polled()
    now = 16.0
    metrics.consumed("t", 1, 1)
    assert ratio() == (1 + 0.25) / 2


@virtual_time
async def test_each_brokers_latency_is_known(fake: FakeCluster, tools: Tools) -> None:
    tools.fill(fake, 0, 3)
    tools.fill(fake, 1, 3)
    async with group(tools, fake, **KIP_848) as a:
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 6)
        brokers = a.metrics().brokers
        assert {0, 1} <= brokers.keys()
        assert brokers[0]["request-latency-max"] >= brokers[0]["request-latency-avg"] > 0
        loop.task.cancel()


@virtual_time
async def test_negative_limits_of_a_page_are_refused(fake: FakeCluster, tools: Tools) -> None:
    registry = CollectorRegistry()
    async with group(tools, fake, client_id="c") as a:
        for wrong in ("topic_limit", "partition_limit"):
            with pytest.raises(ValueError, match=f"{wrong} must not be negative, as -1 is"):
                ConsumerMetricsCollector(a, registry, **{wrong: -1})
        ConsumerMetricsCollector(a, registry)  # what was refused has taken no place


@virtual_time
async def test_a_page(fake: FakeCluster, tools: Tools) -> None:
    registry = CollectorRegistry()

    def page() -> dict[str, float]:
        lines = generate_latest(registry).decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.removeprefix("kafkaclient_consumer_"): float(value) for name, value in pairs}

    tools.fill(fake, 0, 6)
    async with group(tools, fake, client_id="c") as a:
        ConsumerMetricsCollector(a, registry, partition_limit=3)
        loop = Loop(a)
        await tools.until(lambda: len(loop.seen) == 6)
        loop.task.cancel()
        found = page()
        label = '{client_id="c"}'
        assert (found[f"up{label}"], found[f"records_consumed_total{label}"]) == (1, 6)
        assert found[f"lag_max_records{label}"] == 0
        assert found['topic_records_consumed_total{client_id="c",topic="t"}'] == 6
        assert found['partition_lag_records{client_id="c",partition="0",topic="t"}'] == 0
        assert found['series_left_out{client_id="c",kind="partition"}'] == 1
        with pytest.raises(ValueError, match="consumer 'c'"):
            ConsumerMetricsCollector(a, registry)
        values = a.metrics()
    assert page()[f"up{label}"] == 0
    async with group(tools, fake, client_id="c") as again:
        ConsumerMetricsCollector(again, registry)  # takes the place of the stopped one
        assert page()[f"up{label}"] == 1
    assert {each.source for each in CONSUMER} <= values.consumer.keys()
    assert {each.source for each in CONSUMER_TOPIC} <= values.topics["t"].keys()
    assert {each.source for each in CONSUMER_PARTITION} <= values.partitions[P[0]].keys()


def test_a_consumer_that_is_not_started(fake: FakeCluster) -> None:
    consumer = Consumer(fake.bootstrap, client_id="c")
    registry = CollectorRegistry()
    ConsumerMetricsCollector(consumer, registry)
    assert b'kafkaclient_consumer_up{client_id="c"} 0.0' in generate_latest(registry)
    with pytest.raises(ConsumerStateError, match="not started"):
        consumer.metrics()


@virtual_time
async def test_a_loop_takes_records_also_while_it_has_fetched_ones_or_no_partition(
    fake: FakeCluster, tools: Tools
) -> None:
    """It is the loop that has ended, or is in one record, whose last poll is long ago."""
    tools.fill(fake, 0, 1000)
    fake.create_topic("one", 1)
    async with (
        group(tools, fake) as slow,
        group(tools, fake, topics=["one"]) as one,
        group(tools, fake, topics=["one"]) as other,
    ):
        loops = [Loop(slow, work_s=0.5), Loop(one), Loop(other)]
        await asyncio.sleep(100)
        assert sorted(len(each.assignment) for each in (one, other)) == [0, 1]
        for each in (slow, one, other):
            assert each.metrics().consumer["last-poll-seconds-ago"] <= 1
        loops[0].task.cancel()
        await asyncio.sleep(100)
        assert slow.metrics().consumer["last-poll-seconds-ago"] >= 99
        for loop in loops:
            loop.task.cancel()
