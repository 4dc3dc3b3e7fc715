"""docs/how-to/testing.md on real brokers, and what only they can show of the fixtures."""

from __future__ import annotations

import asyncio

import pytest
import time_machine
from freezegun import freeze_time

from integration.brokers import gone_everywhere, known_everywhere
from kafkaclient import Producer, SyncProducer
from kafkaclient.admin import Admin
from tests.code_blocks import runs

pytestmark = pytest.mark.timeout(180)

_killed: list[str] = []


@pytest.mark.local_cluster
@pytest.mark.kafka_topic(replication_factor=3, configs={"min.insync.replicas": "2"})
@runs("docs/how-to/testing.md", having="test_real_brokers.py")
def test_the_page(kafka_cluster, kafka_topic, block) -> None:
    names = block.run()
    names["test_a_broker_is_killed"](kafka_cluster, kafka_topic)
    _killed.append(kafka_topic)


@pytest.mark.local_cluster
async def test_the_next_test_finds_a_whole_cluster(kafka_cluster, kafka_topic) -> None:
    """The test before killed a broker. Its topic is gone."""
    assert len(_killed) == 1
    states = {broker.state for broker in await kafka_cluster.status()}
    assert states == {"running"}
    async with Admin(kafka_cluster.bootstrap) as admin:
        assert len((await admin.describe_cluster()).brokers) == 3
    await known_everywhere(kafka_cluster.bootstrap, kafka_topic)
    await gone_everywhere(kafka_cluster.bootstrap, _killed[0])


@pytest.mark.parametrize("linger_ms", [0, 5])
@pytest.mark.parametrize("freezer", ["freezegun", "time-machine"])
def test_frozen_time(kafka_cluster, kafka_topic, freezer, linger_ms) -> None:
    async def service() -> None:
        async with Producer(kafka_cluster.bootstrap, linger_ms=linger_ms) as producer:
            for delivery in [await producer.send(kafka_topic, b"v") for _ in range(3)]:
                await delivery
            await producer.send(kafka_topic, b"v")
            await producer.flush()

    when = freeze_time("2020-01-01") if freezer == "freezegun" else time_machine.travel(0.0)
    with when:
        asyncio.run(service())
        with SyncProducer(kafka_cluster.bootstrap) as producer:
            written = producer.send(kafka_topic, b"v").result(60)
    assert written.offset == 4


def test_a_broker_refuses_the_future(kafka_cluster, kafka_topic) -> None:
    with (
        freeze_time("2100-01-01"),
        SyncProducer(kafka_cluster.bootstrap) as producer,
        pytest.raises(Exception, match="INVALID_TIMESTAMP"),
    ):
        producer.send(kafka_topic, b"v").result(60)
