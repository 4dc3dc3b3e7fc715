"""``healthy`` and ``metrics`` of ``SyncProducer``."""

from __future__ import annotations

import time

import pytest

from kafkaclient import SyncProducer
from kafkaclient.errors import (
    KafkaTimeoutError,
)
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
            assert time.monotonic() - began < 2
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
