"""``healthy`` and ``metrics`` of ``SyncProducer``."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from kafkaclient import KafkaMetric, SyncConsumer, SyncProducer
from kafkaclient.errors import (
    KafkaTimeoutError,
)
from kafkaclient.wire.api import ApiKey
from tests.sync.support import busy, one_topic, running


def test_healthy_says_why_not() -> None:
    fake = one_topic()
    fake.stop_broker(0)
    producer = SyncProducer(fake.bootstrap, dialer=fake, max_block_ms=500)
    assert "the producer does not run" in str(producer.healthy())
    fake.start_broker(0)
    assert producer.healthy()
    producer.send_and_wait("t", b"x")
    fake.stop_broker(0)
    health = producer.healthy()
    assert not health
    assert "no leader of the topics in use answers" in str(health)
    assert producer.close() == 0
    assert "is closed" in str(producer.healthy())


def test_a_probe_ends_in_time_although_the_thread_is_busy() -> None:
    with running(one_topic()) as producer:
        with busy(producer):
            began = time.monotonic()
            health = producer.healthy(timeout=0.1)
            assert not health
            assert str(health) == "the producer's thread does not respond"
            with pytest.raises(KafkaTimeoutError, match=r"does not respond within 0\.1 s"):
                producer.metrics(timeout=0.1)
            assert time.monotonic() - began < 15, "the thread is busy for 30 s"
        assert producer.healthy()


def test_healthy_while_the_producer_is_being_started() -> None:
    fake = one_topic()
    fake.stall_broker(0)
    producer = SyncProducer(fake.bootstrap, dialer=fake)
    assert str(producer.healthy(0.05)).endswith("does not run: it is being started")
    producer.close(0)


def test_metrics_without_partitions() -> None:
    with running(one_topic()) as producer:
        producer.send_and_wait("t", b"x")
        assert producer.metrics().partitions
        assert not producer.metrics(partitions=False).partitions
    assert not producer.metrics(partitions=False).partitions


def test_metrics_of_the_application_are_pushed_from_the_thread() -> None:
    fake = one_topic()
    fake.subscribe_metrics("org.apache.kafka.shop.")
    pushed, withdrawn = (KafkaMetric(name, "shop", lambda: 3) for name in ("pushed", "withdrawn"))
    producer = SyncProducer(fake.bootstrap, dialer=fake)
    producer.register_metric_for_subscription(pushed)  # before the thread exists
    with producer:
        producer.register_metric_for_subscription(withdrawn)
        producer.unregister_metric_from_subscription(withdrawn)
        assert producer.client_instance_id() == UUID(int=1)
    with SyncConsumer(fake.bootstrap, dialer=fake) as consumer:
        consumer.register_metric_for_subscription(pushed)
        consumer.register_metric_for_subscription(withdrawn)
        consumer.unregister_metric_from_subscription(withdrawn)
        assert consumer.client_instance_id() == UUID(int=2)
    contents = [each.message.metrics for each in fake.requests_of(ApiKey.PUSH_TELEMETRY)]
    assert len(contents) == 2
    for each in contents:
        assert b"org.apache.kafka.shop.pushed" in each
        assert b"withdrawn" not in each
